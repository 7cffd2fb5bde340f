"""The rule of the budget gate: every profile runs as well with its KV cache cut to what it was seen to need."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_tokenwatt.gates.finding import Finding, unusable
from pytest_tokenwatt.gates.telling import said_once
from pytest_tokenwatt.gates.wording import number
from pytest_tokenwatt.records import ConfigRecord, GateSpec, Reason, Verdict
from pytest_tokenwatt.records.profiles import BudgetRun

_RULE = "all healthy"


def judge_budget(gate: GateSpec, candidate: ConfigRecord) -> Finding:
    """Pass when all profiles that the gate names were healthy, fail when one was not, invalid when one is not known."""
    names: Sequence[str] = gate.limits.get("profiles") or list(candidate.budgets)
    unknown = [reason for name in names for reason in _faults(name, candidate.budgets.get(name))]
    runs = {name: candidate.budgets[name] for name in names if name in candidate.budgets}
    sick = {name: run for name, run in runs.items() if run.healthy is False and not run.invalid}
    if not sick and (unknown or not runs):
        return unusable(said_once(unknown) or (Reason("not_measured", "the spec has no profile to run again"),), _RULE)
    healthy = len(runs) - len(sick)
    text = f"{healthy} of {len(names)} profiles healthy at {gate.limits['factor']:g} x peak"
    reasons = (*(Reason("budget_unhealthy", _told(name, run)) for name, run in sick.items()), *said_once(unknown))
    verdict = Verdict.FAIL if sick else Verdict.PASS
    return Finding(verdict, text, _RULE, float(healthy), "profiles", float(len(names)), reasons=reasons)


def _faults(name: str, run: BudgetRun | None) -> tuple[Reason, ...]:
    """Why it is not known whether a profile was healthy."""
    if run is None:
        return (Reason("not_measured", f"{name} was not run again with its KV cache cut"),)
    if run.invalid:
        return tuple(Reason(reason.code, f"{name}: {reason.text}") for reason in run.invalid)
    if run.healthy is None:
        told = "; ".join(run.notes) or "it is not known whether it was healthy"
        return (Reason("not_measured", f"{name}: {told}"),)
    return ()


def _told(name: str, run: BudgetRun) -> str:
    parts = [f"{name}@{run.factor:g}"]
    if run.running is not None and run.full_running is not None:
        parts.append(f"{number(run.running)} of {number(run.full_running)} requests ran at once")
    if run.value is not None:
        parts.append(f"{number(run.value)} tok/s")
    if run.budget_gib is not None:
        parts.append(f"in {number(run.budget_gib)} GiB")
    return ", ".join([*parts, *run.notes])

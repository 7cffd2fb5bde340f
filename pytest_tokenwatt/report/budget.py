"""Profiles run again with their KV cache cut, by profile and factor, as in published records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pytest_tokenwatt.records import ConfigRecord
from pytest_tokenwatt.records.profiles import BudgetRun
from pytest_tokenwatt.report.lines import grouped
from pytest_tokenwatt.report.subject import Subject
from pytest_tokenwatt.report.told import OWN, Told, by_name, explained, finite, one, why
from pytest_tokenwatt.report.validity import validity
from pytest_tokenwatt.spec.model import Spec

NO_BUDGET = "the spec has no budget block"
_FIGURES = ("budget_gib", "full_running", "running", "value", "kv_gib")


def budget(subject: Subject) -> Told:
    """Reruns by name such as ``serve@1.02``; ``None`` where none was to be taken."""
    record, asked = subject.record, subject.spec.budget
    if not record.budgets and asked is None:
        return one("budget", None, NO_BUDGET)
    if not record.budgets and record.role == "baseline":
        return one("budget", None, OWN)
    names = dict.fromkeys([*(rerun_profiles(subject.spec) if asked else ()), *record.budgets])
    factors = {name: run.factor for name, run in record.budgets.items()}
    found: dict[str, Any] = {}
    for name in names:
        factor = factors.get(name) or (asked.factor if asked else 0.0)
        found[f"{name}@{factor:g}"] = _rerun(record.budgets.get(name))
    return by_name("budget", found, dict.fromkeys(found, why(record.invalid)))


def _rerun(run: BudgetRun | None) -> dict[str, Any] | None:
    if run is None:
        return None
    fields = {
        **{name: finite(getattr(run, name)) for name in _FIGURES},
        "factor": finite(run.factor),
        "healthy": run.healthy,
        "validity": validity(run.invalid),
        "notes": list(run.notes),
    }
    return explained(fields, {}, why(run.invalid, "not known of this rerun"))


def rerun_profiles(spec: Spec) -> list[str]:
    """The profiles that a budget applies to: those whose KV cache is not cut anyway."""
    return [name for name, profile in spec.profiles.items() if profile.kv_gib is None]


def unseen_budget(spec: Spec, records: Sequence[ConfigRecord]) -> Iterator[str]:
    """Why profiles were not run again with less memory."""
    if spec.budget is None:
        yield f"Rerun with less memory: {NO_BUDGET}"
        return
    candidates = [record for record in records if record.role != "baseline" or record.budgets]
    lacking = {record.key: _not_run(spec, record) for record in candidates}
    yield from grouped("Rerun with less memory", lacking, len(records))


def _not_run(spec: Spec, record: ConfigRecord) -> dict[str, str]:
    found = {name: record.budgets.get(name) for name in rerun_profiles(spec)}
    return {
        name: why(run.invalid, "not known") if run else why(record.invalid)
        for name, run in found.items()
        if run is None or run.healthy is None
    }

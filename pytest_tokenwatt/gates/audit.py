"""The rule of the audit gate: what was timed is what the model says, in the eyes of the baseline."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from pytest_tokenwatt.gates.finding import Finding, no_baseline, unusable
from pytest_tokenwatt.gates.telling import said_once
from pytest_tokenwatt.gates.wording import nats, nats_apart, number
from pytest_tokenwatt.records import DEFAULT_SCENARIO, ConfigRecord, GateSpec, Reason, Verdict
from pytest_tokenwatt.records.audit import AuditRecord

_UNIT = "nats"
MISSING = "missing"
"""Status of an audit of a run that a record of another tool did not take."""


def judge_audit(gate: GateSpec, candidate: ConfigRecord, baseline: ConfigRecord | None) -> Finding:
    """Pass when in every timed run the median gap, the empty answers and the length ratio are within their limits.

    A run without an audit, or with one that is not to be believed, is invalid, unless another run breaks a limit: that
    fails. Nothing timed is invalid too. Runs that a record of another tool lists as missing are only named where the
    spec does not have them. Without any ``baseline`` nobody could have scored the outputs.
    """
    rule = _rule(gate)
    if baseline is None and not candidate.audits:
        return no_baseline(gate.limits.get("on_missing_baseline", "fail"), "not audited", rule)
    names = list(timed_runs(gate, candidate))
    if not names:
        return unusable((Reason("not_measured", f"nothing of {candidate.key} was timed, so there is no output"),), rule)
    unknown = [reason for name in names for reason in _faults(name, candidate)]
    known = {name: audit for name in names if (audit := candidate.audits.get(name)) and audit.status == "audited"}
    broken = {name: reasons for name, audit in known.items() if (reasons := tuple(beyond_limits(gate, name, audit)))}
    if not broken and (unknown or not known):
        return unusable(said_once(unknown), rule)
    worst = max(broken or known, key=lambda name: _gap(known[name]))
    verdict = Verdict.FAIL if broken else Verdict.PASS
    reasons = (*(reason for each in broken.values() for reason in each), *said_once(unknown))
    limit = float(gate.limits["max_gap_median"])
    text = f"{_text(worst, known, limit)}{_unlisted(gate, candidate)}"
    return Finding(verdict, text, rule, known[worst].gap_median, _UNIT, limit, reasons=reasons)


def timed_runs(gate: GateSpec, candidate: ConfigRecord) -> Iterator[str]:
    """Names of the audits that there must be: of the spec's profiles, and of scenarios with confirmed windows."""
    profiles = dict.fromkeys([*(gate.limits.get("profiles") or ()), *candidate.profiles])
    confirmed = [name for name, record in candidate.scenarios.items() if record.rate_rps is not None]
    audited = [name for name, audit in candidate.audits.items() if audit.status != MISSING]
    yield from dict.fromkeys([*profiles, *map(goodput_run, confirmed), *audited])


def _unlisted(gate: GateSpec, candidate: ConfigRecord) -> str:
    """Runs that were not timed, and that nobody asked for."""
    asked = set(timed_runs(gate, candidate))
    names = [name for name, audit in candidate.audits.items() if audit.status == MISSING and name not in asked]
    return f"; not timed: {', '.join(names)}" if names else ""


def goodput_run(scenario: str) -> str:
    """What the audit of a scenario's windows is called."""
    return "goodput" if scenario == DEFAULT_SCENARIO else f"goodput[{scenario}]"


def _faults(name: str, candidate: ConfigRecord) -> tuple[Reason, ...]:
    """Why it is not known whether a run was what the model says."""
    audit = candidate.audits.get(name)
    if audit is None:
        profile = candidate.profiles.get(name)
        invalid = profile.invalid if profile else ()
        return _named(name, invalid) or (Reason("not_measured", f"{name} was not audited"),)
    if audit.status != "audited" or audit.invalid:
        return _named(name, audit.invalid) or (Reason("not_measured", f"{name}: the audit is {audit.status}"),)
    if audit.samples < 1:
        return (Reason("not_measured", f"{name}: no output was scored"),)
    figures = {"gap_median": audit.gap_median, "length_ratio": audit.length_ratio}
    missing = [figure for figure, value in figures.items() if value is None or not math.isfinite(value)]
    return (Reason("not_measured", f"{name}: no {' and no '.join(missing)}"),) if missing else ()


def _named(name: str, reasons: tuple[Reason, ...]) -> tuple[Reason, ...]:
    return tuple(Reason(reason.code, f"{name}: {reason.text}") for reason in reasons)


def beyond_limits(gate: GateSpec, name: str, audit: AuditRecord) -> Iterator[Reason]:
    """Which of its limits an audited run breaks."""
    gap, ratio, limits = audit.gap_median, audit.length_ratio, gate.limits
    if gap is not None and gap > limits["max_gap_median"]:
        shown = nats_apart(gap, limits["max_gap_median"])
        text = f"{name}: its outputs are {shown} nats a token less likely than the baseline's own"
        yield Reason("audit_gap", f"{text}, {limits['max_gap_median']:g} are allowed ({audit.samples} samples)")
    if audit.empty_alone > limits["max_empty_alone"]:
        text = f"{name}: {audit.empty_alone} of {audit.picked} outputs are empty where the baseline's are not"
        yield Reason("audit_empty", f"{text}, {limits['max_empty_alone']} allowed")
    if ratio is not None and ratio < limits["min_length_ratio"]:
        text = f"{name}: its outputs have {number(ratio)} of the baseline's length"
        yield Reason("audit_length", f"{text} (median), {limits['min_length_ratio']:g} is the least allowed")


def _gap(audit: AuditRecord) -> float:
    return -math.inf if audit.gap_median is None else audit.gap_median


def _text(worst: str, known: Mapping[str, AuditRecord], limit: float) -> str:
    """ "gap 0.1219 nats (interactive, worst of 3 runs)"."""
    gap, count = known[worst].gap_median, len(known)
    shown = "no gap" if gap is None else f"gap {nats_apart(gap, limit) if gap > limit else nats(gap)} nats"
    return f"{shown} ({worst}{f', worst of {count} runs' if count > 1 else ''})"


def _rule(gate: GateSpec) -> str:
    limits = gate.limits
    empty = f"<= {limits['max_empty_alone']} empty, length >= {limits['min_length_ratio']:g}"
    return f"<= {limits['max_gap_median']:g} nats, {empty}"

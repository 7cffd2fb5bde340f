"""The audit of timed runs in a lab report, by profile, as in published records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_tokenwatt.records import ConfigRecord, GoodputRecord
from pytest_tokenwatt.records.audit import AuditRecord
from pytest_tokenwatt.report.lines import grouped
from pytest_tokenwatt.report.subject import Subject
from pytest_tokenwatt.report.told import Told, explained, finite, why
from pytest_tokenwatt.report.validity import validity
from pytest_tokenwatt.spec.model import Spec
from pytest_tokenwatt.spec.traffic import CAPPED, ONLINE_SLO

STANDARD = ("serve", "interactive", "long_context", "offline", ONLINE_SLO, CAPPED)
"""Profiles that published records have, whether they were run or not."""
MISSING = {"status": "missing"}
NO_AUDIT = "the spec has no audit block"
_OWN = "the baseline is what others are audited by"
_GOODPUT = "goodput"
_FIGURES = (
    *("engine_mean", "bf16_mean", "gap", "gap_median", "gap_max"),
    *("engine_top1", "bf16_top1", "top1_gap", "length_ratio", "length_ratio_min"),
)
_COUNTS = ("picked", "samples", "empty", "empty_alone", "empty_reference")


def timed_audit(subject: Subject) -> Told:
    """Every standard profile and every other one; ``online_slo`` are the windows of the first scenario's goodput."""
    record = subject.record
    audits = _by_published_name(record.audits, record.scenarios)
    names = list(dict.fromkeys([*STANDARD, *subject.profiles, *audits]))
    blocks = {name: _audit(audits[name]) if name in audits else dict(MISSING) for name in names}
    missing = {f"timed_audit.{name}": _why_missing(subject, name) for name in names if name not in audits}
    return Told({"timed_audit": blocks}, missing)


def _by_published_name(
    audits: Mapping[str, AuditRecord], scenarios: Mapping[str, GoodputRecord]
) -> dict[str, AuditRecord]:
    first = next(iter(scenarios), "")
    return {_published_name(name, first): audit for name, audit in audits.items()}


def _published_name(name: str, first: str) -> str:
    """``goodput`` and ``goodput[first scenario]`` are ``online_slo``, others ``online_slo[scenario]``."""
    if name in (_GOODPUT, f"{_GOODPUT}[{first}]"):
        return ONLINE_SLO
    return name.replace(_GOODPUT, ONLINE_SLO, 1) if name.startswith(f"{_GOODPUT}[") else name


def _audit(audit: AuditRecord) -> dict[str, Any]:
    fields = {
        "status": audit.status,
        "run": audit.run,
        **{name: getattr(audit, name) for name in _COUNTS},
        **{name: finite(getattr(audit, name)) for name in _FIGURES},
        "validity": validity(audit.invalid),
        "notes": list(audit.notes),
    }
    return explained(fields, {}, why(audit.invalid, "no sample tells"))


def _why_missing(subject: Subject, name: str) -> str:
    record = subject.record
    if subject.spec.audit is None:
        return NO_AUDIT
    if record.role == "baseline":
        return _OWN
    if name.startswith(ONLINE_SLO):
        return why(record.invalid, "not measured in this run" if record.scenarios else "no goodput was measured")
    return subject.why_no_profile(name) if name not in record.profiles else why(record.invalid, "was not audited")


def unseen_audits(spec: Spec, records: Sequence[ConfigRecord]) -> Iterator[str]:
    """Timed runs of candidates that were not audited."""
    if spec.audit is None:
        yield f"Audit of timed output: {NO_AUDIT}"
        return
    lacking = {record.key: _not_audited(Subject(spec, record)) for record in records if record.role != "baseline"}
    yield from grouped("Audit of timed output", lacking, len(records))


def _not_audited(subject: Subject) -> dict[str, str]:
    record = subject.record
    audits = _by_published_name(record.audits, record.scenarios)
    first = next(iter(record.scenarios), "")
    online = [_published_name(f"{_GOODPUT}[{name}]", first) for name in record.scenarios]
    found = {name: audits.get(name) for name in (*subject.profiles, *online)}
    return {
        name: why(audit.invalid, "no sample tells") if audit else _why_missing(subject, name)
        for name, audit in found.items()
        if audit is None or finite(audit.gap_median) is None
    }

"""The stages of a submission, derived from the record: what was done, failed, was left unfinished or is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_tokenwatt.records import ConfigRecord, Reason, Verdict
from pytest_tokenwatt.report.profiles import profile_faults
from pytest_tokenwatt.report.subject import Subject
from pytest_tokenwatt.report.told import NOT_MEASURED, finite, why

DONE, FAILED, PARTIAL, MISSING = "done", "failed", "partial", "missing"
_Stage = tuple[str, str]
"""A state, and why it is not done."""


def stages(subject: Subject) -> list[dict[str, Any]]:
    """``build contract quality efficiency score`` in their order; ``reason`` where one is not ``done``.

    build: the engine came up and named itself. contract: it answered every required probe. quality: suites and drift
    of the spec gave a figure. efficiency: so did the rate and the peak of every profile. score: there is a score. With
    some of its figures a stage is ``partial``, with a fault and none ``failed``, with none ``missing``.
    """
    found = {
        "build": _build(subject.record),
        "contract": _contract(subject.record),
        "quality": _of_parts(_quality(subject), subject.record.invalid),
        "efficiency": _of_parts(_efficiency(subject), subject.record.invalid),
        "score": _score(subject),
    }
    return [
        {"name": name, "status": state, **({} if state == DONE else {"reason": reason})}
        for name, (state, reason) in found.items()
    ]


def overall(found: Sequence[Mapping[str, Any]]) -> str:
    """``done`` when all stages are, ``failed`` when one is, else ``partial``."""
    states = {stage["status"] for stage in found}
    if FAILED in states:
        return FAILED
    return DONE if states == {DONE} else PARTIAL


def _build(record: ConfigRecord) -> _Stage:
    if record.identity is not None:
        return DONE, ""
    return (FAILED, why(record.invalid)) if record.invalid else (MISSING, "no engine was started")


def _contract(record: ConfigRecord) -> _Stage:
    contract, stated = record.contract, record.stored.verdicts.get("contract") if record.stored else None
    if contract is None and stated is not None:
        return (DONE, "") if stated == Verdict.PASS else (FAILED, "not met, as stored")
    if contract is None:
        return MISSING, why(record.invalid, "no probe was sent")
    broken = [probe.name for probe in contract.probes if probe.required and probe.state != "pass"]
    return (FAILED, f"not met: {', '.join(broken)}") if broken else (DONE, "")


_Part = tuple[str, bool, Sequence[Reason]]
"""The name of something that was asked for, whether it has its figure, and what speaks against it."""


def _quality(subject: Subject) -> Iterator[_Part]:
    record, spec = subject.record, subject.spec
    for suite in spec.accuracy:
        found = record.suites.get(suite.title)
        yield suite.title, found is not None and finite(found.score) is not None, found.invalid if found else ()
    if spec.drift is not None:
        drift = record.drift
        against = drift.against if drift else None
        faults = (*(drift.invalid if drift else ()), *(against.invalid if against else ()))
        yield "drift", against is not None and finite(against.kl) is not None, faults


def _efficiency(subject: Subject) -> Iterator[_Part]:
    for name in subject.spec.profiles:
        found = subject.record.profiles.get(name)
        rate, peak = (found.output_tok_s, found.memory.peak_gib) if found else (None, None)
        yield f"rate of {name}", finite(rate) is not None, profile_faults(found) if found else ()
        yield f"peak memory of {name}", finite(peak) is not None, ()


def _of_parts(parts: Iterator[_Part], invalid: Sequence[Reason]) -> _Stage:
    asked = list(parts)
    lacking = [name for name, known, _ in asked if not known]
    faults = list(dict.fromkeys([*invalid, *(fault for _, _, found in asked for fault in found)]))
    if not asked:
        return MISSING, "the spec asks for nothing of it"
    if not lacking and not faults:
        return DONE, ""
    reason = "; ".join(filter(None, [f"not measured: {', '.join(lacking)}" if lacking else "", *map(str, faults)]))
    if faults and (len(lacking) == len(asked) or not lacking):
        return FAILED, reason
    return (MISSING, NOT_MEASURED) if len(lacking) == len(asked) else (PARTIAL, reason)


def _score(subject: Subject) -> _Stage:
    delta = subject.score
    if delta is None:
        return MISSING, why(subject.record.invalid, "nothing was compared with a baseline")
    if finite(delta.score) is not None:
        return DONE, ""
    reason = delta.missing.get("score") or "; ".join(delta.missing.values()) or delta.reason or NOT_MEASURED
    return MISSING, reason

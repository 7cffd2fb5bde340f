"""The submission record of a candidate: the form in which leaderboards rank an engine, with the lab's own figures."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from pytest_tokenwatt.records import ConfigRecord
from pytest_tokenwatt.records.profiles import ScoreDelta
from pytest_tokenwatt.report.audit import timed_audit
from pytest_tokenwatt.report.budget import budget
from pytest_tokenwatt.report.describe import raw
from pytest_tokenwatt.report.drift import kl_entry, missing_kl
from pytest_tokenwatt.report.efficiency import efficiency, memory, speed
from pytest_tokenwatt.report.length import FIELD as SHIFT
from pytest_tokenwatt.report.length import lengths_asked, missing_length
from pytest_tokenwatt.report.machine import read_gpus
from pytest_tokenwatt.report.memory import peak_memory
from pytest_tokenwatt.report.stages import overall, stages
from pytest_tokenwatt.report.startup import precision, startup, stored_gib
from pytest_tokenwatt.report.subject import Subject
from pytest_tokenwatt.report.told import NO_BASELINE, Told, explained, finite, one, together, why, why_not_compared

METRIC = "lowbit_score"
_WHO = ("agent", "partition", "runner", "split", "track")
_UNSAID = "the spec does not say"
_SCORES = ("drift", "efficiency_gain", "score", "score_se")


def submission(subject: Subject, created: datetime, finished: datetime | None) -> dict[str, Any]:
    """The whole record: who and where as far as the spec says, ``stages``, and ``result`` with every figure.

    ``missing`` names why a field is null, by its path; blocks have their own. ``created`` and ``finished`` are aware
    instants, the begin and the end of the run.
    """
    steps = stages(subject)
    told = together([_identity(subject, created, finished), _solution(subject)])
    fields = {
        **told.fields,
        "error": why(subject.record.invalid, "") or None,
        "result": _result(subject),
        "stages": steps,
        "status": overall(steps),
    }
    return {**{name: fields[name] for name in sorted(fields)}, "missing": dict(told.missing)}


def _identity(subject: Subject, created: datetime, finished: datetime | None) -> Told:
    key = f"{subject.spec.name}/{subject.record.key}/{_instant(created)}"
    parts = [
        Told({"id": hashlib.sha256(key.encode()).hexdigest()[:16], "created_at": _instant(created)}),
        one("updated_at", _instant(finished) if finished else None, "the end of the run is not known"),
        one("participant", subject.record.label or None, _UNSAID),
        _task(subject),
    ]
    return together([*parts, *(one(name, None, _UNSAID) for name in _WHO)])


def _instant(instant: datetime) -> str:
    return instant.isoformat(timespec="seconds").replace("+00:00", "Z")


def _task(subject: Subject) -> Told:
    return one("task_id", raw(subject.configuration.raw, "model", "name"), "the spec gives the model no name")


def _solution(subject: Subject) -> Told:
    """What was submitted: checkpoint, and precision as declared and as read."""
    record, configuration = subject.record, subject.configuration
    read = record.precision.label if record.precision else None
    fields = {
        "checkpoint": _checkpoint(subject),
        "declared_precision": configuration.precision is not None,
        "detected_precision": read,
        "method": record.key,
        "precision": configuration.precision or read,
    }
    known = {"checkpoint": "neither the spec nor the engine says what is served"}
    return Told({"solution": explained(fields, known, "the precision could not be read")})


def _checkpoint(subject: Subject) -> str | None:
    written, identity = subject.configuration.raw, subject.record.identity
    served = identity.model_ids[0] if identity and identity.model_ids else None
    path = raw(written, "model", "path") or raw(written, "engine", "model") or served
    return path.rstrip("/").rsplit("/", 1)[-1] if path else None


# --- the result


def _result(subject: Subject) -> dict[str, Any]:
    parts = [
        _score(subject),
        *_against(subject),
        efficiency(subject),
        peak_memory(subject),
        speed(subject),
        memory(subject),
        _engine(subject),
        _gpu_hours(subject.record),
        _quality(subject),
        precision(subject),
        timed_audit(subject),
        _task(subject),
        Told({"metric": METRIC}),
    ]
    told = together(parts)
    return {**{name: told.fields[name] for name in sorted(told.fields)}, "missing": dict(told.missing)}


def _score(subject: Subject) -> Told:
    """The leaderboard figures, whether they count, and why not."""
    delta = subject.score
    if delta is None:
        names = (*_SCORES, "admitted", "qualified", "mean_drop", "quality")
        return Told({**dict.fromkeys(names), "reason": why_not_compared(subject.record)}, _same(subject, names))
    otherwise = delta.reason or NO_BASELINE
    figures = [one(name, finite(getattr(delta, name)), delta.missing.get(name) or otherwise) for name in _SCORES]
    drop = finite(delta.mean_drop_pts)
    undecided = f"undecided: {', '.join(delta.undecided)}" if delta.undecided else otherwise
    rest = [
        Told({"admitted": delta.admitted, "reason": delta.reason}),
        one("qualified", delta.qualified, delta.missing.get("qualified") or undecided),
        # Published records have it as a share.
        one("mean_drop", None if drop is None else drop / 100.0, delta.missing.get("mean_drop_pts") or otherwise),
        _tier(delta),
    ]
    return together([*figures, *rest])


def _same(subject: Subject, names: tuple[str, ...]) -> Mapping[str, str]:
    return dict.fromkeys(names, why_not_compared(subject.record))


def _tier(delta: ScoreDelta) -> Told:
    beyond = "no tier allows the mean drop" if delta.mean_drop_pts is not None else "the mean drop is not known"
    told = together(
        [
            one("tier", delta.tier, delta.missing.get("tier") or beyond),
            one("valid_domains", delta.valid_domains, delta.missing.get("valid_domains") or "no domain was compared"),
        ]
    )
    return Told({"quality": {**told.fields, "missing": dict(told.missing)}})


def _against(subject: Subject) -> list[Told]:
    """The baseline's figures."""
    names = ("anchor_efficiency", "anchor_peak_memory", "bf16_peak_gib")
    if subject.baseline is None:
        return [Told(dict.fromkeys(names), dict.fromkeys(names, NO_BASELINE))]
    base = replace(subject, record=subject.baseline)
    peaks = peak_memory(base).renamed("peak_memory", "anchor_peak_memory").renamed("peak_gib", "bf16_peak_gib")
    return [efficiency(base).renamed("efficiency", "anchor_efficiency"), peaks]


def _engine(subject: Subject) -> Told:
    """What is known of the engine itself; its audit is that of the timed runs."""
    parts = [timed_audit(subject).renamed("timed_audit", "audit"), budget(subject), startup(subject.record)]
    told = together([*parts, stored_gib(subject)])
    return Told({"engine": {**told.fields, "missing": dict(told.missing)}})


def _gpu_hours(record: ConfigRecord) -> Told:
    """Minutes of all phases of the configuration · GPUs / 60."""
    gpus = read_gpus(record)
    if not gpus:
        return one("gpu_hours", None, "on how many GPUs it ran is not known")
    hours = sum(record.minutes.values()) * gpus / 60.0
    return one("gpu_hours", finite(hours) if record.minutes else None, why(record.invalid, "no phase was timed"))


def _quality(subject: Subject) -> Told:
    """Drift and length: their blocks are those of the configuration."""
    record, asked, length = subject.record, subject.spec.drift, subject.length
    kl = Told({"kl": kl_entry(record, asked, subject.drift)}, missing_kl(record, asked))
    reasons = missing_length(record, lengths_asked(subject.spec), length)
    return together([kl, one(SHIFT, finite(length.shift) if length else None, reasons.get(SHIFT, ""))])

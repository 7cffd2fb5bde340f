"""Closed-loop profiles in a lab report: what was asked, each repeat, and what the client did to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytest_tokenwatt.records import ConfigRecord, Reason
from pytest_tokenwatt.records.profiles import EnginePeaks, ProfileRecord, ProfileRun
from pytest_tokenwatt.report.told import explained, finite, why
from pytest_tokenwatt.report.validity import validity

_FIGURES = (
    *("output_tok_s", "window_s", "held_share", "client_cpu_share"),
    *("ttft_p50_ms", "tpot_p50_ms", "e2e_p50_ms"),
)
_PEAKS = ("kv_usage", "running", "preemptions", "device_gib")


def profile_entries(record: ConfigRecord) -> dict[str, Any]:
    """Every profile of a configuration with its repeats; ``again`` are those of a baseline's second start."""
    return {name: _profile(profile, record.again.get(name)) for name, profile in record.profiles.items()}


def _profile(profile: ProfileRecord, again: ProfileRecord | None) -> dict[str, Any]:
    faults = profile_faults(profile)
    fields = {
        "concurrency": profile.concurrency,
        "input_tokens": profile.input_tokens,
        "output_tokens": profile.output_tokens,
        "requests": profile.requests,
        "output_tok_s": finite(profile.output_tok_s),
        "runs": [_run(run) for run in profile.runs],
        **({"paired": [_run(run) for run in profile.paired]} if profile.paired else {}),
        **({"again": [_run(run) for run in again.runs]} if again else {}),
        "load_sha256": profile.load_sha256 or None,
        "validity": validity(faults),
        "notes": list(profile.notes),
    }
    return explained(fields, {"load_sha256": "not stored"}, why(faults, "no repeat was measured"))


def _run(run: ProfileRun) -> dict[str, Any]:
    fields = {
        "run": run.label,
        **{name: finite(getattr(run, name)) for name in _FIGURES},
        "requests": run.requests,
        "failed": run.failed,
        "peaks": _peaks(run.peaks),
        "file": run.requests_file,
        "validity": validity(run.invalid),
        "notes": list(run.notes),
    }
    return explained(fields, {"file": "its requests were not kept"}, why(run.invalid, "no request tells"))


def _peaks(peaks: EnginePeaks) -> dict[str, Any]:
    fields = {**{name: finite(getattr(peaks, name)) for name in _PEAKS}, "readings": peaks.readings}
    pace = {name: value for name in ("seconds", "longest_gap_s") if (value := finite(getattr(peaks, name))) is not None}
    return explained({**fields, **pace}, peaks.missing, "not read")


def profile_faults(profile: ProfileRecord) -> tuple[Reason, ...]:
    """What speaks against a profile and its repeats, the baseline's in between included."""
    broken = [reason for run in (*profile.runs, *profile.paired) for reason in run.invalid]
    return tuple(dict.fromkeys((*profile.invalid, *broken)))


def profile_files(record: ConfigRecord) -> Iterator[str]:
    """The files with the requests of every repeat."""
    for profile in (*record.profiles.values(), *record.again.values()):
        yield from (run.requests_file for run in (*profile.runs, *profile.paired) if run.requests_file)

"""Memory at the peak of every profile, named as in published records, and why a part of it is not known."""

from __future__ import annotations

from typing import Any

from pytest_tokenwatt.records.profiles import PeakMemory, ProfileRecord
from pytest_tokenwatt.report.efficiency import SERVE
from pytest_tokenwatt.report.profiles import profile_faults
from pytest_tokenwatt.report.subject import Subject
from pytest_tokenwatt.report.told import Told, by_name, explained, finite, one, together, why

PARTS = ("weights_gib", "kv_gib", "other_gib")
"""What a peak is the sum of."""
_PUBLISHED = ("device_peak_gib", "kv_bytes_per_token", "kv_gib", "kv_usage", "other_gib", "peak_gib", "weights_gib")


def peak_memory(subject: Subject) -> Told:
    """Memory by profile in GiB, and the peak of ``serve``."""
    found = {name: _peak(subject.record.profiles.get(name)) for name in subject.profiles}
    reasons = {name: subject.why_no_profile(name) for name in subject.profiles}
    profile = subject.record.profiles.get(SERVE)
    value = finite(profile.memory.peak_gib) if profile else None
    reason = why_no_peak(profile.memory, profile) if profile else subject.why_no_profile(SERVE)
    return together([by_name("peak_memory", found, reasons), one("peak_gib", value, reason)])


def _peak(profile: ProfileRecord | None) -> dict[str, Any] | None:
    if profile is None:
        return None
    memory = profile.memory
    fields = {
        **{name: finite(getattr(memory, name)) for name in _PUBLISHED},
        "error": finite(memory.error),
        "weights_source": memory.weights_source,
    }
    known = {"peak_gib": why_no_peak(memory, profile), **memory.missing}
    return explained(fields, known, why(profile_faults(profile), "not known of this profile"))


def why_no_peak(memory: PeakMemory, profile: ProfileRecord) -> str:
    """Which parts a peak lacks, each with its reason."""
    lacking = [name for name in PARTS if finite(getattr(memory, name)) is None]
    told = "; ".join(f"{name}: {memory.missing.get(name) or 'not known'}" for name in lacking)
    return memory.missing.get("peak_gib") or told or why(profile_faults(profile), "not known of this profile")

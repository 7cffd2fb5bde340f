"""Whether two configurations are the same engine twice, so that comparing them compares nothing."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_tokenwatt.records import ConfigRecord, Reason

LAUNCH_KEYS = ("command", "args", "up", "env", "image_digest", "kernels")


def identical_twin(candidate: ConfigRecord, records: Sequence[ConfigRecord]) -> Reason | None:
    """The reason ``identical_configs`` when an earlier record has the same fingerprint and an equal launch.

    The baseline comes before all others, wherever the spec lists it. Declared repeats (``like``) are exempt, and
    records without fingerprints are not judged on it.
    """
    if candidate.fingerprint is None or candidate.like is not None:
        return None
    for other in sorted(records, key=lambda record: record.role != "baseline"):
        if other.key == candidate.key:
            return None
        if other.like is None and _same(candidate, other):
            text = f"{candidate.key} and {other.key} were started alike and serve the same configuration"
            return Reason("identical_configs", f"{text}; change one of them, or say like: {other.key}")
    return None


def _same(one: ConfigRecord, other: ConfigRecord) -> bool:
    launches = all(one.launch.get(key) == other.launch.get(key) for key in LAUNCH_KEYS)
    return one.fingerprint == other.fingerprint and launches

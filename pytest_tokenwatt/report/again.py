"""How far the machine moved between the baseline's two starts: A' against A by profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_tokenwatt.records import ConfigRecord
from pytest_tokenwatt.records.profiles import ProfileRecord
from pytest_tokenwatt.report.profiles import profile_faults
from pytest_tokenwatt.report.told import explained, finite, why

NOT_REPEATED = "the baseline was not measured again"


def baseline_again(records: Sequence[ConfigRecord], baseline: ConfigRecord | None) -> Mapping[str, ProfileRecord]:
    """The profiles of A': the baseline's own second start, else the configuration that repeats it."""
    if baseline is None:
        return {}
    if baseline.again:
        return baseline.again
    return next((record.profiles for record in records if record.like == baseline.key and record.profiles), {})


def machine_drift(
    baseline: ConfigRecord | None, again: Mapping[str, ProfileRecord], variance_band_pct: float | None
) -> dict[str, Any]:
    """100 · (A' − A) / A of output tok/s by profile, beside the band of goodput."""
    first = baseline.profiles if baseline else {}
    profiles = {name: _change_pct(profile, again.get(name)) for name, profile in first.items()}
    nulls = [name for name, pct in profiles.items() if pct is None]
    missing = {f"profiles.{name}": _why_none(first[name], again.get(name)) for name in nulls}
    fields = {"profiles": profiles or None, "variance_band_pct": variance_band_pct}
    known = {"profiles": "no profile of a baseline was measured", "variance_band_pct": "nothing was measured twice"}
    block = explained(fields, known, NOT_REPEATED)
    return {**block, "missing": {**block["missing"], **missing}}


def _change_pct(first: ProfileRecord, second: ProfileRecord | None) -> float | None:
    before, after = _rate(first), _rate(second)
    return 100.0 * (after - before) / before if before and after is not None else None


def _rate(profile: ProfileRecord | None) -> float | None:
    return None if profile is None or profile_faults(profile) else finite(profile.output_tok_s)


def _why_none(first: ProfileRecord, second: ProfileRecord | None) -> str:
    if second is None:
        return NOT_REPEATED
    return why((*profile_faults(first), *profile_faults(second)), "its rate is not known")

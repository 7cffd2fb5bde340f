"""The variance band of a session: how far equal measurements of one scenario differed."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_tokenwatt.metrics.goodput import variance_band_pct
from pytest_tokenwatt.records import ConfigRecord


def session_band_pct(records: Sequence[ConfigRecord], scenario: str) -> float | None:
    """The band in per cent over the repeats of all configurations and over those declared equal (``like``).

    ``None`` when nothing was measured twice.
    """
    usable = {record.key: record for record in records if not record.invalid and scenario in record.scenarios}
    pairs = [
        (usable[record.like].scenarios[scenario], record.scenarios[scenario])
        for record in usable.values()
        if record.like is not None and record.like in usable
    ]
    return variance_band_pct([record.scenarios[scenario] for record in usable.values()], pairs)

"""The variance bands of a session: how far equal measurements of one scenario differed."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_tokenwatt.metrics.energy import energy_band_pct
from pytest_tokenwatt.metrics.goodput import variance_band_pct
from pytest_tokenwatt.records import ConfigRecord, EnergyRecord, GoodputRecord


def session_band_pct(records: Sequence[ConfigRecord], scenario: str) -> float | None:
    """The band of goodput in per cent over the repeats of all configurations and over those declared equal (``like``).

    ``None`` when nothing was measured twice.
    """
    usable = _usable(records, scenario)
    return variance_band_pct([goodput for _, goodput in usable.values()], _pairs(usable))


def session_energy_band_pct(records: Sequence[ConfigRecord], scenario: str) -> float | None:
    """The same band of tokens per joule; ``None`` when the energy of nothing was measured twice."""
    usable = _usable(records, scenario)
    pairs = [(first.energy, again.energy) for first, again in _pairs(usable)]
    return energy_band_pct(
        _known([goodput.energy for _, goodput in usable.values()]),
        [(first, again) for first, again in pairs if first is not None and again is not None],
    )


def _usable(records: Sequence[ConfigRecord], scenario: str) -> dict[str, tuple[ConfigRecord, GoodputRecord]]:
    return {
        record.key: (record, record.scenarios[scenario])
        for record in records
        if not record.invalid and scenario in record.scenarios
    }


def _pairs(usable: dict[str, tuple[ConfigRecord, GoodputRecord]]) -> list[tuple[GoodputRecord, GoodputRecord]]:
    """What was measured of a configuration and of its declared repeat."""
    return [
        (usable[record.like][1], goodput)
        for record, goodput in usable.values()
        if record.like is not None and record.like in usable
    ]


def _known(records: Sequence[EnergyRecord | None]) -> list[EnergyRecord]:
    return [record for record in records if record is not None]

"""The variance bands of a session: how far equal measurements of one scenario differed."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_tokenwatt.gates.stated import stated_band_pct
from pytest_tokenwatt.metrics.energy import energy_band_pct
from pytest_tokenwatt.metrics.goodput import variance_band_pct
from pytest_tokenwatt.metrics.spread import spread_pct, widest
from pytest_tokenwatt.records import ConfigRecord, EnergyRecord, GoodputRecord


def session_band_pct(
    records: Sequence[ConfigRecord], scenario: str, baselines: Sequence[ConfigRecord] = ()
) -> float | None:
    """The band of goodput in per cent over the repeats of all configurations and over those declared equal (``like``).

    A report states the band of its session. ``baselines`` are runs of one baseline on record, whose repeats count as
    those of a session do; (max − min) / mean between the runs counts too. ``None`` when nothing was measured twice.
    """
    usable, runs = _usable(records, scenario), [goodput for _, goodput in _runs(baselines, scenario)]
    own = variance_band_pct([*(goodput for _, goodput in usable.values()), *runs], _pairs(usable))
    between = spread_pct([goodput.goodput_tok_s for goodput in runs if not goodput.invalid])
    return widest([own, *stated_band_pct([*records, *baselines]), between])


def session_energy_band_pct(
    records: Sequence[ConfigRecord], scenario: str, baselines: Sequence[ConfigRecord] = ()
) -> float | None:
    """The same band of tokens per joule; ``None`` when the energy of nothing was measured twice."""
    usable = _usable(records, scenario)
    pairs = [(first.energy, again.energy) for first, again in _pairs(usable)]
    runs = _known([goodput.energy for _, goodput in _runs(baselines, scenario)])
    own = energy_band_pct(
        [*_known([goodput.energy for _, goodput in usable.values()]), *runs],
        [(first, again) for first, again in pairs if first is not None and again is not None],
    )
    return widest([own, spread_pct([run.tokens_per_joule for run in runs])])


def _usable(records: Sequence[ConfigRecord], scenario: str) -> dict[str, tuple[ConfigRecord, GoodputRecord]]:
    return {record.key: (record, goodput) for record, goodput in _runs(records, scenario)}


def _runs(records: Sequence[ConfigRecord], scenario: str) -> list[tuple[ConfigRecord, GoodputRecord]]:
    """All that was measured of a scenario; several runs of one configuration have the same key."""
    return [
        (record, record.scenarios[scenario])
        for record in records
        if not record.invalid and scenario in record.scenarios
    ]


def _pairs(usable: dict[str, tuple[ConfigRecord, GoodputRecord]]) -> list[tuple[GoodputRecord, GoodputRecord]]:
    """What was measured of a configuration and of its declared repeat."""
    return [
        (usable[record.like][1], goodput)
        for record, goodput in usable.values()
        if record.like is not None and record.like in usable
    ]


def _known(records: Sequence[EnergyRecord | None]) -> list[EnergyRecord]:
    return [record for record in records if record is not None]

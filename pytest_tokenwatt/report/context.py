"""What a lab report says of a run beside its records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pytest_tokenwatt.records import ConfigRecord
from pytest_tokenwatt.records.accuracy import AccuracyDelta, LengthDelta
from pytest_tokenwatt.records.drift import DriftDelta
from pytest_tokenwatt.records.profiles import MemoryDelta, ScoreDelta, SpeedDelta


@dataclass(frozen=True, slots=True)
class ReportContext:
    """What a report says of the run beside its records.

    ``generated`` is an aware instant; ``command`` the words of the command line that repeats the run; ``versions``
    name the software around the engine. ``variance_band_pct`` is the band over all configurations (measured by
    repeats and by a repeated baseline), ``energy_band_pct`` that of tokens per joule; ``None`` when there was nothing
    to compare. ``accuracy`` is how the answers of each configuration compare with the baseline's, ``lengths``
    how long they are, ``drift`` how far its distributions are from the baseline's, ``speeds`` and ``memories`` how
    fast it is and what it takes, ``scores`` the leaderboard figures. ``interrupted`` says what ended the run early,
    ``finished`` (an aware instant) when it ended. ``baseline`` is a stored record that stands for one of this run.
    """

    generated: datetime
    command: tuple[str, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    variance_band_pct: float | None = None
    title: str | None = None
    interrupted: str | None = None
    energy_band_pct: float | None = None
    accuracy: Mapping[str, AccuracyDelta] = field(default_factory=dict)
    lengths: Mapping[str, LengthDelta] = field(default_factory=dict)
    drift: Mapping[str, DriftDelta] = field(default_factory=dict)
    speeds: Mapping[str, SpeedDelta] = field(default_factory=dict)
    memories: Mapping[str, MemoryDelta] = field(default_factory=dict)
    scores: Mapping[str, ScoreDelta] = field(default_factory=dict)
    finished: datetime | None = None
    baseline: ConfigRecord | None = None

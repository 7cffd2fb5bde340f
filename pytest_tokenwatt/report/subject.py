"""One configuration of a run with all that a report says of it."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_tokenwatt.records import ConfigRecord
from pytest_tokenwatt.records.accuracy import AccuracyDelta, LengthDelta
from pytest_tokenwatt.records.drift import DriftDelta
from pytest_tokenwatt.records.profiles import MemoryDelta, ScoreDelta, SpeedDelta
from pytest_tokenwatt.report.told import why
from pytest_tokenwatt.spec.model import Configuration, Spec

NO_PROFILES = "the spec has no profiles block"


@dataclass(frozen=True, slots=True)
class Subject:
    """A record, what the spec asks of its configuration, and how it compares with ``baseline``.

    ``baseline`` is ``None`` where none was measured, a delta where nothing was compared. ``energy_band_pct``
    is the session's band of tokens per joule in the first scenario.
    """

    spec: Spec
    record: ConfigRecord
    baseline: ConfigRecord | None = None
    energy_band_pct: float | None = None
    accuracy: AccuracyDelta | None = None
    length: LengthDelta | None = None
    drift: DriftDelta | None = None
    speed: SpeedDelta | None = None
    memory: MemoryDelta | None = None
    score: ScoreDelta | None = None

    @property
    def configuration(self) -> Configuration:
        """What the spec says of it."""
        return self.spec.configuration(self.record.key)

    @property
    def profiles(self) -> list[str]:
        """The closed-loop profiles: those that the spec asks for, and any other that the record has."""
        return list(dict.fromkeys([*self.spec.profiles, *self.record.profiles]))

    def why_no_profile(self, name: str) -> str:
        """Why a profile has no record."""
        if not self.spec.profiles and not self.spec.online_slo:
            return NO_PROFILES
        if name not in self.spec.profiles:
            return f"the spec has no profile {name}"
        return why(self.record.invalid)

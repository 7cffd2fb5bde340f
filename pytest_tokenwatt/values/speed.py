"""Closed-loop speed as a test reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_tokenwatt.errors import NotMeasured

if TYPE_CHECKING:
    from pytest_tokenwatt.records import Reason
    from pytest_tokenwatt.records.profiles import ProfileRecord, Ratio, SpeedDelta


@dataclass(frozen=True, slots=True)
class Speed:
    """Output tokens per second of one configuration's profiles against the baseline's.

    ``records`` are the configuration's profiles by name. Raises ``NotMeasured`` with the reason for a figure without a
    value, and for a profile that was not measured.
    """

    config: str
    delta: SpeedDelta
    records: Mapping[str, ProfileRecord] = field(default_factory=dict, repr=False)

    @property
    def ratio(self) -> float:
        """Candidate / baseline, the geometric mean over profiles: 1.35 is 35 % faster."""
        return self._overall("ratio").value or 0.0

    @property
    def error(self) -> float:
        """The 95 % half-width of ``ratio``."""
        overall = self._overall("error")
        if overall.error is None:
            raise NotMeasured(f"{self.config} speed error", overall.missing or "nothing was measured twice")
        return overall.error

    @property
    def profiles(self) -> dict[str, float]:
        """Candidate / baseline by profile; those that cannot be compared are not in it."""
        return {name: each.value for name, each in self.delta.profiles.items() if each.value is not None}

    @property
    def smallest_change(self) -> float:
        """The smallest relative change of ``ratio`` that the measurement can tell from none: 0.03 is 3 %."""
        if self.delta.smallest is None:
            raise NotMeasured(f"{self.config} speed smallest_change", self._why("the error is not known"))
        return self.delta.smallest

    @property
    def how(self) -> str:
        """Where the error comes from."""
        return self.delta.how

    @property
    def validity(self) -> tuple[Reason, ...]:
        """Reasons why there is no overall ratio; empty when there is one."""
        return self.delta.faults

    def output_tok_s(self, profile: str) -> float:
        """The configuration's own output tokens per second in one profile, over all repeats."""
        record = self.records.get(profile)
        if record is None or record.output_tok_s is None:
            own = "; ".join(map(str, record.invalid)) if record else f"profiles: {', '.join(self.records) or 'none'}"
            raise NotMeasured(f"{self.config} {profile} output_tok_s", own or "no output was counted")
        return record.output_tok_s

    def _overall(self, name: str) -> Ratio:
        overall = self.delta.overall
        if overall is None or overall.value is None:
            raise NotMeasured(f"{self.config} speed {name}", self._why("no profile was measured"))
        return overall

    def _why(self, otherwise: str) -> str:
        return "; ".join(map(str, self.delta.faults)) or otherwise

"""The answers to suites as a test reads them: how many are right, and how long they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_tokenwatt.errors import NotMeasured

if TYPE_CHECKING:
    from pytest_tokenwatt.records import Reason, SuiteRecord
    from pytest_tokenwatt.records.accuracy import LengthDelta


@dataclass(frozen=True, slots=True)
class AccuracyChange:
    """A suite on one configuration against the same items on the baseline, in points; negative is worse.

    ``low_pts`` and ``high_pts`` are the 95 % interval; ``resolvable_drop_pts`` is the drop that so many items show
    with 80 % power at one-sided 5 %. ``mid_p`` (McNemar) is ``None`` where items share templates or seeds.
    """

    delta_pts: float
    low_pts: float
    high_pts: float
    items: int
    right_to_wrong: int
    wrong_to_right: int
    mid_p: float | None
    resolvable_drop_pts: float


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A suite on one configuration. ``change`` is ``None`` for the baseline, and when it cannot be compared."""

    config: str
    record: SuiteRecord = field(repr=False)
    change: AccuracyChange | None = None
    why: str = "the baseline is compared with nothing"

    @property
    def suite(self) -> str:
        """Name of the suite."""
        return self.record.name

    @property
    def score(self) -> float:
        """Right answers in per cent of the answered items, over all seeds."""
        if self.record.score is None:
            raise NotMeasured(f"{self.config} {self.suite} score", "; ".join(map(str, self.record.invalid)))
        return self.record.score

    @property
    def spread_pts(self) -> float:
        """Max − min of the score over seeds, in points."""
        if self.record.spread_pts is None:
            raise NotMeasured(f"{self.config} {self.suite} spread_pts", "one seed has no spread")
        return self.record.spread_pts

    @property
    def delta_pts(self) -> float:
        """Candidate − baseline on the same items, in points."""
        return self._known().delta_pts

    @property
    def interval_pts(self) -> tuple[float, float]:
        """The 95 % interval of ``delta_pts``."""
        return self._known().low_pts, self._known().high_pts

    @property
    def flips(self) -> tuple[int, int]:
        """Items that were right on the baseline and are wrong now, and the other way round."""
        return self._known().right_to_wrong, self._known().wrong_to_right

    @property
    def counts(self) -> dict[str, int]:
        """Items by outcome: correct, wrong, unparseable, truncated, failed."""
        return dict(self.record.counts)

    @property
    def validity(self) -> tuple[Reason, ...]:
        """Reasons not to believe the measurement; empty when it is valid."""
        return self.record.invalid

    def _known(self) -> AccuracyChange:
        if self.change is None:
            raise NotMeasured(f"{self.config} {self.suite} delta_pts", self.why)
        return self.change


@dataclass(frozen=True, slots=True)
class LengthShift:
    """How long the answers to the accuracy suites are against the baseline's to the same items."""

    config: str
    record: LengthDelta = field(repr=False)

    @property
    def share(self) -> float:
        """Mean generated tokens, candidate / baseline − 1: 0.018 is 1.8 % longer."""
        return self._known("share", self.record.shift)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of ``share``."""
        if self.record.interval is None:
            raise NotMeasured(f"{self.config} length_shift interval", self._why())
        return self.record.interval

    @property
    def tokens(self) -> float:
        """Mean generated tokens of an answer."""
        return self._known("tokens", self.record.tokens)

    @property
    def baseline_tokens(self) -> float:
        """Mean generated tokens of the baseline's answers to the same items."""
        return self._known("baseline_tokens", self.record.baseline_tokens)

    @property
    def answers(self) -> int:
        """How many answers are compared, over all suites and seeds."""
        return self.record.n

    @property
    def truncated(self) -> int:
        """Of these, how many ended at max_tokens on either side: their own ends are not known."""
        return self.record.truncated

    @property
    def validity(self) -> tuple[Reason, ...]:
        """Reasons why the figure decides nothing; empty when it does."""
        return (*self.record.faults, *self.record.doubts)

    def _known(self, name: str, value: float | None) -> float:
        if value is None:
            raise NotMeasured(f"{self.config} length_shift {name}", self._why())
        return value

    def _why(self) -> str:
        return "; ".join(map(str, self.validity)) or "not measured"

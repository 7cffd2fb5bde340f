"""The settings that the search needs, as protocols: the blocks of a spec fit them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class SweepSettings(Protocol):
    """How the highest passing rate is searched; rates in requests per second."""

    @property
    def rates(self) -> Sequence[float] | None:
        """Fixed rates instead of a search."""

    @property
    def start_rps(self) -> float:
        """First rate."""

    @property
    def growth(self) -> float:
        """Factor (> 1) until a window fails."""

    @property
    def bisect_steps(self) -> int:
        """Arithmetic bisections, unless ``resolution`` is given."""

    @property
    def resolution(self) -> float | None:
        """Bisect geometrically until lowest failing / highest passing is at most this (> 1)."""

    @property
    def max_rps(self) -> float:
        """Highest rate tried."""

    @property
    def backoff(self) -> float:
        """Factor (< 1) after a failed confirmation."""

    @property
    def max_backoffs(self) -> int:
        """How often the rate is backed off."""


class MeasurementSettings(Protocol):
    """How long and how often is measured; lengths in seconds."""

    @property
    def warmup_s(self) -> float:
        """Load before the first window."""

    @property
    def window_s(self) -> float:
        """A confirming window."""

    @property
    def search_window_s(self) -> float:
        """A window of the search."""

    @property
    def repeats(self) -> int:
        """Confirming windows; all must pass."""

"""Absolute deadlines: ticks at ``start + k / hz``, whatever the work between them takes."""

from __future__ import annotations

import math


class Pace:
    """Where a schedule of ticks stands. The first one is due at ``start_s``."""

    def __init__(self, start_s: float, hz: float) -> None:
        self._start_s = start_s
        self._hz = hz
        self._tick = 0

    @property
    def due_s(self) -> float:
        """The deadline of the next tick."""
        return self._start_s + self._tick / self._hz

    def skip(self, now_s: float) -> int:
        """Leave out the ticks that a newer one has overtaken, and return their number: none is made up for."""
        newest = math.floor((now_s - self._start_s) * self._hz)
        skipped = max(0, newest - self._tick)
        self._tick += skipped
        return skipped

    def advance(self, now_s: float) -> int:
        """End the tick whose work was done at ``now_s``; return how many passed during that work."""
        self._tick += 1
        passed = max(0, math.floor((now_s - self._start_s) * self._hz) + 1 - self._tick)
        self._tick += passed
        return passed

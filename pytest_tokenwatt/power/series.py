"""Readings over time as arrays, and the two ways to make energy of them.

Between two readings power is taken as linear (and energy as well), so a window edge between them is interpolated.
Nothing is extrapolated: a window needs readings on both sides of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Series:
    """Readings ``values`` at the ascending instants ``at_s``."""

    at_s: Array
    values: Array

    @classmethod
    def of(cls, at_s: Sequence[float], values: Sequence[float]) -> Series:
        """The series of two parallel sequences; shares the memory of arrays."""
        return cls(np.asarray(at_s, dtype=np.float64), np.asarray(values, dtype=np.float64))

    def __len__(self) -> int:
        return len(self.at_s)

    def where(self, mask: npt.NDArray[np.bool_]) -> Series:
        """The readings that ``mask`` picks."""
        return Series(self.at_s[mask], self.values[mask])

    def inside(self, start_s: float, end_s: float) -> Series:
        """The readings in [start_s, end_s)."""
        first, last = np.searchsorted(self.at_s, (start_s, end_s), side="left")
        return Series(self.at_s[first:last], self.values[first:last])

    def around(self, start_s: float, end_s: float) -> Series:
        """The readings from the last one at or before ``start_s`` to the first one at or after ``end_s``."""
        first = max(0, int(np.searchsorted(self.at_s, start_s, side="right")) - 1)
        last = int(np.searchsorted(self.at_s, end_s, side="left")) + 1
        return Series(self.at_s[first:last], self.values[first:last])

    def brackets(self, start_s: float, end_s: float) -> bool:
        """Whether there are readings on both sides of the window."""
        return len(self) > 0 and bool(self.at_s[0] <= start_s and self.at_s[-1] >= end_s)

    def changes(self) -> Series:
        """The first reading of each run of equal ones: when a slowly refreshed value is known to be new."""
        if not len(self):
            return self
        return self.where(np.concatenate(([True], np.diff(self.values) != 0)))

    def at(self, at_s: float) -> float:
        """The value at an instant between two readings, linear in time."""
        return float(np.interp(at_s, self.at_s, self.values))


def trapezoid_j(power: Series, start_s: float, end_s: float) -> float:
    """Energy in J of power samples in W over a window that they bracket: trapezoid rule, both edges interpolated."""
    within = power.where((power.at_s > start_s) & (power.at_s < end_s))
    at_s = np.concatenate(([start_s], within.at_s, [end_s]))
    watts = np.concatenate(([power.at(start_s)], within.values, [power.at(end_s)]))
    return float(np.sum(np.diff(at_s) * (watts[1:] + watts[:-1])) / 2.0)


def counter_j(energy: Series, start_s: float, end_s: float) -> float:
    """Energy in J of a cumulative counter in J over a window that its readings bracket."""
    return energy.at(end_s) - energy.at(start_s)


@dataclass(frozen=True, slots=True)
class Runs:
    """The stretches of equal values of a series, by the instants of their first and last readings."""

    first_s: Array
    last_s: Array

    @classmethod
    def of(cls, at_s: Array, values: Array) -> Runs:
        """The runs of ``values`` at ``at_s``."""
        new = np.diff(values) != 0
        some = np.ones(min(len(values), 1), dtype=np.bool_)
        return cls(at_s[np.concatenate((some, new))], at_s[np.concatenate((new, some))])

    def longest_s(self, start_s: float, end_s: float) -> float:
        """The longest stretch inside a window."""
        return float(np.max(np.minimum(self.last_s, end_s) - np.maximum(self.first_s, start_s), initial=0.0))

    def begun(self, start_s: float, end_s: float) -> int:
        """How many began in [start_s, end_s): values that were new in a window."""
        return int(np.count_nonzero((self.first_s >= start_s) & (self.first_s < end_s)))

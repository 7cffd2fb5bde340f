"""The exact energy of the pretended board along a clock, and what a sensor would have said of it at any instant."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytest_tokenwatt.sim.power import Phase
from pytest_tokenwatt.sim.profile import PowerModel

GPU_IDLE = 0x1
SW_POWER_CAP = 0x4

_EARLIER_J = 1e5
"""Reading of the counter at the start: a driver counts from its own load on, not from the engine's."""

Instants: TypeAlias = NDArray[np.float64]


class EnergyMeter:
    """Cumulative energy and capped time, piecewise linear between knots, from ``start_s`` on.

    Steps are added in order of time. Before, between and behind them the board is idle. Queries take arrays of
    instants (seconds of the same clock) and return arrays of the same shape.
    """

    def __init__(self, model: PowerModel, start_s: float) -> None:
        self._model = model
        self._at_s = array("d", [start_s])
        self._joules = array("d", [_EARLIER_J])
        self._capped_s = array("d", [0.0])
        self._reasons = array("q", [GPU_IDLE])

    def __len__(self) -> int:
        """Number of knots held."""
        return len(self._at_s)

    def add(self, start_s: float, end_s: float, phases: Iterable[Phase]) -> None:
        """A step from ``start_s`` to ``end_s``; where it overlaps what was added before, it begins later."""
        start_s = max(start_s, self._at_s[-1])
        self._extend(start_s, self._model.idle_w, GPU_IDLE)
        at_s = start_s
        for phase in phases:
            at_s += phase.share * (end_s - start_s)
            self._extend(at_s, phase.watts, SW_POWER_CAP if phase.capped else 0)

    def _extend(self, until_s: float, watts: float, reasons: int) -> None:
        seconds = until_s - self._at_s[-1]
        if seconds > 0:
            self._at_s.append(until_s)
            self._joules.append(self._joules[-1] + seconds * watts)
            self._capped_s.append(self._capped_s[-1] + (seconds if reasons & SW_POWER_CAP else 0.0))
            self._reasons.append(reasons)

    def forget(self, before_s: float) -> None:
        """Drop the knots that no query from ``before_s`` on needs."""
        held = int(np.searchsorted(np.array(self._at_s), before_s)) - 1
        if held > 0:
            for column in (self._at_s, self._joules, self._capped_s, self._reasons):
                del column[:held]

    def energy_j(self, at_s: Instants) -> Instants:
        """The energy counter: cumulative joules, never falling."""
        knots_s = np.array(self._at_s)
        outside_s = np.minimum(at_s - knots_s[0], 0) + np.maximum(at_s - knots_s[-1], 0)
        inside_j: Instants = np.interp(at_s, knots_s, np.array(self._joules))
        outside_j: Instants = self._model.idle_w * outside_s
        return inside_j + outside_j

    def watts(self, at_s: Instants) -> Instants:
        """The power sensor: the mean over the ``sensor_average_s`` that end at each instant."""
        average_s = self._model.sensor_average_s
        return (self.energy_j(at_s) - self.energy_j(at_s - average_s)) / average_s

    def capped_ns(self, at_s: Instants) -> NDArray[np.int64]:
        """Cumulative nanoseconds during which the power cap held the board down."""
        capped_s = np.interp(at_s, np.array(self._at_s), np.array(self._capped_s))
        nanoseconds: NDArray[np.int64] = np.rint(capped_s * 1e9).astype(np.int64)
        return nanoseconds

    def reasons(self, at_s: Instants) -> NDArray[np.int64]:
        """NVML's clock-event bits at each instant, of the phase that is under way then."""
        segment = np.searchsorted(np.array(self._at_s), at_s)
        bits: NDArray[np.int64] = np.append(np.array(self._reasons), GPU_IDLE)[segment]
        return bits

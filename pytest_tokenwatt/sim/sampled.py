"""The power trace of a stepped run: what a sampler on the virtual clock would have recorded."""

from __future__ import annotations

import math
from array import array

import numpy as np
from numpy.typing import NDArray

from pytest_tokenwatt.records import ClockAnchor, PowerTrace, SensorInfo, SensorTrace
from pytest_tokenwatt.sim.energy import EnergyMeter, Instants

_COUNTER_HZ = 10.0


def sample(meter: EnergyMeter, info: SensorInfo, until_s: float, hz: float) -> PowerTrace:
    """Samples at ``hz`` from 0 on and one at ``until_s`` itself; the counter likewise, at 10 Hz or more."""
    power_s, counter_s = _grid(until_s, hz), _grid(until_s, max(hz, _COUNTER_HZ))
    sensor = SensorTrace(
        info=info,
        power_s=_doubles(power_s),
        watts=_doubles(meter.watts(power_s)),
        reasons=_integers(meter.reasons(power_s)),
        throttle_ns={"sw_power_cap": _integers(meter.capped_ns(power_s))},
        counter_s=_doubles(counter_s),
        counter_j=_doubles(meter.energy_j(counter_s)),
    )
    return PowerTrace(
        source="simulated",
        kind="board",
        label="simulated GPU board",
        sampling_hz=hz,
        refresh_s=None,
        sensors=(sensor,),
        lateness_ms=array("d", bytes(8 * len(power_s))),
        missed=0,
        events=(),
        anchor=ClockAnchor(0.0, 0.0),
    )


def _grid(until_s: float, hz: float) -> Instants:
    ticks = np.arange(math.ceil(until_s * hz)) / hz
    return np.append(ticks, until_s)


def _doubles(values: Instants) -> array[float]:
    return array("d", values.tobytes())


def _integers(values: NDArray[np.int64]) -> array[int]:
    return array("q", values.tobytes())

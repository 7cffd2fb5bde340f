"""Traces as a sampler would leave them, of a power that is known at every instant."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence

from pytest_tokenwatt.records.base import ClockAnchor, Reason
from pytest_tokenwatt.records.power import PowerEvent, PowerTrace, SensorInfo, SensorTrace

Energy = Callable[[float], float]
"""Joules that were used up to an instant."""


def instants(start_s: float, end_s: float, hz: float) -> list[float]:
    return [start_s + k / hz for k in range(int((end_s - start_s) * hz) + 1)]


def constant(watts: float) -> Energy:
    return lambda at_s: watts * at_s


def square(at_s: float, period_s: float = 7.0, low_w: float = 110.0, high_w: float = 620.0) -> float:
    """Energy of a wave that is high in the first half of each period."""
    periods = math.floor(at_s / period_s)
    rest_s = at_s - periods * period_s
    high_s = min(rest_s, period_s / 2)
    return periods * period_s * (low_w + high_w) / 2 + high_s * high_w + (rest_s - high_s) * low_w


def step(at_s: float, start_s: float, length_s: float, low_w: float = 110.0, high_w: float = 620.0) -> float:
    high_s = min(max(at_s - start_s, 0.0), length_s)
    return low_w * at_s + (high_w - low_w) * high_s


def boxcar(energy: Energy, at_s: float, width_s: float = 1.0) -> float:
    """What a sensor shows that averages the last ``width_s`` seconds."""
    return (energy(at_s) - energy(at_s - width_s)) / width_s


def sensor(
    sensor: str = "GPU-a",
    *,
    power_s: Sequence[float] = (),
    watts: Sequence[float] = (),
    counter_s: Sequence[float] = (),
    counter_j: Sequence[float] = (),
    reasons: Sequence[int] | None = None,
    throttle_ns: dict[str, Sequence[int]] | None = None,
    stamps: Sequence[float] = (),
    limit_w: float | None = 700.0,
    averaging_s: float = 0.0,
) -> SensorTrace:
    return SensorTrace(
        SensorInfo(sensor, limit_w=limit_w, averaging_s=averaging_s),
        power_s=array("d", power_s),
        watts=array("d", watts),
        reasons=array("q", [-1] * len(power_s) if reasons is None else reasons),
        throttle_ns={name: array("q", column) for name, column in (throttle_ns or {}).items()},
        counter_s=array("d", counter_s),
        counter_j=array("d", counter_j),
        stamps=array("d", stamps),
    )


def sampled(name: str, energy: Energy, start_s: float, end_s: float, *, counter: bool = True) -> SensorTrace:
    """A board with a 1 s average read at 1 Hz and an energy counter read at 10 Hz."""
    power_s = instants(start_s, end_s, 1.0)
    counter_s = instants(start_s, end_s, 10.0) if counter else []
    return sensor(
        name,
        power_s=power_s,
        watts=[boxcar(energy, at_s) for at_s in power_s],
        counter_s=counter_s,
        counter_j=[energy(at_s) for at_s in counter_s],
        averaging_s=1.0,
    )


def trace(
    *sensors: SensorTrace,
    hz: float = 1.0,
    refresh_s: float | None = None,
    kind: str = "board",
    source: str = "board",
    events: Sequence[PowerEvent] = (),
) -> PowerTrace:
    return PowerTrace(
        source=source,
        kind=kind,
        label="GPU board power",
        sampling_hz=hz,
        refresh_s=refresh_s,
        sensors=sensors,
        lateness_ms=array("d"),
        missed=0,
        events=tuple(events),
        anchor=ClockAnchor(0.0, 1_796_000_000.0),
    )


def event(
    code: str, at_s: float, until_s: float | None = None, sensor: str | None = "GPU-a", text: str = ""
) -> PowerEvent:
    return PowerEvent(at_s, sensor, Reason(code, text or f"{code} happened"), until_s)

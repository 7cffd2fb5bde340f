"""Throttling in a window: samples with a reason set, and seconds from the driver's own counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_tokenwatt.power.series import Series, counter_j
from pytest_tokenwatt.records.power import HARMLESS_REASONS, REASON_BITS, REASONS_UNKNOWN, SensorTrace

_NANOSECONDS = 1e9
_TOLERANCE = 1.05


@dataclass(frozen=True, slots=True)
class Throttling:
    """``counts`` of samples with each reason set, of ``samples`` whose reasons were read, and ``seconds`` by reason."""

    counts: Mapping[str, int]
    samples: int
    seconds: Mapping[str, float]


def throttling(sensors: Sequence[SensorTrace], start_s: float, end_s: float) -> Throttling:
    """Samples and seconds in [start_s, end_s), added up over the sensors."""
    counts: Counter[str] = Counter()
    samples = 0
    for sensor in sensors:
        reasons = _reasons(sensor, start_s, end_s)
        samples += len(reasons)
        counts.update(_counts(reasons))
    return Throttling(dict(sorted(counts.items())), samples, _seconds(sensors, start_s, end_s))


def _reasons(sensor: SensorTrace, start_s: float, end_s: float) -> npt.NDArray[np.int64]:
    first, last = np.searchsorted(np.asarray(sensor.power_s), (start_s, end_s), side="left")
    reasons = np.asarray(sensor.reasons, dtype=np.int64)[first:last]
    known: npt.NDArray[np.int64] = reasons[reasons != REASONS_UNKNOWN]
    return known


def _counts(reasons: npt.NDArray[np.int64]) -> dict[str, int]:
    seen = int(np.bitwise_or.reduce(reasons)) if len(reasons) else 0
    bits = (1 << place for place in range(seen.bit_length()) if seen >> place & 1)
    named = {bit: REASON_BITS.get(bit, f"unknown_{bit:#x}") for bit in bits}
    return {name: int(np.count_nonzero(reasons & bit)) for bit, name in named.items() if name not in HARMLESS_REASONS}


def _seconds(sensors: Sequence[SensorTrace], start_s: float, end_s: float) -> dict[str, float]:
    """Seconds by reason; a reason that any sensor's counter does not tell plausibly is left out."""
    seconds = {}
    for name in sorted({name for sensor in sensors for name in sensor.throttle_ns}):
        deltas = [_delta_s(sensor, name, start_s, end_s) for sensor in sensors]
        told = [delta for delta in deltas if delta is not None]
        if len(told) == len(deltas):
            seconds[name] = sum(told)
    return seconds


def _delta_s(sensor: SensorTrace, name: str, start_s: float, end_s: float) -> float | None:
    column = sensor.throttle_ns.get(name)
    if column is None:
        return None
    series = Series.of(sensor.power_s, column)
    read = series.where(series.values >= 0)
    if not read.brackets(start_s, end_s):
        return None
    delta_s = counter_j(read, start_s, end_s) / _NANOSECONDS
    return delta_s if 0 <= delta_s <= _TOLERANCE * (end_s - start_s) else None

"""Long power series condensed into bins that hide no peak: mean, smallest and largest of each."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_tokenwatt.report.html.material import PowerSeries, SensorSeries

Floats = NDArray[np.float64]
MOST_BINS = 240
READINGS_A_BIN = 2


@dataclass(frozen=True, slots=True, eq=False)
class Binned:
    """Power of all sensors together in bins of equal length, in W; NaN where a sensor gave nothing.

    ``edges_s`` (shape n + 1) are monotonic seconds; ``mean_w``, ``low_w`` and ``high_w`` (shape n) are sums over
    sensors of each one's mean, smallest and largest reading in the bin. ``ranged`` is false when the readings are
    drawn as they are.
    """

    edges_s: Floats
    middles_s: Floats
    mean_w: Floats
    low_w: Floats
    high_w: Floats
    ranged: bool


def binned(series: PowerSeries) -> Binned | None:
    """The series in at most ``MOST_BINS`` bins; ``None`` without two readings of every sensor."""
    sensors = [_finite(sensor) for sensor in series.sensors]
    if not sensors or any(len(at_s) < 2 for at_s, _ in sensors):
        return None
    start_s, end_s = min(float(at_s[0]) for at_s, _ in sensors), max(float(at_s[-1]) for at_s, _ in sensors)
    fewest = min(len(at_s) for at_s, _ in sensors)
    if end_s <= start_s:
        return None
    if len(sensors) == 1 and fewest <= MOST_BINS:
        at_s, watts = sensors[0]
        # Throttling is shown by edges, readings as they are.
        return Binned(np.linspace(start_s, end_s, fewest), at_s, watts, watts, watts, ranged=False)
    edges_s = np.linspace(start_s, end_s, min(MOST_BINS, max(1, fewest // READINGS_A_BIN)) + 1)
    parts = [_parts(at_s, watts, edges_s) for at_s, watts in sensors]
    mean_w, low_w, high_w = (np.sum([part[which] for part in parts], axis=0) for which in range(3))
    if np.isnan(mean_w).all():
        return None
    return Binned(edges_s, (edges_s[:-1] + edges_s[1:]) / 2, mean_w, low_w, high_w, ranged=True)


def _finite(sensor: SensorSeries) -> tuple[Floats, Floats]:
    at_s, watts = np.array(sensor.at_s, dtype=np.float64), np.array(sensor.watts, dtype=np.float64)
    kept = np.isfinite(watts) & np.isfinite(at_s)
    return at_s[kept], watts[kept]


def _parts(at_s: Floats, watts: Floats, edges_s: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean, smallest and largest of each bin; the last bin holds its upper edge."""
    bounds = np.searchsorted(at_s, edges_s, side="left")
    bounds[-1] = len(at_s)
    starts, counts = bounds[:-1], np.diff(bounds)
    filled = counts > 0
    found = [np.full(len(counts), np.nan) for _ in range(3)]
    if filled.any():
        # Only starts of bins that hold something: between two of them lies exactly what the first one holds.
        at = starts[filled]
        found[0][filled] = np.add.reduceat(watts, at) / counts[filled]
        found[1][filled] = np.minimum.reduceat(watts, at)
        found[2][filled] = np.maximum.reduceat(watts, at)
    return found[0], found[1], found[2]


def shares(series: PowerSeries, reason: str, edges_s: Floats) -> Floats:
    """The share of readings in each bin, over all sensors, that had the throttle ``reason`` set; 0 in empty bins."""
    nothing: array[float] = array("d")
    found = _counted([sensor.throttles.get(reason, nothing) for sensor in series.sensors], edges_s)
    everything = _counted([sensor.at_s for sensor in series.sensors], edges_s)
    share: Floats = np.clip(found / np.maximum(everything, 1.0), 0.0, 1.0)
    return share


def _counted(stamps: Iterable[array[float]], edges_s: Floats) -> Floats:
    counts = [np.histogram(np.array(each, dtype=np.float64), bins=edges_s)[0] for each in stamps]
    total: Floats = np.sum(counts, axis=0, dtype=np.float64)
    return total

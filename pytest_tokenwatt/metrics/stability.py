"""Whether a load is stable: does the queue of requests without a first token grow, is the warm-up level."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from pytest_tokenwatt.metrics.percentiles import Floats
from pytest_tokenwatt.records import InFlight, WindowSpan

BLOCKS = 20
P_LIMIT = 0.01
MIN_GROWTH = 3.0
MIN_GROWTH_SHARE = 0.05
_LEVEL_SHARE = 1 / 3
_LEVEL_BLOCKS = 10


@dataclass(frozen=True, slots=True)
class Trend:
    """A straight line through block means: growth over the whole span, and the one-sided p-value of its slope."""

    growth: float
    p_value: float

    def exceeds(self, limit: float, p_limit: float = P_LIMIT) -> bool:
        """Whether the growth is both significant and above ``limit``."""
        return self.p_value < p_limit and self.growth > limit


def fit_trend(means: Floats) -> Trend:
    """Least squares through three or more equidistant block means; a t-test with n − 2 degrees of freedom."""
    n = len(means)
    x = np.arange(n) - (n - 1) / 2
    spread = float(x @ x)
    slope = float(x @ means) / spread
    residual = means - means.mean() - slope * x
    error = math.sqrt(float(residual @ residual) / (n - 2) / spread)
    if error <= 1e-12 * max(1.0, abs(slope)):
        return Trend(slope * n, 0.0 if slope > 0 else 1.0)
    return Trend(slope * n, float(stdtr(n - 2, -slope / error)))


@dataclass(frozen=True, slots=True)
class Stability:
    """The verdict on one span: ``trend`` of the waiting requests and the growth ``limit`` (requests) it had."""

    trend: Trend
    limit: float

    @property
    def stable(self) -> bool:
        """False when requests without a first token grow significantly and by more than the limit."""
        return not self.trend.exceeds(self.limit)


def population(arrived_s: Floats, left_s: Floats, span: WindowSpan, blocks: int) -> Floats:
    """Mean number present in each of ``blocks`` equal parts of the span.

    Parallel arrays, one entry a request: present from ``arrived_s`` until ``left_s`` (``inf``: still there).
    """
    edges = np.linspace(span.start_s, span.end_s, blocks + 1)
    stay = np.maximum(left_s - arrived_s, 0.0)
    upto = np.array([np.clip(edge - arrived_s, 0.0, stay).sum() for edge in edges])
    return np.diff(upto) / (span.length_s / blocks)


def judge_stability(arrived_s: Floats, answered_s: Floats, ended_s: Floats, span: WindowSpan) -> Stability:
    """The test of a window over all requests of the load, warm-up included.

    Unstable: requests scheduled but without a first token grow, by a one-sided t-test of the slope over ``BLOCKS``
    block means with p < 0.01, and the fitted growth over the span is above max(3, 5 % of the mean in flight).
    ``answered_s`` is the first token or the end without one.
    """
    waiting = population(arrived_s, answered_s, span, BLOCKS)
    in_flight = population(arrived_s, ended_s, span, 1)[0]
    return Stability(fit_trend(waiting), max(MIN_GROWTH, MIN_GROWTH_SHARE * float(in_flight)))


def is_level(now_s: float, in_flight: Sequence[InFlight]) -> bool:
    """Whether requests in flight no longer rise: a trend test over the last third of the readings so far.

    With fewer than three readings in that part there is nothing to test and the load is not level.
    """
    if not in_flight:
        return False
    since_s = now_s - (now_s - in_flight[0].at_s) * _LEVEL_SHARE
    last = np.array([reading.running for reading in in_flight if reading.at_s >= since_s], dtype=np.float64)
    if len(last) < 3:
        return False
    parts = np.array([part.mean() for part in np.array_split(last, min(_LEVEL_BLOCKS, len(last)))])
    return not fit_trend(parts).exceeds(max(MIN_GROWTH, MIN_GROWTH_SHARE * float(last.mean())))

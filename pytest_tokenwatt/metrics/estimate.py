"""How long a measurement will probably take, and how finely it will resolve, before anything runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_tokenwatt.metrics.latency import JUDGED_TOKENS
from pytest_tokenwatt.metrics.percentiles import needed_requests
from pytest_tokenwatt.metrics.search import MAX_LENGTHENING, fixed_rates
from pytest_tokenwatt.metrics.settings import MeasurementSettings, SweepSettings
from pytest_tokenwatt.records import SloBound

ASSUMED_GROWTH_STEPS = 3
"""Passing probes before the first failing one when nothing is known of the engine."""

FAILING_SHARE = 0.5
"""The part of its window that a failing probe needs until it is certain, on average."""


def estimate_s(
    sweep: SweepSettings,
    measurement: MeasurementSettings,
    at_rps: float | None = None,
    *,
    bounds: Sequence[SloBound] = (),
    expected_rps: float | None = None,
) -> float:
    """Seconds of load for one scenario without back-offs.

    ``bounds`` say how many requests a window must hold and how long the load goes on behind it. ``expected_rps`` is a
    guess of the passing rate; without one the search is assumed to pass ``start_rps`` and
    ``ASSUMED_GROWTH_STEPS`` − 1 further rates.
    """
    needed = max((needed_requests(bound.percentile) for bound in bounds), default=1)
    around_s = measurement.warmup_s + tail_s(bounds)
    rates = fixed_rates(sweep, at_rps)
    if rates:
        windows = [_window_s(measurement.window_s, rate, needed) for rate in rates]
        return sum(around_s + measurement.repeats * window_s for window_s in windows)
    steps = _growth_steps(sweep, expected_rps)
    passed = [sweep.start_rps * sweep.growth**step for step in range(steps)]
    grow_s = sum(around_s + _window_s(measurement.search_window_s, rate, needed) for rate in passed)
    broken_s = around_s + FAILING_SHARE * measurement.search_window_s
    # Of the bisections about half pass and last a whole window.
    bisect_s = bisections(sweep) * (around_s + (1 + FAILING_SHARE) / 2 * measurement.search_window_s)
    confirm_s = around_s + measurement.repeats * _window_s(measurement.window_s, passed[-1], needed)
    return grow_s + broken_s + bisect_s + confirm_s


def tail_s(bounds: Sequence[SloBound]) -> float:
    """How long a load at the edge of its SLO goes on behind its last window: until the last requests are judged."""
    first_s = max((bound.bound_ms / 1e3 for bound in bounds if bound.metric == "ttft"), default=1.0)
    token_s = max((bound.bound_ms / 1e3 for bound in bounds if bound.metric in ("tpot", "itl")), default=0.0)
    whole_s = max((bound.bound_ms / 1e3 for bound in bounds if bound.metric == "e2e"), default=0.0)
    return max(first_s + JUDGED_TOKENS * token_s, whole_s)


def bisections(sweep: SweepSettings) -> int:
    """How many probes the bisection takes."""
    if sweep.resolution is None:
        return sweep.bisect_steps
    return max(0, math.ceil(math.log2(math.log(sweep.growth) / math.log(sweep.resolution))))


def resolution_pct(sweep: SweepSettings) -> float:
    """The widest bracket that a search without back-offs can end with, in per cent of the passing rate."""
    if sweep.resolution is not None:
        return 100.0 * (sweep.resolution - 1.0)
    return 100.0 * (sweep.growth - 1.0) / 2.0**sweep.bisect_steps


def _growth_steps(sweep: SweepSettings, expected_rps: float | None) -> int:
    if expected_rps is None:
        return ASSUMED_GROWTH_STEPS
    return max(1, 1 + math.floor(math.log(max(1.0, expected_rps / sweep.start_rps)) / math.log(sweep.growth)))


def _window_s(window_s: float, rate_rps: float, needed: int) -> float:
    return min(max(window_s, needed / rate_rps), MAX_LENGTHENING * window_s)

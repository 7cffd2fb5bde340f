from __future__ import annotations

import math

import numpy as np
import pytest
from metrics_builders import readings

from pytest_tokenwatt.metrics.percentiles import Floats
from pytest_tokenwatt.metrics.stability import fit_trend, is_level, judge_stability, population
from pytest_tokenwatt.records import InFlight, WindowSpan

RATE_RPS = 10.0
WARMUP_S = 45.0
SIGMA = math.log(4) / 1.28155


def arrivals(rate_rps: float, span_s: float, generator: np.random.Generator) -> Floats:
    return np.sort(generator.uniform(0, span_s, generator.poisson(rate_rps * span_s)))


def queue(arrived: Floats, service: Floats) -> Floats:
    """When a single first-come server has each request's first token."""
    answered = np.empty_like(arrived)
    free_s = 0.0
    for number, (at_s, takes_s) in enumerate(zip(arrived, service, strict=True)):
        free_s = max(free_s, at_s) + takes_s
        answered[number] = free_s
    return answered


def first_tokens(draw: str, arrived: Floats, generator: np.random.Generator) -> Floats:
    n = len(arrived)
    if draw == "ttft":
        return arrived + np.exp(generator.normal(math.log(0.35), 0.6, n))
    if draw == "exponential":
        return arrived + generator.exponential(1.0, n)
    constant = draw == "queue"
    return queue(arrived, np.full(n, 1 / RATE_RPS) if constant else generator.exponential(1 / RATE_RPS, n))


def alarms(draw: str, windows: int, window_s: float, rate_rps: float) -> int:
    """How many windows behind the warm-up are called unstable when first tokens come as ``draw`` says."""
    generator = np.random.default_rng(17)
    span = WindowSpan(WARMUP_S, WARMUP_S + window_s)
    found = 0
    for _ in range(windows):
        arrived = arrivals(rate_rps, span.end_s, generator)
        answered = first_tokens(draw, arrived, generator)
        ended = answered + np.exp(generator.normal(math.log(256), SIGMA, len(arrived))) * 0.04
        found += not judge_stability(arrived, answered, ended, span).stable
    return found


@pytest.mark.parametrize("draw", ["ttft", "exponential"])
@pytest.mark.parametrize("window_s", [60.0, 120.0])
def test_a_healthy_population_gives_less_than_one_alarm_in_a_hundred(draw: str, window_s: float) -> None:
    assert alarms(draw, 1000, window_s, RATE_RPS) < 10


@pytest.mark.parametrize("draw", ["queue", "random queue"])
def test_a_queue_ten_per_cent_above_capacity_is_found(draw: str) -> None:
    assert alarms(draw, 200, 120.0, 1.1 * RATE_RPS) >= 190


def test_a_queue_far_above_capacity_is_always_found() -> None:
    assert alarms("random queue", 50, 60.0, 1.5 * RATE_RPS) == 50


def test_small_growth_is_no_instability_however_significant() -> None:
    arrived = np.arange(0.0, 60.0, 0.5)
    answered = arrived + 0.1 + arrived / 60.0
    verdict = judge_stability(arrived, answered, answered, WindowSpan(0.0, 60.0))
    assert verdict.trend.p_value < 0.01
    assert verdict.trend.growth < 3
    assert verdict.stable


def test_the_limit_grows_with_the_requests_in_flight() -> None:
    arrived = np.arange(0.0, 60.0, 0.1)
    verdict = judge_stability(arrived, arrived + 0.1, arrived + 1000.0, WindowSpan(0.0, 60.0))
    assert verdict.limit == pytest.approx(0.05 * 300, rel=0.05)


def test_requests_that_never_answer_are_waiting() -> None:
    arrived = np.arange(0.0, 60.0, 1.0)
    never = np.full(60, math.inf)
    verdict = judge_stability(arrived, never, never, WindowSpan(0.0, 60.0))
    assert not verdict.stable
    assert verdict.trend.growth == pytest.approx(60, rel=0.02)


def test_population_is_the_mean_number_present() -> None:
    arrived, left = np.array([0.0, 5.0, 30.0]), np.array([10.0, math.inf, 31.0])
    assert population(arrived, left, WindowSpan(0.0, 20.0), 2) == pytest.approx([1.5, 1.0])


@pytest.mark.parametrize(("slope", "p_value"), [(1.0, 0.0), (0.0, 1.0), (-1.0, 1.0)])
def test_a_straight_line_has_no_doubt(slope: float, p_value: float) -> None:
    trend = fit_trend(slope * np.arange(10.0))
    assert trend.growth == pytest.approx(10 * slope)
    assert trend.p_value == p_value


def test_the_t_test_agrees_with_a_textbook_value() -> None:
    """y = 1, 3, 2, 5, 4: slope 0.8, SE 0.34641, t 2.3094 with 3 degrees of freedom, one-sided p 0.0520."""
    trend = fit_trend(np.array([1.0, 3.0, 2.0, 5.0, 4.0]))
    assert trend.growth == pytest.approx(4.0)
    assert trend.p_value == pytest.approx(0.0520, abs=5e-4)


def test_the_warm_up_is_level_when_its_last_third_is() -> None:
    filling = [100 * (1 - math.exp(-second / 10)) for second in range(90)]
    assert not is_level(20.0, readings(filling[:21]))
    assert is_level(89.0, readings(filling))


@pytest.mark.parametrize("counts", [[], [1.0], [1.0, 1.0]])
def test_too_few_readings_are_not_level(counts: list[float]) -> None:
    assert not is_level(60.0, readings(counts))


def test_a_falling_load_is_level() -> None:
    assert is_level(59.0, readings([100.0 - second for second in range(60)]))


def test_an_idle_load_is_level() -> None:
    assert is_level(59.0, [InFlight(float(second), 0, 0) for second in range(60)])

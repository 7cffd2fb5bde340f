from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.metrics.percentiles import (
    Sample,
    allowed_misses,
    lower_rank,
    nearest_rank,
    needed_requests,
    upper_rank,
)

PERCENTILES = st.one_of(st.sampled_from([50.0, 90.0, 95.0, 99.0, 99.9, 99.99]), st.floats(0.1, 99.9, allow_nan=False))
LATENCIES = st.lists(st.one_of(st.floats(0, 1e4), st.just(math.inf)), min_size=1, max_size=80)


@pytest.mark.parametrize(
    ("percentile", "needed"), [(50, 2), (90, 10), (95, 20), (99, 100), (99.9, 1000), (99.99, 10_000), (33.3, 2)]
)
def test_a_percentile_needs_enough_requests_not_to_be_the_maximum(percentile: float, needed: int) -> None:
    assert needed_requests(percentile) == needed


@pytest.mark.parametrize(
    ("percentile", "n", "rank"),
    [
        (99, 100, 99),
        (99, 101, 100),
        (99.9, 1000, 999),
        (50, 1, 1),
        (50, 4, 2),
        (95, 20, 19),
        (0.1, 5, 1),
        (29, 100, 29),
    ],
)
def test_nearest_rank_is_exact(percentile: float, n: int, rank: int) -> None:
    assert nearest_rank(percentile, n) == rank


@pytest.mark.parametrize("percentile", [0, 100, -1, 101, math.nan])
def test_there_is_no_percentile_outside_its_range(percentile: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 100"):
        nearest_rank(percentile, 10)


def test_a_p99_of_200_allows_two_misses() -> None:
    assert [allowed_misses(99, n) for n in (0, 99, 100, 199, 200)] == [0, 0, 1, 1, 2]


def test_a_finite_upper_end_of_p99_needs_368_requests_two_sided_and_299_one_sided() -> None:
    assert (upper_rank(99, 367), upper_rank(99, 368)) == (None, 368)
    assert (upper_rank(99, 298, tail=0.05), upper_rank(99, 299, tail=0.05)) == (None, 299)


def test_the_interval_of_a_median_of_ten_is_its_second_and_ninth_observation() -> None:
    assert (lower_rank(50, 10), upper_rank(50, 10)) == (2, 9)


def test_failures_are_the_slowest_requests() -> None:
    sample = Sample.of([1.0, math.inf, 2.0, math.inf])
    assert (sample.percentile(50), sample.percentile(75), sample.above(2.0)) == (2.0, math.inf, 2)


def test_an_empty_sample_has_no_percentile() -> None:
    assert Sample.of([]).percentile(50) is None
    assert Sample.of([]).interval(50) == (None, None)
    assert Sample.pooled([]).n == 0


def test_weights_are_repeated_observations() -> None:
    weighted = Sample.weighted(np.array([3.0, 1.0]), np.array([2, 98]), 10)
    assert (weighted.n, weighted.percentile(98), weighted.percentile(99)) == (100, 1.0, 3.0)
    assert weighted.above(1.0) == 2


def test_replicas_of_one_schedule_do_not_narrow_the_interval() -> None:
    draws = np.random.default_rng(3).exponential(size=400)
    one = Sample.of(draws)
    twice = Sample.pooled([one, one], replicas=2)
    assert twice.n == 800
    assert twice.interval(99) == one.interval(99)
    assert Sample.pooled([one, one]).interval(99) != one.interval(99)


def test_intervals_cover_the_true_quantile_in_95_of_100_samples() -> None:
    generator = np.random.default_rng(11)
    true = -math.log(1 - 0.95)
    covered = 0
    for _ in range(2000):
        low, high = Sample.of(generator.exponential(size=250)).interval(95)
        covered += (low or 0.0) <= true <= (math.inf if high is None else high)
    assert 0.945 <= covered / 2000 <= 0.99


@given(LATENCIES, PERCENTILES, PERCENTILES)
def test_percentiles_rise_with_their_rank(values: list[float], one: float, other: float) -> None:
    sample = Sample.of(values)
    low, high = sample.percentile(min(one, other)), sample.percentile(max(one, other))
    assert low is not None
    assert high is not None
    assert low <= high


@given(LATENCIES, PERCENTILES)
def test_a_percentile_meets_a_bound_exactly_when_few_enough_miss_it(values: list[float], percentile: float) -> None:
    sample = Sample.of(values)
    for bound in values[:5]:
        value = sample.percentile(percentile)
        assert value is not None
        assert (value <= bound) == (sample.above(bound) <= allowed_misses(percentile, sample.n))


@given(LATENCIES, PERCENTILES, st.integers(1, 10))
def test_more_failures_never_lower_a_percentile(values: list[float], percentile: float, failures: int) -> None:
    before, after = Sample.of(values).percentile(percentile), Sample.of(values + [math.inf] * failures)
    assert before is not None
    assert (after.percentile(percentile) or 0.0) >= before


@given(LATENCIES, PERCENTILES)
def test_an_interval_holds_its_percentile(values: list[float], percentile: float) -> None:
    sample = Sample.of(values)
    low, high = sample.interval(percentile)
    value = sample.percentile(percentile)
    assert value is not None
    assert low is None or low <= value
    assert high is None or high >= value

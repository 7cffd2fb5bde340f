"""Percentiles that another tool's figures settle: failed requests count as never answered, cut-off ones as slowest."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.store.tools.known import percentiles
from pytest_tokenwatt.store.tools.tool_run import Latency, ToolWindow


def window(latency: Latency, finished: int, failed: int = 0, cut: int = 0, metric: str = "ttft") -> ToolWindow:
    return ToolWindow("x", 1.0, None, None, 10.0, finished, failed, cut, 10, 10, None, {metric: latency}, None)


def settled(latency: Latency, finished: int, failed: int = 0, cut: int = 0) -> dict[str, tuple[float | None, bool]]:
    found = percentiles(window(latency, finished, failed, cut))
    return {percentile.name: (percentile.value_ms, percentile.infinite) for percentile, _ in found}


def sample(n: int) -> Latency:
    return Latency(sample=tuple(float(value) for value in range(1, n + 1)))


def test_a_sample_gives_nearest_ranks() -> None:
    found = settled(sample(1000), 1000)
    assert found["ttft_p50_ms"] == (500.0, False)
    assert found["ttft_p99_ms"] == (990.0, False)
    assert found["ttft_p99.9_ms"] == (999.0, False)


def test_failed_requests_of_a_sample_are_infinite() -> None:
    assert settled(sample(995), 995, failed=5)["ttft_p99_ms"] == (990.0, False)
    assert settled(sample(989), 989, failed=11)["ttft_p99_ms"] == (None, True)


def test_requests_that_were_cut_off_count_as_slowest_and_are_never_called_failed() -> None:
    assert settled(sample(995), 995, cut=5)["ttft_p99_ms"] == (990.0, False)
    assert settled(sample(980), 980, cut=20)["ttft_p99_ms"] == (None, False)


def test_percentiles_over_survivors_are_known_only_when_all_survived() -> None:
    told = Latency({99.0: 40.0})
    assert settled(told, 1000)["ttft_p99_ms"] == (40.0, False)
    assert settled(told, 999, failed=1)["ttft_p99_ms"] == (None, False)
    assert settled(told, 999, cut=1)["ttft_p99_ms"] == (None, False)
    assert settled(told, 980, failed=20)["ttft_p99_ms"] == (None, True)


def test_percentiles_that_count_failed_requests_are_used_when_some_failed() -> None:
    told = Latency({90.0: 40.0, 95.0: 50.0}, with_failed={90.0: 44.0})
    assert settled(told, 93, failed=7)["ttft_p90_ms"] == (44.0, False)
    assert settled(told, 93, failed=7)["ttft_p95_ms"] == (None, True)
    assert settled(told, 100)["ttft_p90_ms"] == (40.0, False)


@pytest.mark.parametrize(("n", "known"), [(99, False), (100, True)])
def test_a_percentile_needs_enough_requests(n: int, known: bool) -> None:
    [(percentile, figure)] = percentiles(window(Latency({99.0: 40.0}), n))
    assert (percentile.value_ms is not None) is known
    assert figure.reason == (None if known else "99 requests do not resolve it; 100 are needed")


def test_gaps_between_tokens_are_unknown_once_a_request_failed() -> None:
    told = Latency({50.0: 5.0}, by_request=False)
    assert settled(told, 100)["ttft_p50_ms"] == (5.0, False)
    assert settled(told, 100, failed=1)["ttft_p50_ms"] == (None, False)


@given(
    st.lists(st.floats(0.1, 1e6), min_size=1, max_size=300),
    st.integers(0, 20),
    st.integers(0, 20),
    st.sampled_from([50.0, 90.0, 95.0, 99.0, 99.9]),
)
def test_a_settled_value_is_that_of_the_whole_sample_with_the_lost_at_infinity(
    values: list[float], failed: int, cut: int, percentile: float
) -> None:
    told = Latency(sample=tuple(sorted(values)))
    value, infinite = settled(told, len(values), failed, cut)[f"ttft_p{percentile:g}_ms"]
    whole = sorted([*values, *[math.inf] * (failed + cut)])
    wanted = whole[math.ceil(round(percentile * len(whole), 6) / 100) - 1]
    assert value is None or value == wanted
    assert not infinite or wanted == math.inf

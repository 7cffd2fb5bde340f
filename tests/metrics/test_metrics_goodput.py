from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metrics_builders import plan, poisson, request, run_of

from pytest_tokenwatt.metrics.client import WindowRules
from pytest_tokenwatt.metrics.goodput import (
    aggregate,
    goodput_ratio_error,
    is_measurable,
    variance_band_pct,
)
from pytest_tokenwatt.metrics.search import SearchResult
from pytest_tokenwatt.metrics.spread import spread_pct
from pytest_tokenwatt.metrics.window import judge_run
from pytest_tokenwatt.records import GoodputRecord, Reason, SloBound

BOUNDS = (SloBound("ttft", 90, 2000), SloBound("tpot", 90, 50))
RULES = WindowRules(BOUNDS)
NOTHING = SearchResult(None, None, None, "none", 0, (), ("TPOT p90 61 ms > 50 ms",), (), ())


def record(
    tok_s: float | None = 4000.0, error_pct: float | None = None, band_pct: float | None = None
) -> GoodputRecord:
    empty = aggregate(
        scenario="default", mode="search", bounds=BOUNDS, repeats=2, result=NOTHING, samples=(), windows=()
    )
    return replace(empty, goodput_tok_s=tok_s, rate_rps=10.0, error_pct=error_pct, variance_band_pct=band_pct)


def test_the_reference_reads_as_no_measurable_difference() -> None:
    """4515.0 to 4522.8 tok/s is +0.17 %, inside a band of 0.7 %."""
    baseline, candidate = record(4515.0), record(4522.8)
    ratio = 4522.8 / 4515.0
    assert 100 * (ratio - 1) == pytest.approx(0.17, abs=0.005)
    assert not is_measurable(ratio, goodput_ratio_error(candidate, baseline, 0.7))


def test_the_other_reference_is_measurable() -> None:
    assert is_measurable(5056.9 / 4572.3, goodput_ratio_error(record(5056.9), record(4572.3), 1.0))


def test_the_error_of_a_ratio_is_the_largest_of_its_parts() -> None:
    assert goodput_ratio_error(record(error_pct=2.0), record(error_pct=5.0), 1.0) == pytest.approx(0.05)
    assert goodput_ratio_error(record(error_pct=2.0), record(), None) == pytest.approx(0.02)
    assert goodput_ratio_error(record(), record(), None) is None
    assert not is_measurable(2.0, None)


@pytest.mark.parametrize(
    ("values", "band"),
    [
        ([100.0, 102.0], 200 / 101),
        ([4.0, 4.0], 0.0),
        ([5.0], None),
        ([], None),
        ([5.0, None], None),
        ([0.0, 0.0], None),
    ],
)
def test_the_spread_over_repeats(values: list[float | None], band: float | None) -> None:
    assert spread_pct(values) == (None if band is None else pytest.approx(band))


def test_the_band_is_the_widest_of_all_configurations() -> None:
    assert variance_band_pct([record(band_pct=0.4), record(band_pct=1.9), record()]) == pytest.approx(1.9)
    assert variance_band_pct([record()]) is None


def test_a_repeated_baseline_widens_the_band() -> None:
    first, again = record(4000.0, band_pct=0.5), record(3900.0)
    assert variance_band_pct([first, again], [(first, again)]) == pytest.approx(2.5)
    assert variance_band_pct([first], [(first, record(None))]) == pytest.approx(0.5)


def confirmed(slow: int = 0) -> GoodputRecord:
    offsets = poisson(4.0, 60.0, 2)
    both = [*offsets, *[60.0 + offset for offset in offsets]]
    served = [request(offset, index=index, ttft_s=2.5 if index < slow else 0.1) for index, offset in enumerate(both)]
    load = plan(both, window_s=60.0, windows=2, rate_rps=4.0, label="confirm-3")
    judged = judge_run(run_of(load, served), "confirm", RULES)
    windows = tuple(window.result for window in judged)
    result = SearchResult(4.0, 4.0, 4.4, "closed", 1, windows, (), (), ("noted",))
    return aggregate(
        scenario="chat",
        mode="search",
        bounds=BOUNDS,
        repeats=2,
        result=result,
        samples=[window.samples for window in judged],
        windows=windows,
        notes=("also",),
    )


def test_a_confirmed_rate_becomes_a_record() -> None:
    found = confirmed()
    assert (found.rate_rps, found.slo_pass_count, found.repeats, found.backoffs) == (4.0, 2, 2, 1)
    assert found.error_pct == pytest.approx(10.0)
    assert found.variance_band_pct == pytest.approx(0.0, abs=1.0)
    assert found.notes == ("noted", "also")
    assert found.figures["ttft_p90_ms"].value == pytest.approx(100)
    assert found.figures["ttft_from_send_p50_ms"].value == pytest.approx(100)
    assert found.figures["requests"].value == sum(window.planned for window in found.windows)


def test_goodput_is_less_than_output_when_requests_miss() -> None:
    found = confirmed(slow=10)
    assert found.goodput_tok_s is not None
    assert found.output_tok_s is not None
    assert found.output_tok_s - found.goodput_tok_s == pytest.approx(10 * 11 / 120)


def test_an_invalid_measurement_has_no_goodput() -> None:
    result = replace(NOTHING, invalid=(Reason("client_cpu", "a worker used 97 % of a core"),), misses=())
    found = aggregate(scenario="x", mode="search", bounds=BOUNDS, repeats=2, result=result, samples=(), windows=())
    assert found.goodput_tok_s is None
    assert found.figures["rate_rps"].reason == "client_cpu: a worker used 97 % of a core"
    assert found.figures["requests"].value is None


@given(st.lists(st.floats(1.0, 1e5), min_size=2, max_size=5), st.floats(1.01, 3.0))
def test_the_spread_does_not_depend_on_the_unit(values: list[float], factor: float) -> None:
    assert spread_pct([value * factor for value in values]) == pytest.approx(spread_pct(list(values)), abs=1e-6)

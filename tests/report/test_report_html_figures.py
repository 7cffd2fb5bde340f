"""What figures draw of long raw series: nothing that matters is condensed away."""

from __future__ import annotations

import math
from array import array

import numpy as np
import pytest
from html_samples import probe, sample, serving
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_tokenwatt.report.html.material import Material, PowerSeries, SensorSeries, Serving
from pytest_tokenwatt.report.html.page import Page
from pytest_tokenwatt.report.html.plots.bins import MOST_BINS, Binned, binned, shares
from pytest_tokenwatt.report.html.plots.rates import rate_picture
from pytest_tokenwatt.report.html.plots.scales import MOST_TICKS, ticks_between
from pytest_tokenwatt.report.html.plots.spread import MOST_STEPS, quantiles
from pytest_tokenwatt.report.html.words import clean, figure, interval, measured, shortened, with_unit

WATTS = st.floats(0, 1500, width=32)


def series(*boards: tuple[list[float], list[float]], throttled: tuple[float, ...] = ()) -> PowerSeries:
    sensors = tuple(
        SensorSeries(f"GPU-{place}", array("d", at_s), array("d", watts), {"hw_slowdown": array("d", throttled)})
        for place, (at_s, watts) in enumerate(boards)
    )
    return PowerSeries("tuned", "board", "boards", 10.0, sensors)


def bins_of(*boards: tuple[list[float], list[float]]) -> Binned:
    found = binned(series(*boards))
    assert found is not None
    return found


@given(st.lists(WATTS, min_size=2, max_size=3000))
@settings(max_examples=40, deadline=None)
def test_no_peak_of_power_is_lost(watts: list[float]) -> None:
    found = bins_of(([0.1 * place for place in range(len(watts))], watts))
    assert float(np.nanmax(found.high_w)) == max(watts)
    assert float(np.nanmin(found.low_w)) == min(watts)
    assert len(found.mean_w) <= MOST_BINS
    tiny = 1e-9 * max(watts) + 1e-12
    assert (found.low_w - tiny <= found.mean_w).all()
    assert (found.mean_w <= found.high_w + tiny).all()


def test_power_of_several_boards_is_summed() -> None:
    at_s = [place / 10 for place in range(4000)]
    found = bins_of((at_s, [300.0] * 4000), (at_s, [400.0] * 3999 + [700.0]))
    assert found.ranged
    assert found.mean_w[0] == pytest.approx(700.0)
    assert found.high_w[-1] == pytest.approx(1000.0)
    assert found.low_w[-1] == pytest.approx(700.0)


def test_a_silent_board_leaves_a_gap_and_not_a_dip() -> None:
    at_s = [place / 10 for place in range(4000)]
    quiet = [at for at in at_s if not 100 <= at < 200]
    found = bins_of((at_s, [300.0] * len(at_s)), (quiet, [300.0] * len(quiet)))
    inside = found.mean_w[(found.middles_s > 105) & (found.middles_s < 195)]
    assert np.isnan(inside).all()
    assert np.nanmin(found.mean_w) == pytest.approx(600.0)


def test_few_readings_are_drawn_as_they_are() -> None:
    found = bins_of(([0.0, 1.0, 2.0, 3.0], [10.0, math.nan, 30.0, 20.0]))
    assert not found.ranged
    assert found.mean_w.tolist() == [10.0, 30.0, 20.0]


@pytest.mark.parametrize(
    "boards", [[], [([], [])], [([1.0], [5.0])], [([1.0, 1.0], [5.0, 6.0])], [([1.0, 2.0], [math.nan] * 2)]]
)
def test_too_few_readings_are_no_figure(boards: list[tuple[list[float], list[float]]]) -> None:
    assert binned(series(*boards)) is None


def test_the_share_of_throttled_readings_is_of_all_boards() -> None:
    at_s = [float(place) for place in range(10)]
    both = series((at_s, [1.0] * 10), (at_s, [1.0] * 10), throttled=(0.0, 1.0, 2.0, 3.0, 4.0))
    half = np.array([0.0, 5.0, 10.0])
    assert shares(both, "hw_slowdown", half).tolist() == [1.0, 0.0]
    assert shares(both, "never", half).tolist() == [0.0, 0.0]


@given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=4000), st.integers(0, 50))
@settings(max_examples=40, deadline=None)
def test_curves_keep_both_ends_and_count_failed_requests(values: list[float], failed: int) -> None:
    latencies, found = quantiles(sample(values, failed))
    assert latencies[0] == min(values)
    assert latencies[-1] == max(values)
    assert found[-1] == pytest.approx(len(values) / (len(values) + failed))
    assert len(latencies) <= MOST_STEPS + 2
    assert (np.diff(latencies) >= 0).all()
    assert (np.diff(found) > 0).all()


def test_the_tail_of_a_curve_is_finer_than_its_body() -> None:
    latencies, _ = quantiles(sample(np.arange(1.0, 100_001.0)))
    assert sum(latencies > 95_000) > sum((latencies > 45_000) & (latencies < 50_000)) * 5


@given(st.floats(1e-6, 1e9), st.floats(1.0, 1e6))
@settings(max_examples=200, deadline=None)
def test_an_axis_has_a_handful_of_ticks(low: float, factor: float) -> None:
    high = low * max(factor, 2.0)
    found = ticks_between(low, high)
    assert 1 <= len(found) <= MOST_TICKS
    assert found == sorted(found)
    assert all(low <= tick <= high * (1 + 1e-9) for tick in found)


def described(*served: Serving, metric: str = "ttft") -> str:
    page = Page({}, Material(serving=served))
    picture = rate_picture(page, "default", metric, 99.0, served)
    assert picture is not None
    return picture.svg + picture.caption


def test_a_probe_whose_requests_failed_is_drawn_at_the_edge() -> None:
    drawn = described(serving("tuned", probes=(probe(4.0, "pass", 200.0), probe(16.0, "fail", None))))
    assert "↑" in drawn
    assert "no finite value" in drawn
    assert "SLO 2,000 ms" in drawn
    assert "↑" not in described(serving("tuned", probes=(probe(4.0, "pass", 200.0),)))


def test_a_metric_that_no_probe_has_is_no_figure() -> None:
    page = Page({}, Material(serving=(serving("tuned"),)))
    assert rate_picture(page, "default", "itl", 99.0, page.material.serving) is None


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "–"),
        (0.0, "0"),
        (5056.9, "5,057"),
        (43.7, "43.7"),
        (-8.0, "−8"),
        (0.0097, "0.0097"),
        (3.2e-05, "3.2e-05"),
    ],
)
def test_numbers_read_well(value: float | None, written: str) -> None:
    assert figure(value) == written


def test_units_and_intervals_read_well() -> None:
    assert measured(1.1059, 0.0234, "ratio") == "1.11 ± 0.0234 ×"
    assert measured(0.1, None, "share") == "10 %"
    assert measured(0.1, 0.02, "share") == "10 ± 2 %"
    assert with_unit(0.5, "pt", sign=True) == "+0.5 pt"
    assert interval(27.1, None) == "[27.1, …]"
    assert interval(None, None) == ""


@given(st.text(st.characters(codec=None), max_size=60))
def test_cleaned_text_can_be_written_and_read(text: str) -> None:
    assert clean(text).encode("utf-8")[:0] == b""
    assert len(clean(text)) == len(text)
    assert not any(ord(letter) < 32 and letter not in "\t\n\r" for letter in clean(text))
    assert len(shortened(text, 10)) <= 10

"""Energy of a window: known answers, and every reason for which there is none."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from power_traces import boxcar, constant, event, instants, sampled, sensor, square, step, trace

from pytest_tokenwatt.power.integrate import idle_power, window_power
from pytest_tokenwatt.power.series import Series, counter_j, trapezoid_j
from pytest_tokenwatt.records.power import PowerTrace, SensorTrace, WindowPower

phases = st.floats(0.0, 7.0)


def codes(window: WindowPower) -> list[str]:
    return [reason.code for reason in window.invalid]


def energy_j(window: WindowPower) -> float:
    assert window.energy_j is not None, window.invalid
    return window.energy_j


def steady(seconds: float = 80.0, power_w: float = 400.0, **changes: Any) -> SensorTrace:
    """1 Hz samples and a 10 Hz counter from 0 on; the watts flicker by a milliwatt, as those of a live sensor do."""
    power_s = instants(0.0, seconds, 1.0)
    counter_s = instants(0.0, seconds, 10.0)
    fields = {
        "power_s": power_s,
        "watts": [power_w + 0.001 * (k % 2) for k in range(len(power_s))],
        "counter_s": counter_s,
        "counter_j": [1000.0 + power_w * at_s for at_s in counter_s],
    }
    return sensor(**{**fields, **changes})


def without_counter(**changes: Any) -> SensorTrace:
    return steady(**{"counter_s": (), "counter_j": (), **changes})


# --- known answers -------------------------------------------------------------------------------------------------


@given(phase_s=phases, grid_s=st.floats(0.0, 1.0))
def test_a_square_wave_is_met_by_both_paths(phase_s: float, grid_s: float) -> None:
    """7 s square wave, 110 to 620 W, as a 1 s average; 60 s off the grid inside a longer load."""
    start_s, end_s = 20.37 + phase_s, 80.37 + phase_s
    truth_j = square(end_s) - square(start_s)
    by_counter = window_power(trace(sampled("GPU-a", square, grid_s, 110.0)), start_s, end_s)
    by_samples = window_power(trace(sampled("GPU-a", square, grid_s, 110.0, counter=False)), start_s, end_s)
    assert by_counter.method == "energy_counter"
    assert energy_j(by_counter) == pytest.approx(truth_j, rel=0.001)
    assert by_samples.method == "trapezoid"
    assert energy_j(by_samples) == pytest.approx(truth_j, rel=0.01)
    assert by_counter.cross_check_j == by_samples.energy_j


def test_an_average_that_is_not_known_to_be_one_comes_half_a_second_late() -> None:
    """Why ``averaging_s`` exists: without it the same samples miss the wave by more than 1 %."""

    def off(averaging_s: float, start_s: float) -> float:
        power_s = instants(0.0, 110.0, 1.0)
        watts = [boxcar(square, at_s) for at_s in power_s]
        one = sensor(power_s=power_s, watts=watts, averaging_s=averaging_s)
        truth_j = square(start_s + 60.0) - square(start_s)
        return abs(energy_j(window_power(trace(one), start_s, start_s + 60.0)) / truth_j - 1.0)

    starts_s = [20.37 + 0.1 * k for k in range(70)]
    assert max(off(0.0, start_s) for start_s in starts_s) > 0.01
    assert max(off(1.0, start_s) for start_s in starts_s) < 0.01


def test_mean_power_times_time_misses_a_step_that_fills_the_window() -> None:
    worst = {"mean": 0.0, "trapezoid": 0.0, "counter": 0.0}
    for k in range(50):
        start_s, end_s = 30.0 + k / 50.0, 40.0 + k / 50.0

        def energy(at_s: float, start_s: float = start_s) -> float:
            return step(at_s, start_s, 10.0)

        truth_j = 6200.0
        one = sampled("GPU-a", energy, 0.0, 80.0)
        inside = [w for at_s, w in zip(one.power_s, one.watts, strict=True) if start_s <= at_s < end_s]
        mean_j = sum(inside) / len(inside) * 10.0
        window = window_power(trace(one), start_s, end_s)
        assert window.cross_check_j is not None
        for name, found_j in (("mean", mean_j), ("trapezoid", window.cross_check_j), ("counter", energy_j(window))):
            worst[name] = max(worst[name], abs(found_j / truth_j - 1.0))
    assert 0.075 < worst["mean"] < 0.085
    # The average smears part of each edge out of the window, whatever is made of it: hence load beyond both edges.
    assert worst["trapezoid"] < 0.0425
    assert worst["counter"] < 0.005


@pytest.mark.parametrize(("tok_s", "kw", "tok_j"), [(4572.3, 0.637, 7.178), (5056.9, 0.616, 8.209)])
def test_the_published_tokens_per_joule_come_out(tok_s: float, kw: float, tok_j: float) -> None:
    window = window_power(trace(steady(400.0, 1000.0 * kw)), 50.5, 350.5)
    assert energy_j(window) / 300.0 / 1000.0 == pytest.approx(kw, abs=1e-6)
    assert tok_s * 300.0 / energy_j(window) == pytest.approx(tok_j, abs=5e-4)


def test_the_published_gain_comes_out() -> None:
    before, after = (energy_j(window_power(trace(steady(400.0, w)), 50.5, 350.5)) for w in (637.0, 616.0))
    assert (5056.9 / after) / (4572.3 / before) - 1.0 == pytest.approx(0.144, abs=5e-4)


def test_two_boards_add_up_whatever_path_each_takes() -> None:
    both = trace(steady(), without_counter(sensor="GPU-b", watts=[200.0 + k % 3 for k in range(81)]))
    window = window_power(both, 10.5, 70.5)
    assert energy_j(window) == pytest.approx(60.0 * (400.0 + 201.0), rel=1e-3)
    assert window.method == "mixed"
    assert window.samples == 120
    assert window.sensors == 2
    assert window.cross_check_j is None


# --- properties ----------------------------------------------------------------------------------------------------

gaps = st.lists(st.floats(0.1, 3.0), min_size=30, max_size=60)
watts = st.floats(50.0, 700.0)


def at(gaps: list[float]) -> list[float]:
    at_s = [0.0]
    for gap in gaps:
        at_s.append(at_s[-1] + gap)
    return at_s


@given(gaps=gaps, data=st.data())
def test_the_trapezoid_is_exact_for_piecewise_linear_power_and_additive(gaps: list[float], data: st.DataObject) -> None:
    at_s = at(gaps)
    values = data.draw(st.lists(watts, min_size=len(at_s), max_size=len(at_s)))
    series = Series.of(at_s, values)
    cuts = sorted(data.draw(st.lists(st.floats(0.0, at_s[-1]), min_size=3, max_size=3)))
    whole = trapezoid_j(series, cuts[0], cuts[2])
    assert trapezoid_j(series, cuts[0], cuts[1]) + trapezoid_j(series, cuts[1], cuts[2]) == pytest.approx(whole)
    total = sum((a + b) / 2 * gap for (a, b), gap in zip(pairwise(values), gaps, strict=True))
    assert trapezoid_j(series, 0.0, at_s[-1]) == pytest.approx(total)


@given(gaps=gaps, power_w=watts, first_j=st.floats(1.0, 1e9), edges=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_the_counter_is_exact_for_constant_power(
    gaps: list[float], power_w: float, first_j: float, edges: tuple[float, float]
) -> None:
    at_s = at(gaps)
    series = Series.of(at_s, [first_j + power_w * each for each in at_s])
    start_s, end_s = sorted(edge * at_s[-1] for edge in edges)
    assert counter_j(series, start_s, end_s) == pytest.approx(power_w * (end_s - start_s), rel=1e-6, abs=1e-5)


@given(start_s=st.floats(5.0, 15.0), cut_s=st.floats(30.0, 40.0), end_s=st.floats(60.0, 75.0))
def test_adjacent_windows_add_up(start_s: float, cut_s: float, end_s: float) -> None:
    for one in (steady(), without_counter()):
        parts = [energy_j(window_power(trace(one), *span)) for span in ((start_s, cut_s), (cut_s, end_s))]
        assert sum(parts) == pytest.approx(energy_j(window_power(trace(one), start_s, end_s)))


@given(
    readings=st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=81, max_size=81),
    counters=st.lists(st.floats(0.0, 1e12), min_size=81, max_size=81),
)
def test_nonsense_never_becomes_energy_out_of_bounds(readings: list[float], counters: list[float]) -> None:
    at_s = instants(0.0, 80.0, 1.0)
    window = window_power(trace(sensor(power_s=at_s, watts=readings, counter_s=at_s, counter_j=counters)), 10.5, 70.5)
    assert (window.energy_j is None) == bool(window.invalid)
    assert window.energy_j is None or 0 < window.energy_j <= 1.2 * 700.0 * 60.0


# --- the counter ---------------------------------------------------------------------------------------------------

COUNTER_S = instants(0.0, 80.0, 10.0)


def test_a_counter_that_says_zero_with_success_is_none() -> None:
    window = window_power(trace(steady(counter_j=[0.0] * 801)), 10.5, 70.5)
    assert window.method == "trapezoid"
    assert energy_j(window) == pytest.approx(24_000.0, rel=1e-4)
    assert any("reads 0" in note for note in window.notes)


def test_a_counter_that_never_moves_is_none() -> None:
    window = window_power(trace(steady(counter_j=[187.0] * 801)), 10.5, 70.5)
    assert window.method == "trapezoid"
    assert energy_j(window) == pytest.approx(24_000.0, rel=1e-4)
    assert any("energy_counter_frozen" in note and "GPU-a" in note for note in window.notes)


def test_a_counter_that_stops_moving_makes_the_window_invalid() -> None:
    frozen = [1000.0 + 400.0 * min(at_s, 40.0) for at_s in COUNTER_S]
    window = window_power(trace(steady(counter_j=frozen)), 10.5, 70.5)
    assert codes(window) == ["energy_counter_frozen"]
    assert window.energy_j is None
    assert "30.5 s" in window.invalid[0].text
    assert "GPU-a" in window.invalid[0].text


def test_a_counter_may_stand_still_for_three_seconds() -> None:
    paused = [1000.0 + 400.0 * (at_s if not 40.0 < at_s < 42.9 else 40.0) for at_s in COUNTER_S]
    assert window_power(trace(steady(counter_j=paused)), 10.5, 70.5).method == "energy_counter"


def test_a_counter_that_stopped_before_the_window_is_a_matter_of_the_samples() -> None:
    frozen = [1000.0 + 400.0 * min(at_s, 4.0) for at_s in COUNTER_S]
    window = window_power(trace(steady(counter_j=frozen)), 10.5, 70.5)
    assert window.method == "trapezoid"
    assert not window.invalid


def test_a_counter_that_falls_makes_the_window_invalid() -> None:
    reset = [1000.0 + 400.0 * at_s if at_s < 40.0 else 400.0 * (at_s - 40.0) + 1.0 for at_s in COUNTER_S]
    window = window_power(trace(steady(counter_j=reset)), 10.5, 70.5)
    assert codes(window) == ["energy_counter_reset"]
    assert "fell from 16960.0 to 1.0 J" in window.invalid[0].text
    before = window_power(trace(steady(counter_j=reset)), 10.5, 35.5)
    assert energy_j(before) == pytest.approx(10_000.0)


def test_a_counter_that_stopped_answering_gives_way_to_the_samples() -> None:
    answered = [at_s for at_s in COUNTER_S if at_s < 50.0]
    one = steady(counter_s=answered, counter_j=[1000.0 + 400.0 * at_s for at_s in answered])
    window = window_power(trace(one), 10.5, 70.5)
    assert window.method == "trapezoid"
    assert energy_j(window) == pytest.approx(24_000.0, rel=1e-4)
    assert any("energy counter is not used" in note for note in window.notes)


def test_counter_and_samples_that_disagree_are_both_not_believed() -> None:
    slow = [1000.0 + 0.94 * 400.0 * at_s for at_s in COUNTER_S]
    window = window_power(trace(steady(counter_j=slow)), 10.5, 70.5)
    assert codes(window) == ["source_disagreement"]
    assert "22560.0 J" in window.invalid[0].text
    near = [1000.0 + 0.96 * 400.0 * at_s for at_s in COUNTER_S]
    assert energy_j(window_power(trace(steady(counter_j=near)), 10.5, 70.5)) == pytest.approx(23_040.0)


def test_samples_that_do_not_suffice_are_no_cross_check() -> None:
    few = steady(power_s=instants(0.0, 5.0, 1.0), watts=[900.0] * 6, reasons=[-1] * 6)
    window = window_power(trace(few), 10.5, 70.5)
    assert energy_j(window) == pytest.approx(24_000.0)
    assert window.cross_check_j is None


def test_the_counter_carries_a_board_whose_power_cannot_be_read() -> None:
    window = window_power(trace(steady(watts=[math.nan] * 81)), 10.5, 70.5)
    assert energy_j(window) == pytest.approx(24_000.0)
    assert window.samples == 0


def test_a_counter_that_is_refreshed_slowly_counts_from_change_to_change() -> None:
    """An exporter that collects every 10 s: the counter is a staircase, read once a second."""
    at_s = instants(0.0, 300.0, 1.0)
    stairs = [1000.0 + 400.0 * 10.0 * math.floor(each / 10.0) for each in at_s]
    one = sensor(power_s=at_s, watts=[400.0 + k // 10 for k in range(301)], counter_s=at_s, counter_j=stairs)
    window = window_power(trace(one, refresh_s=30.0), 55.5, 255.5)
    assert window.method == "energy_counter"
    assert energy_j(window) == pytest.approx(80_000.0)


# --- the samples ---------------------------------------------------------------------------------------------------

SAMPLE_S = instants(0.0, 80.0, 1.0)


def thinned(keep: Callable[[float], bool], **changes: Any) -> SensorTrace:
    """Readings that were asked for every second and came only where ``keep`` says."""
    watts = [400.0 + k % 2 if keep(at_s) else math.nan for k, at_s in enumerate(SAMPLE_S)]
    return without_counter(watts=watts, **changes)


@pytest.mark.parametrize(
    ("keep", "code", "figure"),
    [
        (lambda at_s: at_s > 12.0, "window_not_bracketed", "2.50 s after"),
        (lambda at_s: at_s < 69.0, "window_not_bracketed", "2.50 s before"),
        (lambda at_s: not 30.0 < at_s < 34.0, "sampling_gap_exceeded", "4.00 s"),
        (lambda at_s: not 9.0 < at_s < 14.0, "sampling_gap_exceeded", "5.00 s"),
    ],
)
def test_samples_must_cover_the_window(keep: Callable[[float], bool], code: str, figure: str) -> None:
    window = window_power(trace(thinned(keep)), 10.5, 70.5)
    assert codes(window) == [code]
    assert window.energy_j is None
    assert figure in window.invalid[0].text
    assert "GPU-a" in window.invalid[0].text


def test_single_missing_samples_do_no_harm() -> None:
    window = window_power(trace(thinned(lambda at_s: at_s % 5 != 0)), 10.5, 70.5)
    assert energy_j(window) == pytest.approx(24_030.0, rel=1e-3)
    assert window.samples == 48


def test_the_gap_grows_with_slow_sampling() -> None:
    at_s = instants(0.0, 300.0, 0.2)
    one = sensor(power_s=at_s, watts=[400.0] * len(at_s))
    assert not window_power(trace(one, hz=0.2), 52.5, 252.5).invalid
    every_other = sensor(power_s=at_s, watts=[400.0 if k % 5 else math.nan for k in range(len(at_s))])
    assert not window_power(trace(every_other, hz=0.2), 52.5, 252.5).invalid


def test_ten_samples_are_needed() -> None:
    assert codes(window_power(trace(without_counter()), 10.5, 19.5)) == ["too_few_samples"]
    assert codes(window_power(trace(without_counter()), 10.5, 20.5)) == []


def test_a_source_that_never_answers_says_why() -> None:
    none = trace(thinned(lambda _: False), events=[event("read_failed", 0.0, 80.0, text="NotSupported")])
    window = window_power(none, 10.5, 70.5)
    assert codes(window) == ["too_few_samples"]
    assert "0 power samples" in window.invalid[0].text
    assert "NotSupported" in window.invalid[0].text


def test_the_reason_of_a_gap_is_that_of_its_time_and_sensor() -> None:
    events = [
        event("read_failed", 2.0, text="401 Unauthorized"),
        event("read_failed", 31.0, 33.0, None, text="no answer within 3 s"),
        event("read_failed", 31.0, sensor="GPU-b", text="another board"),
    ]
    window = window_power(trace(thinned(lambda at_s: not 30.0 < at_s < 34.0), events=events), 10.5, 70.5)
    assert window.invalid[0].text.endswith("(no answer within 3 s)")


@pytest.mark.parametrize(("reading_w", "words"), [(0.0, "0 to 0 W"), (900.0, "1.2 x 700 W"), (-5.0, "-5 to -5 W")])
def test_samples_that_cannot_be_true_are_not_integrated(reading_w: float, words: str) -> None:
    window = window_power(trace(without_counter(watts=[reading_w] * 81)), 10.5, 70.5)
    assert codes(window) == ["implausible_power"]
    assert words in window.invalid[0].text


def test_one_implausible_sample_is_left_out_and_said() -> None:
    watts = [400.0 + k % 2 for k in range(81)]
    watts[40], watts[41] = 0.0, 65_535.0
    window = window_power(trace(without_counter(watts=watts)), 10.5, 70.5)
    assert energy_j(window) == pytest.approx(24_030.0, rel=1e-3)
    assert window.samples == 58
    assert any("2 of 60 samples" in note for note in window.notes)


def test_a_counter_beyond_what_the_board_can_draw_is_implausible() -> None:
    one = steady(watts=[math.nan] * 81, counter_j=[1000.0 + 900.0 * at_s for at_s in COUNTER_S])
    window = window_power(trace(one), 10.5, 70.5)
    assert codes(window) == ["implausible_power"]
    assert "900.0 W" in window.invalid[0].text


def test_without_a_limit_any_positive_power_is_plausible() -> None:
    window = window_power(trace(without_counter(watts=[9000.0] * 81, limit_w=None), kind="node"), 10.5, 70.5)
    assert energy_j(window) == pytest.approx(540_000.0)


@pytest.mark.parametrize("reading_w", [1e308, 1e9, 1e-310])
def test_what_nothing_can_draw_is_no_power_even_without_a_limit(reading_w: float) -> None:
    window = window_power(trace(without_counter(watts=[reading_w] * 81, limit_w=None), kind="other"), 10.5, 70.5)
    assert codes(window) == ["implausible_power"]
    assert window.invalid[0].text.endswith("not in (0, 1e+07 W]")


def test_a_counter_that_jumps_makes_the_window_invalid() -> None:
    jump = [1000.0 + 400.0 * at_s + (1e12 if at_s > 40.0 else 0.0) for at_s in COUNTER_S]
    for limit_w in (700.0, None):
        window = window_power(trace(steady(counter_j=jump, limit_w=limit_w)), 10.5, 70.5)
        assert codes(window) == ["implausible_power", "source_disagreement"]


# --- stale sensors -------------------------------------------------------------------------------------------------


def polled(refresh_s: float, seconds: float, **changes: Any) -> PowerTrace:
    at_s = instants(0.0, seconds, 1.0)
    watts = [400.0 + at // refresh_s for at in at_s]
    return trace(sensor(**{"power_s": at_s, "watts": watts, **changes}), refresh_s=60.0, kind="node", source="redfish")


def test_a_board_that_shows_one_value_for_three_refreshes_is_stale() -> None:
    frozen = without_counter(watts=[400.0 + min(k, 40) for k in range(81)])
    window = window_power(trace(frozen, refresh_s=1.0), 10.5, 70.5)
    assert codes(window) == ["stale_source"]
    assert "30.5 s" in window.invalid[0].text
    assert not window_power(trace(frozen), 10.5, 70.5).invalid, "a source that is always fresh may repeat itself"


def test_the_sensors_own_stamps_decide_alone() -> None:
    stamped = without_counter(watts=[400.0] * 81, stamps=[float(k) for k in range(81)])
    assert not window_power(trace(stamped, refresh_s=1.0), 10.5, 70.5).invalid
    stopped = without_counter(watts=[400.0 + k % 2 for k in range(81)], stamps=[float(min(k, 30)) for k in range(81)])
    assert codes(window_power(trace(stopped, refresh_s=1.0), 10.5, 70.5)) == ["stale_source"]


def test_a_bmc_that_refreshes_once_a_minute_needs_ten_minutes() -> None:
    assert not window_power(polled(60.0, 800.0), 30.5, 660.5).invalid
    short = window_power(polled(60.0, 800.0), 30.5, 330.5)
    assert codes(short) == ["too_few_samples"]
    assert "5 refreshes" in short.invalid[0].text
    assert codes(window_power(polled(600.0, 800.0), 100.5, 160.5)) == ["stale_source", "too_few_samples"]


def test_a_bmc_that_answers_and_never_refreshes_is_stale() -> None:
    window = window_power(polled(1e9, 800.0), 30.5, 660.5)
    assert codes(window)[0] == "stale_source"


def test_the_counter_makes_a_stale_sample_harmless() -> None:
    window = window_power(trace(steady(watts=[400.0] * 81), refresh_s=1.0), 10.5, 70.5)
    assert energy_j(window) == pytest.approx(24_000.0)
    assert window.cross_check_j is None


# --- events --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["gpu_lost", "foreign_process", "power_limit_changed"])
def test_what_happens_inside_the_window_makes_it_invalid(code: str) -> None:
    inside = window_power(trace(steady(), events=[event(code, 40.0)]), 10.5, 70.5)
    assert codes(inside) == [code]
    assert inside.energy_j is None
    assert codes(window_power(trace(steady(), events=[event(code, 2.0, 30.0)]), 10.5, 70.5)) == [code]
    assert not window_power(trace(steady(), events=[event(code, 9.0), event(code, 72.0)]), 10.5, 70.5).invalid


def test_one_lost_board_of_two_makes_the_sum_invalid() -> None:
    lost = thinned(lambda at_s: at_s < 40.0, sensor="GPU-b")
    window = window_power(trace(steady(), lost, events=[event("gpu_lost", 40.0, 80.0, "GPU-b")]), 10.5, 70.5)
    assert codes(window) == ["gpu_lost", "window_not_bracketed"]
    assert window.energy_j is None


def test_failed_reads_alone_make_nothing_invalid() -> None:
    assert not window_power(trace(steady(), events=[event("read_failed", 40.0)]), 10.5, 70.5).invalid


def test_a_source_without_sensors_has_no_power() -> None:
    window = window_power(trace(), 10.5, 70.5)
    assert codes(window) == ["no_power_source"]
    assert window.sensors == 0


# --- throttling ----------------------------------------------------------------------------------------------------


def test_throttle_reasons_are_counted_inside_the_window() -> None:
    reasons = [0x4 if at_s < 40 else 0x1 for at_s in SAMPLE_S]
    reasons[50] = 0x4 | 0x40 | 0x200 | 0x100 | 0x2
    reasons[60] = -1
    window = window_power(trace(steady(reasons=reasons), steady(sensor="GPU-b", reasons=[0] * 81)), 10.5, 70.5)
    assert window.throttle_counts == {"hw_thermal_slowdown": 1, "sw_power_cap": 30, "unknown_0x200": 1}
    assert window.throttle_samples == 119


def test_reasons_that_cannot_be_read_are_not_zero() -> None:
    window = window_power(trace(steady()), 10.5, 70.5)
    assert window.throttle_counts is None
    assert window.throttle_samples == 0
    assert window_power(trace(steady(reasons=[0] * 81)), 10.5, 70.5).throttle_counts == {}


def test_throttling_is_told_of_an_invalid_window_too() -> None:
    window = window_power(trace(thinned(lambda at_s: at_s < 40, reasons=[0x4] * 81)), 10.5, 70.5)
    assert window.energy_j is None
    assert window.throttle_counts == {"sw_power_cap": 60}


def test_seconds_come_from_the_drivers_counters() -> None:
    half = [round(5e8 * at_s) for at_s in SAMPLE_S]
    unread = list(half)
    unread[30] = -1
    one = steady(throttle_ns={"sw_power_cap": unread})
    assert window_power(trace(one), 10.5, 70.5).throttle_s == pytest.approx({"sw_power_cap": 30.0})
    both = trace(one, steady(sensor="GPU-b", throttle_ns={"sw_power_cap": half}))
    assert window_power(both, 10.5, 70.5).throttle_s == pytest.approx({"sw_power_cap": 60.0})


@pytest.mark.parametrize("column", [[round(1.1e9 * k) for k in range(81)], [10**12 - k for k in range(81)]])
def test_driver_counters_that_cannot_be_true_are_left_out(column: list[int]) -> None:
    assert window_power(trace(steady(throttle_ns={"sw_thermal_slowdown": column})), 10.5, 70.5).throttle_s == {}


# --- idle ----------------------------------------------------------------------------------------------------------


def test_idle_power_is_the_sum_over_the_boards() -> None:
    idle = idle_power(trace(steady(watts=[90.0] * 81, counter_j=[1000.0 + 80.0 * s for s in COUNTER_S])), 10.0, 15.0)
    assert idle.value == pytest.approx(80.0)
    assert idle.unit == "W"
    both = trace(without_counter(watts=[90.0] * 81), without_counter(sensor="GPU-b", watts=[70.0] * 81), refresh_s=1.0)
    assert idle_power(both, 10.0, 16.0).value == pytest.approx(160.0)


def test_idle_power_of_too_short_a_look_is_not_known() -> None:
    short = idle_power(trace(without_counter()), 10.5, 14.5)
    assert short.value is None
    assert short.reason is not None
    assert "4 power samples" in short.reason
    failed = [event("read_failed", 9.0, 20.0, None, "401 Unauthorized")]
    missing = idle_power(trace(thinned(lambda _: False), events=failed), 10.5, 20.5)
    assert missing.reason is not None
    assert "401 Unauthorized" in missing.reason
    assert idle_power(trace(), 0.0, 9.0).reason is not None


def test_a_machine_that_others_use_is_not_idle() -> None:
    used = idle_power(trace(steady(), events=[event("foreign_process", 12.0)]), 10.0, 20.0)
    assert used.value is None
    assert used.reason == "foreign_process happened"


def test_a_frozen_counter_says_nothing_of_idle_power() -> None:
    assert idle_power(trace(steady(counter_j=[9.0] * 801)), 10.0, 20.0).value == pytest.approx(400.0, rel=1e-4)


def test_idle_power_that_cannot_be_true_is_not_given() -> None:
    counter_j = [1000.0 + 5000.0 * at_s for at_s in COUNTER_S]
    assert idle_power(trace(steady(counter_j=counter_j)), 10.0, 20.0).value is None


def test_a_constant_load_is_the_same_at_every_offset() -> None:
    one = sampled("GPU-a", constant(300.0), 0.25, 90.0)
    for k in range(10):
        assert energy_j(window_power(trace(one), 10.0 + k / 10, 70.0 + k / 10)) == pytest.approx(18_000.0)

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.metrics.energy import energy_band_pct, energy_figures, energy_record
from pytest_tokenwatt.metrics.goodput import aggregate, figure_names
from pytest_tokenwatt.metrics.search import SearchResult
from pytest_tokenwatt.records import (
    ClientHealth,
    EnergyRecord,
    Reason,
    SloBound,
    WindowPower,
    WindowResult,
)

BOUNDS = (SloBound("ttft", 99, 2000),)
RESET = Reason("energy_counter_reset", "GPU-1: the counter fell from 812 kJ to 3 J")


def power(energy_j: float | None = 76_440.0, *invalid: Reason, **changes: Any) -> WindowPower:
    reading = WindowPower(
        source="board",
        kind="board",
        energy_j=None if invalid else energy_j,
        method="energy_counter",
        cross_check_j=None,
        samples=121,
        throttle_counts={"sw_power_cap": 100},
        throttle_samples=121,
        throttle_s={"sw_power_cap": 98.5},
        invalid=invalid,
        sensors=1,
    )
    return replace(reading, **changes)


NODE: Mapping[str, Any] = {
    "source": "redfish",
    "kind": "node",
    "throttle_counts": None,
    "throttle_samples": 0,
    "throttle_s": {},
}


def window(
    *powers: WindowPower, tok_s: float = 4572.3, seconds: float = 120.0, label: str = "confirm-1"
) -> WindowResult:
    health = ClientHealth(0.1, 20.0, 0.2, 400, 400, 0, 400, 0, 40_000, 0, 1.0, 0)
    return WindowResult(
        kind="confirm",
        label=label,
        rate_rps=11.2,
        start_s=50.0,
        end_s=50.0 + seconds,
        planned=400,
        ok=400,
        failures={},
        failure_example=None,
        percentiles=(),
        stable=True,
        waiting_growth=0.0,
        output_tokens=round(tok_s * seconds * 1.1),
        good_tokens=round(tok_s * seconds),
        output_tok_s=tok_s * 1.1,
        goodput_tok_s=tok_s,
        passes=True,
        misses=(),
        decided="",
        invalid=(),
        client=health,
        power=powers,
    )


def energy(*windows: WindowResult) -> EnergyRecord:
    record = energy_record(windows)
    assert record is not None
    return record


@pytest.mark.parametrize(("tok_s", "kw", "tok_j"), [(4572.3, 0.637, 7.178), (5056.9, 0.616, 8.209)])
def test_the_reference_runs_have_their_tokens_per_joule(tok_s: float, kw: float, tok_j: float) -> None:
    found = energy(*(window(power(kw * 120_000), tok_s=tok_s) for _ in range(2)))
    assert found.node_power_kw == pytest.approx(kw)
    assert found.tokens_per_joule == pytest.approx(tok_j, abs=5e-4)
    assert found.output_tokens_per_joule == pytest.approx(1.1 * tok_j, abs=1e-3)
    assert found.energy_j == pytest.approx(2 * kw * 120_000)


def test_the_reference_candidate_gives_a_seventh_more_tokens_per_joule() -> None:
    base, tuned = (
        energy(window(power(0.637e3), tok_s=4572.3, seconds=1)),
        energy(window(power(0.616e3), tok_s=5056.9, seconds=1)),
    )
    assert base.tokens_per_joule is not None
    assert tuned.tokens_per_joule is not None
    assert 100 * (tuned.tokens_per_joule / base.tokens_per_joule - 1) == pytest.approx(14.4, abs=0.05)


def test_windows_of_different_length_are_summed_not_averaged() -> None:
    found = energy(
        window(power(1000.0), tok_s=10.0, seconds=10), window(power(3000.0, sensors=2), tok_s=20.0, seconds=30)
    )
    assert found.energy_j == 4000.0
    assert found.node_power_kw == pytest.approx(0.1)
    assert found.tokens_per_joule == pytest.approx(700 / 4000)
    assert found.variance_band_pct == pytest.approx(100 * (0.2 - 0.1) / 0.15)
    assert found.sensors == 2


def test_throttling_is_summed_over_windows() -> None:
    second = power(throttle_counts={"sw_power_cap": 99, "hw_slowdown": 2}, throttle_samples=120, throttle_s={})
    found = energy(window(power()), window(second))
    assert found.throttle_counts == {"sw_power_cap": 199, "hw_slowdown": 2}
    assert found.throttle_samples == 241
    assert found.throttle_s == {"sw_power_cap": 98.5}


def test_no_reading_at_all_is_no_energy() -> None:
    assert energy_record([]) is None
    assert energy_record([window(), window()]) is None


@pytest.mark.parametrize(
    ("spoilt", "code"),
    [
        (window(power(None, RESET)), "energy_counter_reset"),
        (window(label="confirm-2"), "no_power_source"),
        (window(power(0.0)), "implausible_power"),
        (window(power(None)), "implausible_power"),
        (replace(window(power()), output_tok_s=None), "token_count_missing"),
    ],
)
def test_one_bad_window_leaves_no_figure_but_its_reason(spoilt: WindowResult, code: str) -> None:
    found = energy(window(power()), spoilt)
    assert [reason.code for reason in found.invalid] == [code]
    figures = (found.energy_j, found.node_power_kw, found.tokens_per_joule, found.output_tokens_per_joule)
    assert (*figures, found.variance_band_pct) == (None,) * 5
    assert found.throttle_counts is not None


def test_the_same_reason_of_two_windows_is_said_once() -> None:
    assert energy(window(power(None, RESET)), window(power(None, RESET))).invalid == (RESET,)


def test_the_first_source_counts_and_the_boards_share_of_the_node_is_told() -> None:
    both = (power(80_000.0, **NODE), power(60_000.0))
    found = energy(window(*both), window(*both))
    assert (found.source, found.kind, found.energy_j) == ("redfish", "node", 160_000.0)
    assert found.gpu_share_pct == pytest.approx(75.0)
    assert found.throttle_counts == {"sw_power_cap": 200}
    spoilt = (power(80_000.0, **NODE), power(None, RESET))
    alone = energy(window(*both), window(*spoilt))
    assert (alone.gpu_share_pct, alone.energy_j, alone.invalid) == (None, 160_000.0, ())


# --- the band


def with_band(tok_j: float | None, band_pct: float | None = None) -> EnergyRecord:
    return replace(energy(window(power())), tokens_per_joule=tok_j, variance_band_pct=band_pct)


def test_the_band_of_tokens_per_joule() -> None:
    assert energy_band_pct([with_band(7.0, 0.4), with_band(8.0, 1.9), with_band(8.0)]) == 1.9
    assert energy_band_pct([with_band(7.0)]) is None
    first, again = with_band(8.0, 0.5), with_band(7.8)
    assert energy_band_pct([first, again], [(first, again)]) == pytest.approx(2.5)
    assert energy_band_pct([first], [(first, with_band(None))]) == 0.5


# --- figures


def values(record: EnergyRecord | None) -> Mapping[str, float | None]:
    return {name: figure.value for name, figure in energy_figures(record, "no SLO was met").items()}


def test_figures_have_units_and_zero_samples_of_a_reason_are_a_value() -> None:
    figures = energy_figures(energy(window(power())), "unused")
    assert {name: figures[name].unit for name in ("tokens_per_joule", "energy_j", "node_power_kw")} == {
        "tokens_per_joule": "tok/J",
        "energy_j": "J",
        "node_power_kw": "kW",
    }
    assert (figures["throttle_sw_power_cap"].value, figures["throttle_hw_thermal_slowdown"].value) == (100, 0)
    assert (figures["throttle_samples"].value, figures["throttle_samples"].unit) == (121, "samples")
    assert "throttle_gpu_idle" not in figures
    assert all(figure.reason is None for figure in figures.values())


def test_an_unknown_reason_has_a_figure_too() -> None:
    strange = energy(window(power(throttle_counts={"unknown_0x400": 3})))
    assert values(strange)["throttle_unknown_0x400"] == 3


def test_what_was_not_measured_says_why() -> None:
    nothing = energy_figures(None, "no SLO was met")
    assert {figure.value for figure in nothing.values()} == {None}
    assert {figure.reason for figure in nothing.values()} == {"no SLO was met"}
    spoilt = energy_figures(energy(window(power(None, RESET))), "unused")
    assert spoilt["tokens_per_joule"].reason == str(RESET)
    assert spoilt["throttle_sw_power_cap"].value == 100
    silent = energy_figures(energy(window(power(80_000.0, **NODE))), "unused")
    assert silent["energy_j"].value == 80_000.0
    assert silent["throttle_samples"].reason == "the source redfish gave no throttle reasons"


def aggregated(*windows: WindowResult, rate_rps: float | None = 11.2) -> EnergyRecord | None:
    result = SearchResult(rate_rps, rate_rps, 12.0, "closed", 0, windows, (), (), ())
    record = aggregate(
        scenario="default", mode="search", bounds=BOUNDS, repeats=2, result=result, samples=(), windows=windows
    )
    assert set(record.figures) <= figure_names(BOUNDS)
    assert record.energy is None or record.figures["energy_j"].value == record.energy.energy_j
    assert record.energy is not None or record.figures["energy_j"].reason
    return record.energy


def test_a_record_has_the_energy_of_its_confirming_windows() -> None:
    found = aggregated(window(power()), window(power()))
    assert found is not None
    assert found.energy_j == 2 * 76_440.0
    assert aggregated(window(), window()) is None
    assert aggregated(window(power()), rate_rps=None) is None


def test_rules_may_name_all_of_them() -> None:
    names = figure_names(BOUNDS)
    asked = {"tokens_per_joule", "output_tokens_per_joule", "energy_j", "node_power_kw", "throttle_sw_power_cap"}
    assert asked | {"throttle_samples", "mbu_pct", "mbu_engine_pct", "idle_power_w"} <= names


@given(
    st.lists(st.tuples(st.floats(1.0, 1e6), st.floats(1.0, 1e4), st.floats(1.0, 600.0)), min_size=1, max_size=4),
    st.integers(1, 8),
)
def test_tokens_per_joule_lie_between_those_of_the_windows(
    drawn: list[tuple[float, float, float]], sensors: int
) -> None:
    windows = [window(power(joules, sensors=sensors), tok_s=tok_s, seconds=s) for joules, tok_s, s in drawn]
    found = energy(*windows)
    each = [single.tokens_per_joule for single in map(energy, windows)]
    known = [value for value in each if value is not None]
    assert found.tokens_per_joule is not None
    assert min(known) * (1 - 1e-9) <= found.tokens_per_joule <= max(known) * (1 + 1e-9)
    assert found.node_power_kw is not None
    assert found.energy_j == pytest.approx(
        1000 * found.node_power_kw * sum(each.end_s - each.start_s for each in windows)
    )


def test_what_ails_a_further_source_is_a_note_and_spoils_nothing() -> None:
    below = Reason("node_below_gpu", "redfish has 500.0 J for the node, its GPU boards alone took 1050.0 J")
    windows = [window(power(), power(None, below, **NODE), label=label) for label in ("confirm-1", "confirm-2")]
    record = energy_record(windows)
    assert record is not None
    assert record.invalid == ()
    assert record.tokens_per_joule is not None
    assert record.gpu_share_pct is None
    assert record.notes == (str(below),)

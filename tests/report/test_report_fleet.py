"""What the figures mean for many cards."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import GPU, RECORDS, energy_of, goodput_of, record_of, spec_of

from pytest_tokenwatt.records import ConfigRecord, Reason
from pytest_tokenwatt.report.fleet import Bands, fleet_block

BANDS = Bands(goodput_pct=1.0, energy_pct=0.8)


def fleet(tmp_path: Path, *records: ConfigRecord, bands: Bands = BANDS, **changes: Any) -> dict[str, Any]:
    return fleet_block(spec_of(tmp_path, **changes), records or RECORDS, bands)


def test_the_reference_pair_on_64_cards(tmp_path: Path) -> None:
    block = fleet(tmp_path)
    assert (block["cards"], block["cards_measured"], block["text"]) == (64, 1, "one card measured")
    assert block["goodput_tok_s"] == pytest.approx(64 * 4572.3)
    assert block["power_kw"] == pytest.approx(64 * 0.637, rel=1e-3)
    (tuned,) = block["configs"]
    ratio, error = 5056.9 / 4572.3, 0.036
    assert tuned["cards_needed"] == pytest.approx(
        {"value": 64 / ratio, "low": 64 / (ratio + error), "high": 64 / (ratio - error)}
    )
    joules = 8.209 / 7.178
    power = {"value": joules, "low": joules + 0.008, "high": joules - 0.008}
    watts = 64 * 4572.3 / 7.178
    assert tuned["power_kw"] == pytest.approx({end: watts / 1000 / value for end, value in power.items()})
    assert tuned["power_kw"]["value"] == pytest.approx(35.65, abs=0.01)
    assert tuned["energy_kwh_per_day"] == pytest.approx({end: 24 * value for end, value in tuned["power_kw"].items()})
    assert tuned["text"] == "58 cards [57, 60] instead of 64, 35.6 kW [35.4, 35.9]"
    assert (block["missing"], tuned["missing"], block["power_kind"]) == ({}, {}, "board")


def test_candidates_on_another_number_of_cards_are_compared_by_the_card(tmp_path: Path) -> None:
    pair = tuple(replace(GPU, sensor=f"GPU-{number}") for number in range(2))
    tuned = replace(RECORDS[1], gpus=pair)
    block = fleet(tmp_path, RECORDS[0], tuned)
    assert block["configs"][0]["cards_measured"] == 2
    assert block["configs"][0]["cards_needed"]["value"] == pytest.approx(2 * 64 * 4572.3 / 5056.9)
    both = fleet(tmp_path, replace(RECORDS[0], gpus=pair), tuned)
    assert both["text"] == "2 cards measured"
    assert both["goodput_tok_s"] == pytest.approx(32 * 4572.3)
    assert both["configs"][0]["cards_needed"]["value"] == pytest.approx(64 * 4572.3 / 5056.9)


def test_without_errors_there_is_no_interval(tmp_path: Path) -> None:
    records = [
        replace(each, scenarios={"default": replace(each.scenarios["default"], error_pct=None)}) for each in RECORDS
    ]
    tuned = fleet(tmp_path, *records, bands=Bands())["configs"][0]
    assert (tuned["cards_needed"]["low"], tuned["cards_needed"]["high"]) == (None, None)
    assert (tuned["power_kw"]["low"], tuned["power_kw"]["high"]) == (None, None)
    assert tuned["text"] == "58 cards instead of 64, 35.6 kW"


def test_an_error_as_large_as_the_ratio_leaves_the_upper_end_open(tmp_path: Path) -> None:
    tuned = fleet(tmp_path, bands=Bands(200.0, 200.0))["configs"][0]
    assert (tuned["cards_needed"]["high"], tuned["power_kw"]["high"]) == (None, None)
    assert tuned["cards_needed"]["low"] is not None


@pytest.mark.parametrize(
    ("tuned", "missing"),
    [
        (record_of("tuned", goodput_of(5056.9, energy=None)), {"power_kw": "the energy is not known"}),
        (
            record_of("tuned", goodput_of(5056.9, energy=energy_of(5.0, 1.0, kind="node"))),
            {"power_kw": "there is no energy of the baseline from the same kind of source"},
        ),
        (
            record_of("tuned", goodput_of(1.0, goodput_tok_s=None, energy=None)),
            {"cards_needed": "the goodput is not known", "power_kw": "the energy is not known"},
        ),
        (
            record_of("tuned", None, invalid=(Reason("engine_start_failed", "exit 1"),)),
            {"cards_needed": "the goodput is not known", "power_kw": "the energy is not known"},
        ),
    ],
)
def test_what_is_not_known_is_not_projected(tmp_path: Path, tuned: ConfigRecord, missing: dict[str, str]) -> None:
    (entry,) = fleet(tmp_path, RECORDS[0], tuned)["configs"]
    assert entry["missing"] == missing
    assert all(entry[name] is None for name in missing)
    assert (entry["energy_kwh_per_day"] is None) is ("power_kw" in missing)


def test_without_a_baseline_there_is_nothing_to_serve(tmp_path: Path) -> None:
    why = {"configs": "the goodput of a baseline is not known"}
    assert fleet(tmp_path, RECORDS[1]) == {"cards": 64, "missing": why}
    broken = record_of("baseline", goodput_of(1.0, goodput_tok_s=None))
    assert fleet(tmp_path, broken, RECORDS[1])["missing"] == why
    unpowered = record_of("baseline", goodput_of(4572.3, energy=None))
    block = fleet(tmp_path, unpowered, RECORDS[1])
    assert (block["power_kw"], block["missing"]) == (None, {"power_kw": "the energy of the baseline is not known"})


def test_a_repeat_of_the_baseline_is_no_candidate(tmp_path: Path) -> None:
    configs = [{"key": "baseline", "role": "baseline"}, {"key": "again", "role": "other", "like": "baseline"}]
    block = fleet(tmp_path, RECORDS[0], record_of("again", goodput_of(4600.0)), configs=configs)
    assert block["configs"] == []


def test_no_block_no_projection(tmp_path: Path) -> None:
    assert fleet(tmp_path, fleet=None) == {"cards": None}


@given(st.floats(0.2, 5.0), st.floats(0.0, 50.0), st.integers(1, 500))
def test_the_interval_holds_the_value(
    tmp_path_factory: pytest.TempPathFactory, ratio: float, band_pct: float, cards: int
) -> None:
    tuned = record_of("tuned", goodput_of(4572.3 * ratio, energy=energy_of(7.178 * ratio, 0.6)))
    path = tmp_path_factory.getbasetemp()
    block = fleet(path, RECORDS[0], tuned, bands=Bands(band_pct, band_pct), fleet={"cards": cards})
    for name in ("cards_needed", "power_kw", "energy_kwh_per_day"):
        need = block["configs"][0][name]
        assert need["low"] <= need["value"] <= (need["high"] or math.inf)

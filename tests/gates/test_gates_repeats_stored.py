"""How many repeats a stored report says passed: a null stays unknown, and what has no field is said to be counted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_tokenwatt.records import GateResult, Verdict
from pytest_tokenwatt.replay import open_replay

REFERENCE = Path(__file__).resolve().parents[1] / "report" / "reference"
ABSENT = object()


def slo_of_tuned(tmp_path: Path, changes: Mapping[str, Any], tpot_ms: float | None = None) -> GateResult:
    """The SLO of a published report whose tuned configuration has these values; ``tpot_ms`` is another bound of it."""
    report = json.loads((REFERENCE / "lab-kv-cache.json").read_text(encoding="utf-8"))
    row = report["configs"][1]
    for name, value in changes.items():
        row[name] = value
        if value is ABSENT:
            del row[name]
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(report), encoding="utf-8")
    asked = tmp_path / "asked.json"
    asked.write_text(json.dumps({**report["spec"], "slo": {"ttft_p99_ms": 2000, "tpot_p99_ms": tpot_ms}}), "utf-8")
    lab = open_replay([path], out=tmp_path / "out", spec=asked if tpot_ms else None)
    return next(lab.judge(gate) for gate in lab.gates if (gate.config, gate.gate) == ("tuned", "slo"))


@pytest.mark.parametrize("value", [None, ABSENT])
def test_repeats_that_nobody_counted_are_not_stored(tmp_path: Path, value: object) -> None:
    result = slo_of_tuned(tmp_path, {"slo_pass_count": value})
    assert (result.verdict, result.reasons[0].code) == (Verdict.INCONCLUSIVE, "not_stored")
    assert result.reasons[0].text == "slo_pass_count of tuned is not stored"


@pytest.mark.parametrize("name", ["ttft_p99_ms", "tpot_p99_ms"])
def test_a_percentile_that_is_stored_as_null_stays_unknown_whatever_was_counted(tmp_path: Path, name: str) -> None:
    result = slo_of_tuned(tmp_path, {name: None})
    assert (result.verdict, result.reasons[0].code) == (Verdict.INCONCLUSIVE, "not_stored")
    assert name in result.reasons[0].text


def test_percentiles_without_a_field_are_counted_and_said_to_be(tmp_path: Path) -> None:
    result = slo_of_tuned(tmp_path, {"ttft_p99_ms": ABSENT})
    told = "2 of 2 repeats by the stored count (ttft_p99_ms not stored), TPOT p99 43.7 ms"
    assert (result.verdict, result.text) == (Verdict.PASS, told)


@pytest.mark.parametrize("changes", [{"tpot_p99_ms": 61.2}, {"slo_pass_count": 1}])
def test_what_is_known_to_be_broken_fails_whatever_else_is_unknown(tmp_path: Path, changes: Mapping[str, Any]) -> None:
    assert slo_of_tuned(tmp_path, {"ttft_p99_ms": None, **changes}).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("tpot_ms", "verdict"), [(40.0, Verdict.FAIL), (46.0, Verdict.FAIL), (60.0, Verdict.INCONCLUSIVE)]
)
def test_a_count_of_one_slo_is_none_of_a_looser_one(tmp_path: Path, tpot_ms: float, verdict: Verdict) -> None:
    assert slo_of_tuned(tmp_path, {"slo_pass_count": 1}, tpot_ms).verdict is verdict

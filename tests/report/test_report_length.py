"""The length of answers in a lab report: a share with its interval, or the reason why there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_samples import CONTEXT, GATES, RECORDS, spec_of
from test_report_accuracy import MEASURED

from pytest_tokenwatt.records import ConfigRecord, Reason
from pytest_tokenwatt.records.accuracy import LengthDelta
from pytest_tokenwatt.report.lab import build_report

SHIFT = LengthDelta(0.0176214, (0.0042, 0.0311), 200, 200, 129.4, 127.2, truncated=0, left_out=0)
FEW = Reason("interval_unknown", "8 answers are too few for an interval")


def report_of(
    tmp_path: Path, delta: LengthDelta | None = SHIFT, records: tuple[ConfigRecord, ...] = MEASURED, **of_spec: Any
) -> dict[str, Any]:
    lengths = {} if delta is None else {"tuned": delta}
    return build_report(spec_of(tmp_path, **of_spec), records, GATES, replace(CONTEXT, lengths=lengths))


def lines(report: dict[str, Any]) -> list[str]:
    return [line for line in report["not_covered"] if "ength of" in line]


def test_the_shift_is_a_share_with_its_interval(tmp_path: Path) -> None:
    report = report_of(tmp_path)
    base, tuned = report["configs"]
    assert tuned["length_shift"] == 0.0176214
    assert tuned["intervals"]["length_shift"] == {
        "low": 0.0042,
        "high": 0.0311,
        "n": 200,
        "truncated": 0,
        "left_out": 0,
    }
    assert not [name for name in tuned["missing"] if "length_shift" in name]
    assert base["length_shift"] is None
    assert base["missing"]["length_shift"] == "the baseline is what others are compared with"
    assert "length_shift" not in base["intervals"]
    assert lines(report) == []


def test_without_an_interval_its_ends_have_the_reason(tmp_path: Path) -> None:
    tuned = report_of(tmp_path, replace(SHIFT, interval=None, n=8, doubts=(FEW,)))["configs"][1]
    assert (tuned["intervals"]["length_shift"]["low"], tuned["intervals"]["length_shift"]["n"]) == (None, 8)
    assert {tuned["missing"][f"intervals.length_shift.{end}"] for end in ("low", "high")} == {str(FEW)}


def test_answers_that_were_cut_are_not_covered(tmp_path: Path) -> None:
    report = report_of(tmp_path, replace(SHIFT, truncated=13))
    assert lines(report) == ["tuned: Length of 13 of 200 answers beyond max_tokens: they were cut"]


@pytest.mark.parametrize(
    ("delta", "records", "why"),
    [
        (LengthDelta(faults=(FEW,)), MEASURED, str(FEW)),
        (None, MEASURED, "there is no baseline to compare with"),
        (LengthDelta(faults=(FEW,)), RECORDS, "not measured in this run"),
        (
            LengthDelta(faults=(FEW,)),
            (MEASURED[0], replace(MEASURED[1], invalid=(Reason("engine_died", "signal 9"),))),
            "engine_died: signal 9",
        ),
    ],
)
def test_a_missing_shift_has_its_reason(
    tmp_path: Path, delta: LengthDelta | None, records: tuple[ConfigRecord, ...], why: str
) -> None:
    report = report_of(tmp_path, delta, records)
    tuned = report["configs"][1]
    assert (tuned["length_shift"], tuned["missing"]["length_shift"]) == (None, why)
    assert lines(report) == [f"tuned: Length of answers: {why}"]


def test_without_suites_it_is_said_once(tmp_path: Path) -> None:
    report = report_of(tmp_path, None, RECORDS, accuracy=None)
    assert lines(report) == ["Length of answers: the spec has neither an accuracy nor a drift block"]
    assert {each["missing"]["length_shift"] for each in report["configs"]} == {
        "the spec has neither an accuracy nor a drift block"
    }


def test_drift_prompts_alone_give_lengths_too(tmp_path: Path) -> None:
    report = report_of(tmp_path, None, RECORDS, accuracy=None, drift={"prompts": "p.jsonl"})
    assert lines(report) == ["tuned: Length of answers: not measured in this run"]

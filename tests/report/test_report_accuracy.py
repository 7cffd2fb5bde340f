"""Accuracy in a lab report: published fields first, what the sample can tell beside them, a reason for every null."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_samples import CONTEXT, GATES, RECORDS, SPEC, gate, record_of, spec_of

from pytest_tokenwatt.records import ConfigRecord, ItemResult, Outcome, Reason, SuiteRecord, Verdict
from pytest_tokenwatt.records.accuracy import AccuracyDelta, DomainDelta, FlipRate, SuiteDelta
from pytest_tokenwatt.report.lab import build_report

NAME = "gsm8k-5shot"
DROP = SuiteDelta(
    delta_pts=-8.0,
    n=50,
    items=50,
    independent=50.0,
    right_to_wrong=5,
    wrong_to_right=1,
    interval_pts=(-19.8014, 2.1287),
    interval_90_pts=(-17.6, 0.1),
    mid_p=0.125,
    resolvable_pts=12.1816,
    flip_rate=0.12,
    flip_source="observed",
)
LOST = replace(DROP, right_to_wrong=6, wrong_to_right=0, interval_pts=(-23.8, -3.1))


def suite_of(right: int, wrong: int, name: str = NAME, **changes: Any) -> SuiteRecord:
    outcomes = [Outcome.CORRECT] * right + [Outcome.WRONG] * wrong
    record = SuiteRecord(
        name=name,
        suite="gsm8k.jsonl",
        sha256="ab12",
        scorer="numeric",
        api="completions",
        shots=5,
        max_tokens=384,
        seeds=1,
        items=tuple(ItemResult(f"q{number}", 0, outcome) for number, outcome in enumerate(outcomes)),
        score=100.0 * right / (right + wrong),
        spread_pts=None,
        counts={"correct": right, "wrong": wrong, "unparseable": 0, "truncated": 0, "failed": 0},
        invalid=(),
        answers_file=f"answers-{name}.jsonl",
    )
    return replace(record, **changes)


def with_suites(record: ConfigRecord, *suites: SuiteRecord) -> ConfigRecord:
    return replace(record, suites={suite.name: suite for suite in suites})


MEASURED = (with_suites(RECORDS[0], suite_of(48, 2)), with_suites(RECORDS[1], suite_of(44, 6)))


def report_of(
    tmp_path: Path,
    records: tuple[ConfigRecord, ...] = MEASURED,
    deltas: Mapping[str, AccuracyDelta] | None = None,
    **of_spec: Any,
) -> dict[str, Any]:
    known = {"tuned": AccuracyDelta({NAME: DROP})} if deltas is None else deltas
    return build_report(spec_of(tmp_path, **of_spec), records, GATES, replace(CONTEXT, accuracy=known))


def test_the_published_figures_come_first(tmp_path: Path) -> None:
    base, tuned = report_of(tmp_path)["configs"]
    assert [list(entry["accuracy"])[:3] for entry in (base, tuned)] == [["score", "delta_pts", "spread_pts"]] * 2
    assert (base["accuracy"]["score"], base["accuracy"]["delta_pts"]) == (96.0, 0.0)
    assert (tuned["accuracy"]["score"], tuned["accuracy"]["delta_pts"]) == (88.0, -8.0)


def test_what_the_sample_can_tell_stands_beside_them(tmp_path: Path) -> None:
    base, tuned = report_of(tmp_path)["configs"]
    entry = tuned["accuracy"]
    assert (entry["suite"], entry["n"], entry["counts"]["wrong"]) == (NAME, 50, 6)
    assert entry["flips"] == {"right_to_wrong": 5, "wrong_to_right": 1}
    assert entry["interval_pts"] == [-19.8014, 2.1287]
    assert (entry["mid_p"], entry["resolvable_drop_pts"]) == (0.125, 12.1816)
    assert (entry["flip_rate"], entry["flip_rate_source"]) == (0.12, "observed")
    assert entry["validity"] == {"valid": True, "reasons": []}
    assert entry["missing"] == {"spread_pts": "one seed has no spread"}
    assert "flips" not in base["accuracy"]
    assert "accuracy_summary" not in tuned
    assert f"answers-{NAME}.jsonl" in tuned["files"]


def test_the_suite_is_named_with_its_threshold_and_hash(tmp_path: Path) -> None:
    report = report_of(tmp_path)
    assert report["accuracy"] == {
        "suite": NAME,
        "threshold_pts": 1.0,
        "n": 50,
        "seeds": 1,
        "scorer": "numeric",
        "shots": None,
        "sha256": "ab12",
    }
    assert report["provenance"]["hashes"]["suite_sha256"] == {"baseline": {NAME: "ab12"}, "tuned": {NAME: "ab12"}}
    assert not [line for line in report["not_covered"] if "Accuracy" in line]
    assert report["status"] == "published"


def test_the_control_is_the_baselines(tmp_path: Path) -> None:
    accuracy = {"baseline": AccuracyDelta({}, {NAME: FlipRate(1, 50)})}
    base, tuned = report_of(tmp_path, deltas=accuracy)["configs"]
    assert base["accuracy"]["control"] == {"flip_rate": 0.02, "flips": 1, "n": 50}
    assert "control" not in tuned["accuracy"]


def test_domains_of_a_suite_have_their_own_differences(tmp_path: Path) -> None:
    domains = {"sums": DomainDelta(-10.0, 30, (-20.0, 1.0), 0.04)}
    accuracy = {"tuned": AccuracyDelta({NAME: replace(DROP, domains=domains)})}
    assert report_of(tmp_path, deltas=accuracy)["configs"][1]["accuracy"]["domains"] == {
        "sums": {"delta_pts": -10.0, "interval_pts": [-20.0, 1.0], "n": 30, "holm_p": 0.04}
    }


def test_several_suites_are_lists_with_a_summary(tmp_path: Path) -> None:
    suites = [{"name": "math", "suite": "m.jsonl"}, {"name": "code", "suite": "c.jsonl", "max_drop_pts": 2.0}]
    scored = [suite_of(48, 2, "math"), suite_of(40, 10, "code")]
    records = tuple(with_suites(record, *scored) for record in RECORDS)
    delta = AccuracyDelta({"math": DROP, "code": LOST}, {}, 8.0, "math", 8.0, None, 2)
    report = report_of(tmp_path, records, {"tuned": delta}, accuracy=suites)
    assert [(each["suite"], each["threshold_pts"]) for each in report["accuracy"]] == [("math", 1.0), ("code", 2.0)]
    base, tuned = report["configs"]
    assert [each["suite"] for each in base["accuracy"]] == ["math", "code"]
    assert [each["delta_pts"] for each in tuned["accuracy"]] == [-8.0, -8.0]
    assert tuned["accuracy_summary"] == {
        "mean_drop_pts": 8.0,
        "worst": "math",
        "worst_drop_pts": 8.0,
        "tier": None,
        "valid_domains": 2,
        "left_out": [],
    }
    assert "accuracy_summary" not in base


# --- what is missing


def test_an_unmeasured_suite_is_null_with_the_reason(tmp_path: Path) -> None:
    report = report_of(tmp_path, (MEASURED[0], RECORDS[1]), {})
    entry = report["configs"][1]["accuracy"]
    assert [entry[name] for name in ("score", "delta_pts", "spread_pts")] == [None] * 3
    assert entry["missing"]["score"] == entry["missing"]["delta_pts"] == "not measured in this run"
    assert f"tuned: Accuracy ({NAME}): not measured in this run" in report["not_covered"]


def test_an_invalid_suite_makes_a_draft_and_says_why(tmp_path: Path) -> None:
    reason = Reason("items_failed", "3 of 50 items failed")
    broken = with_suites(RECORDS[1], suite_of(44, 6, score=None, invalid=(reason,)))
    report = report_of(tmp_path, (MEASURED[0], broken), {"tuned": AccuracyDelta({NAME: SuiteDelta(fault=reason)})})
    entry = report["configs"][1]["accuracy"]
    assert report["status"] == "draft"
    assert entry["validity"] == {"valid": False, "reasons": [{"code": reason.code, "text": reason.text}]}
    assert entry["missing"]["score"] == str(reason)
    assert f"tuned: Accuracy ({NAME}): {reason}" in report["not_covered"]


@pytest.mark.parametrize(
    ("delta", "why"),
    [
        (None, "there is no baseline to compare with"),
        (SuiteDelta(fault=Reason("suite_differs", "asked otherwise")), "suite_differs: asked otherwise"),
    ],
)
def test_a_score_that_is_not_compared_says_why(tmp_path: Path, delta: SuiteDelta | None, why: str) -> None:
    accuracy = {} if delta is None else {"tuned": AccuracyDelta({NAME: delta})}
    entry = report_of(tmp_path, deltas=accuracy)["configs"][1]["accuracy"]
    assert (entry["score"], entry["delta_pts"]) == (88.0, None)
    assert entry["missing"]["delta_pts"] == entry["missing"]["interval_pts"] == why


def test_scores_of_other_tools_have_no_interval(tmp_path: Path) -> None:
    foreign = suite_of(44, 6, items=(), counts={}, n=50, sha256="", answers_file=None, spread_pts=0.0)
    delta = SuiteDelta(delta_pts=-8.0, n=50, items=50, resolvable_pts=7.862, flip_rate=0.05, flip_source="assumed")
    records = (with_suites(RECORDS[0], replace(foreign, score=96.0)), with_suites(RECORDS[1], foreign))
    report = report_of(tmp_path, records, {"tuned": AccuracyDelta({NAME: delta})})
    entry = report["configs"][1]["accuracy"]
    assert (entry["spread_pts"], entry["resolvable_drop_pts"], entry["interval_pts"]) == (0.0, 7.862, None)
    assert entry["missing"]["interval_pts"] == "the record has no results of single items"
    assert report["summary"].endswith("showed -8.0 pt accuracy with an unknown error.")
    assert (report["accuracy"]["n"], report["accuracy"]["sha256"]) == (50, None)


def test_every_null_of_an_entry_has_its_reason(tmp_path: Path) -> None:
    foreign = with_suites(RECORDS[1], suite_of(44, 6, items=(), counts={}, sha256=""))
    unknown = {"tuned": AccuracyDelta({NAME: SuiteDelta(delta_pts=-8.0)})}
    clustered = {"tuned": AccuracyDelta({NAME: replace(DROP, mid_p=None)})}
    cases: list[tuple[tuple[ConfigRecord, ...], Mapping[str, AccuracyDelta]]] = [
        (MEASURED, clustered),
        (MEASURED, {}),
        ((MEASURED[0], foreign), unknown),
        (RECORDS, {}),
        ((MEASURED[0], record_of("tuned", None, invalid=(Reason("engine_died", "signal 9"),))), {}),
    ]
    for records, accuracy in cases:
        for config in report_of(tmp_path, records, accuracy)["configs"]:
            entry = config["accuracy"]
            assert {name for name, value in entry.items() if value is None} == set(entry["missing"])


def test_without_a_block_the_published_fields_stay(tmp_path: Path) -> None:
    report = report_of(tmp_path, RECORDS, {}, accuracy=None)
    assert report["accuracy"] == {"suite": None, "threshold_pts": None}
    assert report["configs"][0]["accuracy"] == {"score": None, "delta_pts": None, "spread_pts": None}
    assert "Accuracy: the spec has no accuracy block" in report["not_covered"]


def test_the_report_is_json(tmp_path: Path) -> None:
    json.dumps(report_of(tmp_path), allow_nan=False)


# --- in words


@pytest.mark.parametrize(
    ("delta", "words"),
    [
        (DROP, "made no measurable difference to accuracy (-8.0 pt)"),
        (LOST, "lowered accuracy 8.0 pt (95 % interval -23.8 to -3.1)"),
        (
            replace(DROP, delta_pts=4.0, interval_pts=(0.5, 8.0)),
            "raised accuracy 4.0 pt (95 % interval +0.5 to +8.0)",
        ),
    ],
)
def test_the_summary_weighs_a_difference_by_its_interval(tmp_path: Path, delta: SuiteDelta, words: str) -> None:
    summary = report_of(tmp_path, deltas={"tuned": AccuracyDelta({NAME: delta})})["summary"]
    assert summary.endswith(f"vllm-fp8kv raised SLO goodput 10.6 % (± 3.6 %) and {words}.")


def test_the_summary_names_suites_where_there_are_several(tmp_path: Path) -> None:
    suites = {"math": LOST, "code": DROP, "law": replace(DROP, delta_pts=0.0), "chat": SuiteDelta()}
    summary = report_of(tmp_path, deltas={"tuned": AccuracyDelta(suites)})["summary"]
    assert summary.endswith(
        "lowered accuracy (math) 8.0 pt (95 % interval -23.8 to -3.1) "
        "and made no measurable difference to accuracy (code -8.0, law 0.0 pt)."
    )


def test_a_baseline_is_summed_up_by_its_score(tmp_path: Path) -> None:
    summary = report_of(tmp_path)["summary"]
    assert summary.startswith(
        "vllm-default reached an SLO goodput of 4572 tok/s at 11.2 req/s and scored 96.0 % on gsm8k-5shot."
    )
    only = with_suites(record_of("baseline", None), suite_of(48, 2))
    spec = spec_of(tmp_path, configs=SPEC["configs"][:1])
    assert build_report(spec, (only,), (), CONTEXT)["summary"] == "vllm-default scored 96.0 % on gsm8k-5shot."


def test_a_gate_that_failed_is_said_behind_the_change(tmp_path: Path) -> None:
    gates = (gate("tuned", f"accuracy[{NAME}]", Verdict.FAIL, value=-8.0, unit="pt", limit=-1.0),)
    context = replace(CONTEXT, accuracy={"tuned": AccuracyDelta({NAME: LOST})})
    summary = build_report(spec_of(tmp_path), MEASURED, gates, context)["summary"]
    assert summary.endswith(
        "vllm-fp8kv lowered accuracy 8.0 pt (95 % interval -23.8 to -3.1) but failed the accuracy[gsm8k-5shot] gate."
    )

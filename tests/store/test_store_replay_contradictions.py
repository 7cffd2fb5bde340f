"""Figures of one of our own reports that deny each other get no verdict; honest ones, however rounded, keep theirs."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.metrics.paired import compare
from pytest_tokenwatt.metrics.tally import outcome_counts, score_pct
from pytest_tokenwatt.records import ConfigRecord
from pytest_tokenwatt.records.accuracy import ItemResult, Outcome
from pytest_tokenwatt.replay import open_replay
from pytest_tokenwatt.store.replay.read import read_stored

REFERENCE = Path(__file__).parent.parent / "report" / "reference" / "lab-kv-cache.json"
SUITE = "gsm8k-5shot"
VALID = {"valid": True, "reasons": []}
KL = {"kl": 0.01, "kl_se": 0.0005, "kl_lower": 0.0095, "kl_lower_se": 0.0005, "k": 20, "sequences": 3, "tokens": 99}


def outcomes(right: str) -> list[ItemResult]:
    """One item a letter: right, wrong, unparseable, truncated or failed."""
    known = {outcome.value[0]: outcome for outcome in Outcome}
    return [ItemResult(str(number), 0, known[letter]) for number, letter in enumerate(right)]


def rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def entry_of(own: str, base: str | None = None) -> dict[str, Any]:
    """What a report says of these answers, as the report writer rounds it."""
    items = outcomes(own)
    entry = {"suite": SUITE, "score": rounded(score_pct(items)), "counts": outcome_counts(items), "validity": VALID}
    if base is None:
        return {**entry, "delta_pts": 0.0, "n": len(own) - own.count("f")}
    found = compare(outcomes(base), items)
    return {
        **entry,
        "delta_pts": rounded(found.delta_pts),
        "n": found.counts.n,
        "flips": {"right_to_wrong": found.counts.base_only, "wrong_to_right": found.counts.candidate_only},
        "interval_pts": [rounded(end) for end in found.interval_pts() or ()],
        "mid_p": rounded(found.mid_p),
    }


def report_of(own: str, base: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(REFERENCE.read_text(encoding="utf-8"))
    content["schema"] = "tokenwatt-report/1"
    baseline, tuned = content["configs"]
    for row, entry in ((baseline, entry_of(base)), (tuned, entry_of(own, base))):
        row |= {"accuracy": entry, "validity": VALID}
    tuned["kl"] = {**KL, "validity": VALID}
    return content


REPORT = report_of("c" * 95 + "w" * 5, "w" + "c" * 95 + "w" * 4)


def stored(content: dict[str, Any], folder: Path) -> ConfigRecord:
    path = folder / "report.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return read_stored(path).records[1]


def told(content: dict[str, Any], folder: Path) -> list[str]:
    """The codes of what speaks against the suite."""
    return [reason.code for reason in stored(content, folder).suites[SUITE].invalid]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("counts", {"correct": 10, "wrong": 90}),
        ("counts", {"correct": 95, "wrong": 5, "failed": 2, "truncated": 3}),
        ("score", 96.0),
        ("n", 99),
        ("n", 101),
        ("flips", {"right_to_wrong": 2, "wrong_to_right": 1}),
        ("flips", {"right_to_wrong": 98, "wrong_to_right": 98}),
        ("flips", {"right_to_wrong": 0, "wrong_to_right": 0}),
        ("delta_pts", 0.01),
        ("delta_pts", 3.0),
        ("interval_pts", [0.5, 3.0]),
        ("interval_pts", [-3.0, -0.5]),
        ("mid_p", 0.01),
    ],
)
def test_a_figure_that_the_others_deny_makes_the_suite_invalid(tmp_path: Path, key: str, value: Any) -> None:
    assert told(REPORT, tmp_path) == []
    content = deepcopy(REPORT)
    content["configs"][1]["accuracy"][key] = value
    assert told(content, tmp_path) == ["contradiction"]


def test_a_baseline_that_its_own_counts_deny_is_invalid(tmp_path: Path) -> None:
    content = deepcopy(REPORT)
    content["configs"][0]["accuracy"]["counts"]["correct"] = 60
    path = tmp_path / "report.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    assert [reason.code for reason in read_stored(path).records[0].suites[SUITE].invalid] == ["contradiction"]


def test_the_gate_is_invalid_then_and_says_what_is_denied(tmp_path: Path) -> None:
    content = deepcopy(REPORT)
    content["configs"][1]["accuracy"]["counts"] = {"correct": 10, "wrong": 90}
    path = tmp_path / "report.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    lab = open_replay([path], out=tmp_path / "out")
    gate = next(each for each in lab.gates if each.kind == "accuracy" and each.config == "tuned")
    result = lab.judge(gate)
    assert (result.verdict, [reason.code for reason in result.reasons]) == ("invalid", ["contradiction"])
    assert "95 % is stored, but 10 of 100 answers are right" in result.reasons[0].text


ANSWERS = st.lists(st.sampled_from([f"{own}{base}" for own in "cwutf" for base in "cwutf"]), min_size=2, max_size=60)


@given(ANSWERS)
def test_what_a_report_says_of_honest_answers_is_never_denied(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[str]
) -> None:
    """Failed answers are in no score, and pairs with one in no difference; both are rounded to six digits."""
    own, base = "".join(pair[0] for pair in pairs), "".join(pair[1] for pair in pairs)
    if all("f" in pair for pair in pairs):
        return
    assert told(report_of(own, base), tmp_path_factory.getbasetemp()) == []


def test_several_seeds_and_clusters_have_flips_without_a_p_value(tmp_path: Path) -> None:
    content = deepcopy(REPORT)
    entry = content["configs"][1]["accuracy"]
    entry |= {"mid_p": None, "interval_pts": [-8.0, 8.0]}
    assert told(content, tmp_path) == []


def test_what_failed_on_a_baseline_that_is_stored_elsewhere_is_not_known(tmp_path: Path) -> None:
    content = deepcopy(report_of("c" * 95 + "w" * 5, "f" + "c" * 99))
    del content["configs"][0]
    path = tmp_path / "report.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    assert read_stored(path).records[0].suites[SUITE].invalid == ()


def test_answers_that_are_not_compared_count_all_the_same(tmp_path: Path) -> None:
    content = deepcopy(REPORT)
    nothing = dict.fromkeys(("delta_pts", "flips", "interval_pts", "mid_p"))
    content["configs"][1]["accuracy"] |= {**nothing, **{name: entry_of("c" * 120)[name] for name in ("counts", "n")}}
    content["configs"][1]["accuracy"]["score"] = 100.0
    assert told(content, tmp_path) == []


# --- drift


def drift_of(folder: Path, **changes: Any) -> list[str]:
    content = deepcopy(REPORT)
    content["configs"][1]["kl"] |= changes
    record = stored(content, folder).drift
    assert record is not None
    assert record.against is not None
    return [reason.code for reason in record.against.invalid]


def test_a_bound_above_what_it_bounds_is_a_contradiction(tmp_path: Path) -> None:
    assert drift_of(tmp_path) == []
    assert drift_of(tmp_path, kl_lower=0.0115) == []
    assert drift_of(tmp_path, kl_lower=0.02) == ["contradiction"]
    assert drift_of(tmp_path, kl=0.005, kl_se=None, kl_lower_se=None) == ["contradiction"]
    assert drift_of(tmp_path, kl=0.0, kl_lower=4e-7, kl_se=0.0, kl_lower_se=0.0) == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"top1_agreement": 1.2}, "kl.top1_agreement: expected a number >= 0 and <= 1, found 1.2"),
        ({"top1_agreement": -0.1}, "kl.top1_agreement: expected a number >= 0 and <= 1"),
        ({"tail_mass": 1.5}, "kl.tail_mass: expected a number"),
        ({"tail_mass": -0.5}, "kl.tail_mass: expected a number"),
        ({"histogram": {"bins": [0.0, 0.1], "counts": [1, 2]}}, "histogram.bins: expected 3 edges in their order"),
        ({"histogram": {"bins": [0.2, 0.1], "counts": [1]}}, "histogram.bins: expected 2 edges in their order"),
        ({"histogram": {"bins": [0.0, 0.1], "counts": [1.5]}}, "histogram.counts: expected whole numbers"),
        ({"histogram": {"bins": [0.0, None], "counts": [1]}}, "histogram.bins: expected numbers alone"),
    ],
)
def test_a_share_or_histogram_that_cannot_be_is_refused_with_its_place(
    tmp_path: Path, changes: dict[str, Any], text: str
) -> None:
    with pytest.raises(UsageError) as caught:
        drift_of(tmp_path, **changes)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"flip_rate_source": "guessed"}, "accuracy.flip_rate_source: expected one of control, observed, assumed"),
        ({"control": {"flips": 5, "n": 3}}, "accuracy.control.flips: 5 of 3 answers cannot have flipped"),
        ({"mid_p": 1.5}, "accuracy.mid_p: expected a number >= 0 and <= 1"),
    ],
)
def test_a_comparison_that_cannot_be_is_refused_with_its_place(
    tmp_path: Path, changes: dict[str, Any], text: str
) -> None:
    content = deepcopy(REPORT)
    content["configs"][1]["accuracy"] |= changes
    with pytest.raises(UsageError) as caught:
        stored(content, tmp_path)
    assert text in str(caught.value)

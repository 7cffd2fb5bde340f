"""Drift in a lab report: the figures of published records, or the reasons why there are none."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_samples import CONTEXT, GATES, RECORDS, spec_of

from pytest_tokenwatt.records import ConfigRecord, Reason
from pytest_tokenwatt.records.drift import (
    Divergence,
    DriftDelta,
    DriftRecord,
    KlDelta,
    PerplexityDelta,
    PerplexityRecord,
)
from pytest_tokenwatt.report.lab import build_report

BLOCK: dict[str, Any] = {"prompts": "p.jsonl", "perplexity": [{"name": "wikitext2", "file": "w.txt"}]}
AGAINST = Divergence(
    kl=0.009696001,
    kl_se=0.000736431,
    kl_lower=0.0091,
    kl_lower_se=0.0007,
    kl_sampled=0.0098,
    kl_sampled_se=0.0009,
    kl_median=0.0079366,
    kl_per_token=0.0096848,
    tail_mass=0.012,
    top1_agreement=0.971,
    k=20,
    sequences=256,
    tokens=62_197,
    invalid_positions=2,
    by_confidence={"0.0-0.5": (0.02, 10_000.0), "0.5-1.0": (0.007, 52_197.0)},
    per_sequence=(0.0, 0.004, 0.006, 0.0061, 0.02),
    notes=("2 positions are left out",),
)
CONTROL = replace(AGAINST, kl=0.0, kl_se=0.0, kl_median=0.0, kl_per_token=0.0, top1_agreement=1.0, tokens=62_076)
BASE_PPL = PerplexityRecord("wikitext2", "ef" * 32, 146, 298_862, (2.2, 2.4), 9.721906)
PPL = replace(BASE_PPL, nll=(2.3, 2.4), ppl=9.732609)
SCORED = DriftRecord("ab" * 32, "prompt_logprobs", 20, 256, 62_197, None, None, file="drift-tuned.npz")
BASELINE = replace(SCORED, control=CONTROL, perplexity={"wikitext2": BASE_PPL}, decode_gap=0.0, file=None)
TUNED = replace(SCORED, against=AGAINST, perplexity={"wikitext2": PPL}, decode_gap=0.0012, decode_tokens=4096)
KL = KlDelta(0.009696001, 0.000736431, 0.0079, 0.0109, 0.0)
CHANGE = PerplexityDelta("wikitext2", 0.0011003, 0.0006999, 9.732609, 9.721906, 146, 298_862)
DELTA = DriftDelta(KL, CONTROL, {"wikitext2": CHANGE})
FAULT = Reason("zero_divergence", "tuned does not differ from baseline at all")


def records(tuned: DriftRecord | None = TUNED, base: DriftRecord | None = BASELINE) -> tuple[ConfigRecord, ...]:
    return replace(RECORDS[0], drift=base), replace(RECORDS[1], drift=tuned)


def report_of(
    tmp_path: Path,
    found: tuple[ConfigRecord, ...] | None = None,
    delta: DriftDelta | None = DELTA,
    **of_spec: Any,
) -> dict[str, Any]:
    spec = spec_of(tmp_path, **{"drift": BLOCK, **of_spec})
    drift = {} if delta is None else {"tuned": delta}
    report = build_report(spec, found or records(), GATES, replace(CONTEXT, drift=drift))
    json.dumps(report, allow_nan=False)
    return report


def lines(report: dict[str, Any]) -> list[str]:
    return [line for line in report["not_covered"] if "KL div" in line or "Perplexity" in line or "Decode" in line]


def test_the_figures_have_the_names_of_published_records(tmp_path: Path) -> None:
    report = report_of(tmp_path)
    kl = report["configs"][1]["kl"]
    assert {name: kl[name] for name in ("kl", "kl_median", "kl_per_token", "kl_se", "sequences", "tokens")} == {
        "kl": 0.009696,
        "kl_median": 0.0079366,
        "kl_per_token": 0.0096848,
        "kl_se": 0.000736431,
        "sequences": 256,
        "tokens": 62_197,
    }
    assert kl["identity"] == {
        "kl": 0.0,
        "kl_median": 0.0,
        "kl_per_token": 0.0,
        "kl_se": 0.0,
        "top1_agreement": 1.0,
        "sequences": 256,
        "tokens": 62_076,
        "validity": {"valid": True, "reasons": []},
    }
    assert kl["ppl"] == {
        "wikitext2": {
            "dnll": 0.0011003,
            "dnll_se": 0.0006999,
            "ppl": 9.73261,
            "ppl_bf16": 9.72191,
            "tokens": 298_862,
            "windows": 146,
            "validity": {"valid": True, "reasons": []},
        }
    }
    assert (kl["kl_lower"], kl["kl_sampled"], kl["tail_mass"], kl["k"]) == (0.0091, 0.0098, 0.012, 20)
    assert (kl["top1_agreement"], kl["route"], kl["decode_gap"]) == (0.971, "prompt_logprobs", 0.0012)
    assert kl["by_confidence"]["0.5-1.0"] == {"kl_lower": 0.007, "tokens": 52_197}
    assert (kl["validity"], kl["missing"]) == ({"valid": True, "reasons": []}, {})
    assert kl["notes"] == ["2 positions are left out"]
    assert lines(report) == []


def test_sequences_are_counted_in_equal_bins(tmp_path: Path) -> None:
    histogram = report_of(tmp_path)["configs"][1]["kl"]["histogram"]
    assert (len(histogram["bins"]), histogram["bins"][0], histogram["bins"][-1]) == (21, 0.0, 0.02)
    assert (sum(histogram["counts"]), histogram["counts"][0], histogram["counts"][-1]) == (5, 1, 1)
    assert histogram["counts"][6] == 2
    equal = replace(TUNED, against=replace(AGAINST, per_sequence=(0.0, 0.0)))
    assert report_of(tmp_path, records(equal))["configs"][1]["kl"]["histogram"] == {"bins": [0.0, 0.0], "counts": [2]}


def test_the_baseline_has_its_control_and_its_own_perplexity(tmp_path: Path) -> None:
    kl = report_of(tmp_path)["configs"][0]["kl"]
    assert (kl["kl"], kl["missing"]["kl"]) == (None, "the baseline is what others are compared with")
    assert (kl["identity"]["kl"], kl["validity"]["valid"]) == (0.0, True)
    assert (kl["ppl"]["wikitext2"]["ppl"], kl["ppl"]["wikitext2"]["dnll"]) == (9.72191, None)


def test_files_and_hashes_are_named(tmp_path: Path) -> None:
    report = report_of(tmp_path)
    assert "drift-tuned.npz" in report["configs"][1]["files"]
    assert report["provenance"]["hashes"]["drift_sha256"] == {"baseline": "ab" * 32, "tuned": "ab" * 32}


def test_what_is_not_believed_says_so_and_makes_a_draft(tmp_path: Path) -> None:
    broken = replace(TUNED, against=replace(AGAINST, kl=None, kl_se=math.nan, invalid=(FAULT,)))
    report = report_of(tmp_path, records(broken), replace(DELTA, kl=KlDelta(faults=(FAULT,))))
    kl = report["configs"][1]["kl"]
    assert kl["validity"] == {"valid": False, "reasons": [{"code": FAULT.code, "text": FAULT.text}]}
    assert (kl["kl_se"], kl["missing"]["kl_se"]) == (None, str(FAULT))
    assert report["status"] == "draft"
    assert report_of(tmp_path)["status"] == "published"


def test_a_missing_identity_or_decode_gap_says_why(tmp_path: Path) -> None:
    bare = records(replace(TUNED, decode_gap=None), replace(BASELINE, control=None, decode_gap=None))
    kl = report_of(tmp_path, bare, replace(DELTA, control=None))["configs"][1]["kl"]
    assert kl["missing"] == {
        "identity": "the baseline was not scored against itself",
        "decode_gap": "the decode path was not scored",
    }
    off = {**BLOCK, "control": False, "decode": False}
    report = report_of(tmp_path, bare, replace(DELTA, control=None), drift=off)
    assert report["configs"][1]["kl"]["missing"] == {
        "identity": "drift.control is off",
        "decode_gap": "drift.decode is off",
    }
    assert lines(report) == [
        "KL divergence of the baseline from itself: drift.control is off, so that it counts as 0",
        "Decode path: drift.decode is off, so that only prefill was scored",
    ]


@pytest.mark.parametrize(
    ("found", "delta", "why"),
    [
        (records(None), DriftDelta(KlDelta(faults=(FAULT,))), "not measured in this run"),
        (
            (records()[0], replace(RECORDS[1], invalid=(Reason("engine_died", "signal 9"),))),
            None,
            "engine_died: signal 9",
        ),
    ],
)
def test_without_a_record_the_block_is_null_with_its_reason(
    tmp_path: Path, found: tuple[ConfigRecord, ...], delta: DriftDelta | None, why: str
) -> None:
    report = report_of(tmp_path, found, delta)
    tuned = report["configs"][1]
    assert (tuned["kl"], tuned["missing"]["kl"]) == (None, why)
    assert lines(report) == [f"tuned: KL divergence: {why}"]


def test_what_was_scored_without_a_baseline_says_so(tmp_path: Path) -> None:
    report = report_of(tmp_path, (replace(RECORDS[1], drift=replace(TUNED, against=None)),), None)
    assert lines(report) == ["tuned: KL divergence: there is no baseline to compare with"]
    assert report["configs"][0]["kl"]["ppl"]["wikitext2"]["ppl"] == 9.73261


def test_a_corpus_and_a_decode_path_that_were_not_scored_are_not_covered(tmp_path: Path) -> None:
    unread = replace(TUNED, perplexity={}, decode_gap=None)
    delta = replace(DELTA, perplexity={"wikitext2": replace(CHANGE, dnll=None, invalid=(FAULT,))})
    report = report_of(tmp_path, records(unread), delta)
    assert lines(report) == [
        "tuned: Decode path: not scored",
        "tuned: Perplexity (wikitext2): not measured in this run",
    ]
    corpus = report["configs"][1]["kl"]["ppl"]["wikitext2"]
    assert (corpus["ppl"], corpus["validity"]["valid"]) == (None, False)


def test_without_a_block_it_is_said_once(tmp_path: Path) -> None:
    report = report_of(tmp_path, RECORDS, None, drift=None)
    assert lines(report) == ["KL divergence and perplexity: the spec has no drift block"]
    assert {each["missing"]["kl"] for each in report["configs"]} == {"the spec has no drift block"}


@pytest.mark.parametrize(
    ("kl", "words"),
    [
        (KL, "drifted 0.0097 nats per token from the baseline (± 0.0014)"),
        (replace(KL, value=0.001), "showed no measurable drift (0.0010 ± 0.0014 nats per token)"),
        (
            replace(KL, control=None),
            "drifted 0.0097 nats per token from the baseline (± 0.0014, without a control)",
        ),
        (replace(KL, se=None), "drifted 0.0097 nats per token from the baseline with an unknown error"),
        (KlDelta(0.0, 0.0, 0.0, 0.0, 0.0, True), "gave the baseline's log-probabilities to the last bit"),
    ],
)
def test_the_summary_has_one_phrase_of_it(tmp_path: Path, kl: KlDelta, words: str) -> None:
    assert words in report_of(tmp_path, None, replace(DELTA, kl=kl))["summary"]


def test_the_summary_is_silent_without_a_figure(tmp_path: Path) -> None:
    assert "drift" not in report_of(tmp_path, None, replace(DELTA, kl=KlDelta(faults=(FAULT,))))["summary"]

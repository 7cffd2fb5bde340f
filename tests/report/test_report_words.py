"""What a lab report puts in words: its summary, its status, and what was measured on what."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_samples import CONTEXT, GATES, RECORDS, SPEC, gate, goodput_of, record_of, spec_of

from pytest_tokenwatt.records import Reason, SloBound, Verdict
from pytest_tokenwatt.report.lab import build_report


@pytest.mark.parametrize(
    ("ratio", "error", "words"),
    [
        (1.106, 0.036, "vllm-fp8kv raised SLO goodput 10.6 % (± 3.6 %)."),
        (0.9, 0.036, "vllm-fp8kv lowered SLO goodput 10.0 % (± 3.6 %)."),
        (1.0017, 0.007, "vllm-fp8kv made no measurable difference to SLO goodput (+0.2 % ± 0.7 %)."),
        (1.2, None, "vllm-fp8kv showed +20.0 % SLO goodput with an unknown error."),
    ],
)
def test_the_summary_weighs_a_difference_by_its_error(
    tmp_path: Path, ratio: float, error: float | None, words: str
) -> None:
    gates = (gate("tuned", "goodput", value=ratio, unit="ratio", error=error),)
    assert build_report(spec_of(tmp_path), RECORDS, gates, CONTEXT)["summary"].endswith(words)


def test_the_summary_names_what_did_not_pass(tmp_path: Path) -> None:
    gates = (*GATES, gate("tuned", "accuracy[gsm8k-5shot]", Verdict.FAIL), gate("tuned", "kl", Verdict.INCONCLUSIVE))
    assert build_report(spec_of(tmp_path), RECORDS, gates, CONTEXT)["summary"].endswith(
        "vllm-fp8kv raised SLO goodput 10.6 % (± 3.6 %) but "
        "failed the accuracy[gsm8k-5shot] gate and left the kl gate inconclusive."
    )


def test_an_absolute_goodput_is_no_change(tmp_path: Path) -> None:
    gates = (gate("baseline", "goodput", value=4572.3, unit="tok/s"),)
    summary = build_report(spec_of(tmp_path), RECORDS[:1], gates, CONTEXT)["summary"]
    assert summary == "vllm-default reached an SLO goodput of 4572 tok/s at 11.2 req/s."


def test_a_repeat_says_how_far_it_drifted(tmp_path: Path) -> None:
    configs = [SPEC["configs"][0], {"key": "again", "role": "other", "label": "default (repeat)", "like": "baseline"}]
    records = (RECORDS[0], record_of("again", goodput_of(4600.0)))
    report = build_report(spec_of(tmp_path, configs=configs), records, (), CONTEXT)
    assert report["summary"].endswith("default (repeat) repeated vllm-default with +0.6 % SLO goodput.")
    assert report["configs"][1]["like"] == "baseline"


def test_quick_simulated_and_interrupted_runs_are_drafts_and_say_so(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    identity = RECORDS[0].identity
    assert identity is not None
    simulated = replace(RECORDS[0], identity=replace(identity, simulated=True))
    for run, records, context, words in (
        (spec.quick(), RECORDS, CONTEXT, "Quick mode"),
        (spec, (simulated,), CONTEXT, "Simulated engine"),
        (spec, RECORDS, replace(CONTEXT, interrupted="Ctrl-C after 12 min"), "Interrupted run"),
    ):
        report = build_report(run, records, (), context)
        assert report["status"] == "draft"
        assert report["summary"].startswith(f"{words}. ")
        assert [line for line in report["not_covered"] if line.startswith(f"{words}:")]


def test_an_invalid_measurement_makes_a_draft(tmp_path: Path) -> None:
    invalid = goodput_of(4572.3, invalid=(Reason("client_lag", "p99 31 ms > 20 ms"),))
    report = build_report(spec_of(tmp_path), (record_of("baseline", invalid),), (), CONTEXT)
    assert report["status"] == "draft"
    assert report["configs"][0]["validity"]["reasons"] == [{"code": "client_lag", "text": "p99 31 ms > 20 ms"}]


def test_several_scenarios_are_all_listed(tmp_path: Path) -> None:
    scenarios = [{"name": "chat"}, {"name": "rag", "slo": {"e2e_p95_ms": 9000}, "workload": {"input_tokens": 8192}}]
    spec = spec_of(tmp_path, scenarios=scenarios, configs=SPEC["configs"][:1])
    chat = goodput_of(4572.3, scenario="chat")
    rag = goodput_of(900.0, scenario="rag", slo=(SloBound("e2e", 95.0, 9000.0),), rate_rps=3.5)
    record = record_of("baseline", None, scenarios={"chat": chat, "rag": rag})
    report = build_report(spec, (record,), (gate("baseline", "slo[rag]"),), CONTEXT)
    assert report["scenarios"]["rag"]["slo"] == {"e2e_p95_ms": 9000.0}
    assert report["scenarios"]["rag"]["workload"]["input_tokens"] == "8,192"
    entry = report["configs"][0]
    assert entry["goodput_tok_s"] == entry["scenarios"]["chat"]["goodput_tok_s"] == 4572.3
    assert entry["scenarios"]["rag"]["rate_rps"] == 3.5
    assert "4572 tok/s at 11.2 req/s (chat) and 900 tok/s at 3.5 req/s (rag)" in report["summary"]


def test_lengths_and_rates_in_words(tmp_path: Path) -> None:
    workload = {"input_tokens": {"median": 2000, "p90": 8000.0}, "max_output_tokens": 2048}
    spec = spec_of(tmp_path, workload=workload, sweep={"rates": [2, 4.5]})
    assert build_report(spec, RECORDS, (), CONTEXT)["workload"] == {
        "trace": "chat-mix-v1",
        "input_tokens": "median 2,000 · p90 8,000",
        "output_tokens": "median 256 · p90 1,024 · at most 2,048",
        "arrival": "Poisson, fixed rates 2, 4.5 req/s",
    }
    fixed = spec_of(tmp_path, workload={"trace": "traces/mine.jsonl"}, gates={"slo": {"at_rps": 4}})
    assert build_report(fixed, RECORDS, (), CONTEXT)["workload"] == {
        "trace": "mine.jsonl",
        "input_tokens": "as in the trace",
        "output_tokens": "as in the trace",
        "arrival": "Poisson, fixed rate 4 req/s",
    }


def test_an_upgrade_shows_both_versions(tmp_path: Path) -> None:
    identity = RECORDS[1].identity
    assert identity is not None
    records = (RECORDS[0], replace(RECORDS[1], identity=replace(identity, version="0.32.0")))
    report = build_report(spec_of(tmp_path), records, (), CONTEXT)
    assert report["software"]["engine_version"] == "0.31.0 / 0.32.0"
    assert report["configs"][1]["engine"] == "vLLM 0.32.0 · KV FP8"


@pytest.mark.parametrize(
    ("config", "shape"),
    [({"num_experts": 128}, "MoE"), ({"text_config": {"num_local_experts": 8}}, "MoE"), ({"hidden_size": 8}, "dense")],
)
def test_the_shape_is_read_from_the_models_config(tmp_path: Path, config: dict[str, Any], shape: str) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text(json.dumps(config), encoding="utf-8")
    model = {**SPEC["model"], "geometry": {}, "path": "model", "tensor_parallel": 2, "replicas": 2}
    described = build_report(spec_of(tmp_path, model=model), RECORDS, (), CONTEXT)["model"]
    assert described["shape"] == shape
    assert described["parallelism"] == "2 replicas × TP2"


def test_a_shape_that_nothing_tells_is_null(tmp_path: Path) -> None:
    model = {**SPEC["model"], "geometry": {}, "path": "Qwen/Qwen3-30B-A3B-FP8"}
    assert build_report(spec_of(tmp_path, model=model), RECORDS, (), CONTEXT)["model"]["shape"] is None

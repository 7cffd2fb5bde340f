"""Rules about figures of profiles, suites, corpora and the start-up log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gates_builders import INVALID, config, profile, profile_run, rule, suite

from pytest_tokenwatt.gates.catalog import list_gates
from pytest_tokenwatt.gates.figures import figure_needs, split_name
from pytest_tokenwatt.gates.judge import judge
from pytest_tokenwatt.records import ConfigRecord, GateResult, Verdict
from pytest_tokenwatt.records.drift import DriftRecord, PerplexityRecord
from pytest_tokenwatt.records.profiles import EnginePeaks, PeakMemory, Startup
from pytest_tokenwatt.spec.load import load_spec


def codes(result: GateResult) -> list[str]:
    return [reason.code for reason in result.reasons]


def wiki(ppl: float | None = 9.73, sha256: str = "ab", **changes: Any) -> DriftRecord:
    record = PerplexityRecord("wiki", sha256, 10, 1000, (2.0,), ppl)
    return DriftRecord("", "", 20, 0, 0, None, None, perplexity={"wiki": replace(record, **changes)})


def measured(key: str = "tuned", **changes: Any) -> ConfigRecord:
    runs = (profile_run(900.0, ttft_p50_ms=50.0), profile_run(1100.0, ttft_p50_ms=70.0))
    memory = PeakMemory(peak_gib=30.1, kv_bytes_per_token=73563.0, missing={"device_peak_gib": "no driver"})
    serve = profile(900.0, 1100.0, memory=memory, runs=runs)
    parts = {
        "profiles": {"serve": serve},
        "suites": {"gsm8k": suite("+" * 96 + "-" * 4)},
        "drift": wiki(),
        "startup": Startup(load_seconds=3.4, missing={"cuda_graph_gib": "no graphs on a CPU"}),
    }
    return config(key, **{**parts, **changes})


@pytest.mark.parametrize(
    ("metric", "value", "unit"),
    [
        ("serve.output_tok_s", 1000.0, "tok/s"),
        ("serve.ttft_p50_ms", 70.0, "ms"),
        ("serve.peak_gib", 30.1, "GiB"),
        ("serve.kv_bytes_per_token", 73563.0, "B"),
        ("gsm8k.score", 96.0, "%"),
        ("wiki.ppl", 9.73, "ppl"),
        ("startup.load_seconds", 3.4, "s"),
    ],
)
def test_a_rule_may_name_figures_of_the_configuration(metric: str, value: float, unit: str) -> None:
    result = judge(rule(metric, max=value), measured(), None)
    assert (result.verdict, result.value, result.unit) == (Verdict.PASS, value, unit)
    assert codes(judge(rule(metric, max=0.99 * value), measured(), None)) == ["rule_broken"]
    against = judge(rule(metric, max_ratio=1.0), measured(), measured("baseline"))
    assert (against.verdict, against.text[-2:]) == (Verdict.PASS, "1x")


@pytest.mark.parametrize(
    ("metric", "changes", "why"),
    [
        ("serve.device_peak_gib", {}, "no driver"),
        ("serve.tpot_p50_ms", {}, "not read in every repeat"),
        ("serve.preemptions", {}, "not read in every repeat"),
        ("offline.peak_gib", {}, "profile offline was not measured"),
        ("serve.output_tok_s", {"profiles": {"serve": profile(1.0, invalid=(INVALID,))}}, INVALID.text),
        ("gsm8k.score", {"suites": {"gsm8k": suite("+", invalid=(INVALID,))}}, INVALID.text),
        ("gsm8k.score", {"suites": {}}, "not measured"),
        ("wiki.ppl", {"drift": wiki(invalid=(INVALID,))}, INVALID.text),
        ("wiki.ppl", {"drift": None}, "not measured"),
        ("startup.cuda_graph_gib", {}, "no graphs on a CPU"),
        ("startup.load_seconds", {"startup": None}, "the start-up log was not read"),
    ],
)
def test_a_figure_that_was_not_measured_is_invalid(metric: str, changes: dict[str, Any], why: str) -> None:
    result = judge(rule(metric, max=1.0), measured(**changes), None)
    assert (result.verdict, codes(result)) == (Verdict.INVALID, ["not_measured"])
    assert why in result.reasons[0].text
    base = judge(rule(metric, max_ratio=1.0), measured(), measured("baseline", **changes))
    assert codes(base)[0] in ("not_measured", "baseline_invalid")


@pytest.mark.parametrize(
    ("metric", "changes"),
    [
        ("serve.output_tok_s", {"profiles": {"serve": profile(1000.0, load_sha256="cd")}}),
        ("gsm8k.score", {"suites": {"gsm8k": suite("+", sha256="cd")}}),
        ("wiki.ppl", {"drift": wiki(sha256="cd")}),
    ],
)
def test_other_loads_are_not_compared(metric: str, changes: dict[str, Any]) -> None:
    result = judge(rule(metric, min_ratio=0.9), measured(**changes), measured("baseline"))
    assert (result.verdict, codes(result)) == (Verdict.INVALID, ["workload_differs"])


def test_zero_is_a_value() -> None:
    quiet = profile_run(1.0, peaks=EnginePeaks(preemptions=0.0))
    record = measured(profiles={"serve": profile(1.0, runs=(quiet, quiet))})
    assert judge(rule("serve.preemptions", max=0.0), record, None).verdict is Verdict.PASS
    assert judge(rule("serve.preemptions", max_ratio=1.0), record, replace(record, key="b")).verdict is Verdict.PASS


def test_a_ratio_without_a_baseline_fails() -> None:
    assert codes(judge(rule("serve.peak_gib", max_ratio=1.0), measured(), None)) == ["no_baseline"]


@pytest.mark.parametrize("metric", ["ttft_p99.9_ms", "server:vllm:kv.peak_gib", "peak_gib", "serve.peak"])
def test_figures_of_scenarios_and_servers_are_no_such_figures(metric: str) -> None:
    assert split_name(metric) is None


def test_a_rule_needs_what_gives_its_figure(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(
        """engine: {endpoint: 'http://127.0.0.1:8000/v1', model: m}
profiles: {serve: {}}
accuracy: {name: gsm8k, suite: g.jsonl}
drift: {perplexity: [{name: wiki, file: w.txt}]}
gates:
  rules:
    - {name: peak, metric: serve.peak_gib, max: 60}
    - {name: right, metric: gsm8k.score, min: 90}
    - {name: ppl, metric: wiki.ppl, max: 10}
    - {name: load, metric: startup.load_seconds, max: 60}
    - {name: ttft, metric: ttft_p50_ms, max: 60}
""",
        encoding="utf-8",
    )
    spec = load_spec(path, {})
    needs = {gate.param: gate.needs for gate in list_gates(spec) if gate.kind == "rule"}
    assert needs == {"peak": "profiles", "right": "accuracy", "ppl": "drift", "load": "contract", "ttft": "goodput"}
    names = figure_needs(spec)
    assert {name.partition(".")[0] for name in names} == {"serve", "gsm8k", "wiki", "startup"}
    assert all(split_name(name) for name in names)


def test_an_engine_that_died_says_so_of_the_baseline() -> None:
    dead = measured("baseline", invalid=(INVALID,))
    result = judge(rule("serve.peak_gib", max_ratio=1.0), measured(), dead)
    assert codes(result) == ["baseline_invalid"]

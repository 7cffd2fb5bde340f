"""The lab report has every field of published reports, and says why one is null."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_samples import BOUNDS, CONTEXT, GATES, RECORDS, SPEC, UNPOWERED, gate, goodput_of, record_of, spec_of

from pytest_tokenwatt.records import Percentile, Reason, SloBound, Verdict
from pytest_tokenwatt.report.lab import build_report
from pytest_tokenwatt.spec.model import Spec

PUBLISHED_FIELDS = """
id status title published summary
hardware.vendor hardware.accelerator hardware.count hardware.rated_bw_tbs_per_gpu hardware.driver hardware.host
software.engine software.engine_version software.kernels
model.name model.shape model.quantization model.parallelism
slo.ttft_p99_ms slo.tpot_p99_ms
workload.trace workload.input_tokens workload.output_tokens workload.arrival
power.source power.kind power.sampling_hz power.window
accuracy.suite accuracy.threshold_pts
runs variance_band_pct fleet.cards
configs.key configs.label configs.engine configs.mbu_pct configs.node_power_kw configs.goodput_tok_s
configs.ttft_p99_ms configs.tpot_p99_ms configs.slo_pass_count configs.repeats configs.throttle_counts
configs.accuracy.score configs.accuracy.delta_pts configs.accuracy.spread_pts
not_covered reproduce spec
"""
GATE_FIELDS = "id config gate value unit limit error text rule verdict mode reasons"


def key_paths(value: Any, place: str = "") -> Iterator[str]:
    yield place
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from key_paths(inner, f"{place}.{key}" if place else key)
    elif isinstance(value, list):
        for inner in value:
            yield from key_paths(inner, place)


def test_every_field_of_published_reports_is_there_in_their_order(tmp_path: Path) -> None:
    report = build_report(spec_of(tmp_path), RECORDS, GATES, CONTEXT)
    places = list(dict.fromkeys(key_paths(report)))
    published = PUBLISHED_FIELDS.split()
    assert [place for place in places if place in published] == published
    json.dumps(report, allow_nan=False)


def test_what_is_known_stands_in_the_report(tmp_path: Path) -> None:
    report = build_report(spec_of(tmp_path), RECORDS, GATES, CONTEXT)
    assert {key: report[key] for key in ("id", "status", "title", "published", "runs", "variance_band_pct")} == {
        "id": "lambda-qwen3-30b-a3b-fp8-tp1-dp1",
        "status": "published",
        "title": "Qwen3-30B-A3B FP8 on 1× H100: BF16 vs FP8 KV cache",
        "published": "2026-10-06",
        "runs": 2,
        "variance_band_pct": 1.0,
    }
    assert report["software"] == {
        "engine": "vLLM",
        "engine_version": "0.31.0",
        "kernels": "${IMAGE:-vllm/vllm-openai:latest}",
    }
    assert report["model"] == {
        "name": "Qwen3-30B-A3B-FP8",
        "shape": "MoE",
        "quantization": "FP8 weights; KV cache varies by configuration",
        "parallelism": "1 replica × TP1",
    }
    assert report["workload"] == {
        "trace": "chat-mix-v1",
        "input_tokens": "median 1,024 · p90 4,096",
        "output_tokens": "median 256 · p90 1,024",
        "arrival": "Poisson, rate swept to SLO boundary",
    }
    assert report["slo"] == {"ttft_p99_ms": 2000.0, "tpot_p99_ms": 50.0}
    assert (report["accuracy"]["suite"], report["accuracy"]["threshold_pts"]) == ("gsm8k-5shot", 1.0)
    assert report["hardware"]["vendor"] == "NVIDIA"
    assert report["fleet"]["cards"] == 64
    assert report["reproduce"] == "pytest '--tokenwatt-spec=my specs/h100.yaml'"
    assert report["spec"] == SPEC


def test_a_configuration_has_its_figures_intervals_and_files(tmp_path: Path) -> None:
    entry = build_report(spec_of(tmp_path), RECORDS, GATES, CONTEXT)["configs"][1]
    assert entry["engine"] == "vLLM 0.31.0 · KV FP8"
    assert (entry["key"], entry["role"], entry["label"], entry["precision"]["declared"]) == (
        "tuned",
        "tuned",
        "vllm-fp8kv",
        "W8A8KV8",
    )
    assert (entry["goodput_tok_s"], entry["ttft_p99_ms"], entry["tpot_p99_ms"]) == (5056.9, 340.123, 44.6)
    assert (entry["slo_pass_count"], entry["repeats"], entry["rate_rps"]) == (2, 2, 11.2)
    assert entry["goodput_error_pct"] == 3.6
    assert entry["intervals"] == {
        "rate_rps": {"low": 11.2, "high": 11.6, "bracket": "closed"},
        "ttft_p99_ms": {"low": 320.0, "high": 371.0, "n": 2600},
        "tpot_p99_ms": {"low": 44.0, "high": None, "n": 300},
        "tokens_per_joule": {"low": 8.14333, "high": 8.27467, "n": 2},
    }
    told = {name: why for name, why in entry["missing"].items() if not name.startswith("timed_audit.")}
    unasked = ("speed", "speed_serve", "speeds", "memory", "memories", "memory_saved", "peak_gib")
    assert told == {
        **dict.fromkeys(unasked, "the spec has no profiles block"),
        "budget": "the spec has no budget block",
        "startup": "no start-up log was read",
        "length_shift": "not measured in this run",
        "kl": "the spec has no drift block",
        "mbu_engine_pct": "the engine exports no read bytes",
        "intervals.tpot_p99_ms.high": "300 observations (2 repeats of one schedule, which count as one) "
        "are too few for a finite upper end",
    }
    assert entry["validity"] == {"valid": True, "reasons": []}
    assert entry["files"] == [
        "engine-tuned.log",
        "requests-confirm-1.npz",
        "requests-confirm-2.npz",
        "power-tuned.csv",
    ]
    assert "scenarios" not in entry


def test_a_null_has_its_reason_in_not_covered(tmp_path: Path) -> None:
    report = build_report(spec_of(tmp_path), RECORDS, GATES, CONTEXT)
    lines = report["not_covered"]
    assert lines[:2] == [
        "Context lengths beyond the chat-mix-v1 trace",
        "Prompt log-probabilities: the server gives none",
    ]
    assert {"Image digest: not read by this version", "Accuracy (gsm8k-5shot): not measured in this run"} <= set(lines)


def test_what_nobody_said_is_named(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, hardware=None, model={"geometry": {"num_experts": 1}}, configs=SPEC["configs"][:1])
    unread = replace(RECORDS[0], **UNPOWERED)
    report = build_report(spec, (unread,), GATES, CONTEXT)
    assert report["model"]["shape"] == "dense"
    (line,) = [line for line in report["not_covered"] if line.startswith("Said neither by the spec nor by the engine")]
    assert line.split(": ")[1].split(", ") == [
        "hardware.vendor",
        "hardware.count",
        "hardware.rated_bw_tbs_per_gpu",
        "hardware.host",
        "model.quantization",
    ]


def test_without_repeats_the_missing_band_is_said(tmp_path: Path) -> None:
    report = build_report(spec_of(tmp_path), RECORDS, GATES, replace(CONTEXT, variance_band_pct=None))
    assert report["variance_band_pct"] is None
    assert "Variance band: nothing was measured twice" in report["not_covered"]


def test_blocks_that_the_spec_does_not_have_are_said(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, power=None, accuracy=None, fleet=None, drift={"sequences": 64, "prompts": "p.jsonl"})
    report = build_report(spec, RECORDS, GATES, CONTEXT)
    assert report["accuracy"] == {"suite": None, "threshold_pts": None}
    assert report["fleet"] == {"cards": None}
    assert {
        "Power, energy and throttling: the spec asks for no power source",
        "Accuracy: the spec has no accuracy block",
        "Fleet figures: the spec has no fleet block",
        "tuned: KL divergence: not measured in this run",
    } <= set(report["not_covered"])


def test_what_only_one_configuration_lacks_names_it(tmp_path: Path) -> None:
    records = (RECORDS[0], replace(RECORDS[1], not_covered=("Token ids: none",)))
    lines = build_report(spec_of(tmp_path), records, GATES, CONTEXT)["not_covered"]
    assert "baseline: Prompt log-probabilities: the server gives none" in lines
    assert "tuned: Token ids: none" in lines
    lines = build_report(spec_of(tmp_path), RECORDS[:1], GATES[:1], CONTEXT)["not_covered"]
    assert "Configuration tuned: not measured in this run" in lines


def test_values_of_variables_and_secrets_stay_out(tmp_path: Path) -> None:
    text = json.dumps(build_report(spec_of(tmp_path), RECORDS, GATES, CONTEXT))
    assert "secret" not in text


def test_gates_stand_in_order_with_their_reasons(tmp_path: Path) -> None:
    failed = gate("tuned", "goodput", Verdict.FAIL, value=0.9, unit="ratio", reasons=(Reason("goodput_low", "0.90"),))
    listed = build_report(spec_of(tmp_path), RECORDS, (GATES[0], failed), CONTEXT)["gates"]
    assert [each["id"] for each in listed] == ["h100.yaml::baseline::slo", "h100.yaml::tuned::goodput"]
    assert list(listed[1]) == GATE_FIELDS.split()
    assert listed[1]["reasons"] == [{"code": "goodput_low", "text": "0.90"}]


def test_provenance_names_versions_hashes_and_engines(tmp_path: Path) -> None:
    provenance = build_report(spec_of(tmp_path), RECORDS, GATES, CONTEXT)["provenance"]
    assert provenance["generated"] == "2026-10-06T12:00:00+00:00"
    assert provenance["versions"] == {"python": "3.11.7", "pytest-tokenwatt": "0.1.0"}
    assert provenance["engines"]["tuned"]["cache_config"] == {"cache_dtype": "fp8"}
    loads = provenance["hashes"]["load_sha256"]
    assert loads["baseline"] == loads["tuned"]
    assert len(provenance["hashes"]["spec_sha256"]) == 64


def test_the_same_run_gives_the_same_report(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    assert json.dumps(build_report(spec, RECORDS, GATES, CONTEXT)) == json.dumps(
        build_report(spec, RECORDS, GATES, CONTEXT)
    )


def test_a_configuration_that_never_started_is_null_with_the_reason(tmp_path: Path) -> None:
    reason = Reason("engine_start_failed", "exit code 1")
    broken = record_of("tuned", None, identity=None, invalid=(reason,))
    gates = (
        GATES[0],
        gate("tuned", "slo", Verdict.INVALID, reasons=(reason,)),
        gate("tuned", "goodput", Verdict.INVALID),
    )
    report = build_report(spec_of(tmp_path), (RECORDS[0], broken), gates, CONTEXT)
    entry = report["configs"][1]
    assert report["status"] == "draft"
    assert (entry["goodput_tok_s"], entry["ttft_p99_ms"], entry["slo_pass_count"]) == (None, None, None)
    assert entry["missing"]["goodput_tok_s"] == "engine_start_failed: exit code 1"
    assert entry["validity"] == {"valid": False, "reasons": [{"code": "engine_start_failed", "text": "exit code 1"}]}
    assert entry["engine"] == "vLLM · KV FP8"
    assert report["summary"] == (
        "vllm-default reached an SLO goodput of 4572 tok/s at 11.2 req/s. "
        "vllm-fp8kv has no valid measurement for the slo and goodput gates (engine_start_failed)."
    )


def test_without_a_passing_rate_no_latency_of_a_failed_window_is_shown(tmp_path: Path) -> None:
    none = goodput_of(
        0.0, goodput_tok_s=None, output_tok_s=None, rate_rps=None, misses=("no rate passed",), error_pct=None
    )
    report = build_report(
        spec_of(tmp_path), (record_of("baseline", none),), (gate("baseline", "slo", Verdict.FAIL),), CONTEXT
    )
    entry = report["configs"][0]
    assert (entry["goodput_tok_s"], entry["ttft_p99_ms"]) == (None, None)
    assert entry["missing"]["ttft_p99_ms"] == entry["missing"]["goodput_tok_s"] == "no rate passed"
    assert report["summary"] == "vllm-default failed the slo gate."
    assert report["status"] == "published"


def test_an_infinite_percentile_is_null_with_the_reason(tmp_path: Path) -> None:
    infinite = Percentile("ttft", 99.0, None, True, 2600, 320.0, None, 2000.0)
    goodput = goodput_of(4572.3, percentiles=(infinite,), slo=(*BOUNDS, SloBound("itl", 95.0, 60.0)))
    entry = build_report(spec_of(tmp_path), (record_of("baseline", goodput),), (), CONTEXT)["configs"][0]
    assert entry["ttft_p99_ms"] is entry["itl_p95_ms"] is None
    assert entry["missing"]["ttft_p99_ms"] == "infinite: the percentile falls on a failed request"
    assert entry["missing"]["itl_p95_ms"] == "not measured"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"load": {"backend": "ray"}}, "Load from several machines (load.backend: ray): not available"),
        ({"engine": {**SPEC["engine"], "api": "chat"}}, "Configuration tuned: prompts are sent as text"),
        ({"engine": {**SPEC["engine"], "prompt": "text"}}, "Configuration tuned: prompts are sent as text"),
        ({"workload": {"content": "book.txt"}}, "Configuration tuned: prompts are sent as text"),
        (
            {"engine": {**SPEC["engine"], "args": ["--speculative-config", "{}"]}},
            "Configuration tuned: speculative decoding on random content",
        ),
        ({"slo": None}, "Configuration tuned: no goodput, since there is no slo (default)"),
    ],
)
def test_settings_that_limit_the_figures_are_said(tmp_path: Path, changes: dict[str, Any], line: str) -> None:
    def said(spec: Spec) -> list[str]:
        return [each for each in build_report(spec, RECORDS, GATES, CONTEXT)["not_covered"] if each.startswith(line)]

    assert said(spec_of(tmp_path, **changes))
    assert not said(spec_of(tmp_path))


@pytest.mark.parametrize(
    ("changes", "name", "why"),
    [
        ({"error_pct": None, "bracket": "fixed"}, "goodput_error_pct", "rates were fixed, not searched"),
        ({"error_pct": None, "bracket": "open"}, "goodput_error_pct", "no rate failed"),
        ({"variance_band_pct": None, "repeats": 1}, "variance_band_pct", "one repeat has no spread"),
    ],
)
def test_an_error_that_there_cannot_be_has_its_reason(
    tmp_path: Path, changes: dict[str, Any], name: str, why: str
) -> None:
    record = replace(RECORDS[0], scenarios={"default": goodput_of(4572.3, **changes)})
    entry = build_report(spec_of(tmp_path), (record,), GATES, CONTEXT)["configs"][0]
    assert (entry[name], entry["missing"][name]) == (None, why)

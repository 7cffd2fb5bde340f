"""A report with something to say in every chapter, and the raw material of its figures."""

from __future__ import annotations

import math
from array import array
from typing import Any

import numpy as np

from pytest_tokenwatt.report.html.material import (
    Bound,
    GateWords,
    LatencyPoint,
    LatencySample,
    Material,
    PercentileRow,
    PowerSeries,
    Probe,
    SensorSeries,
    Serving,
)

VALID: dict[str, Any] = {"valid": True, "reasons": []}
BOUNDS = (Bound("ttft", 99.0, 2000.0), Bound("tpot", 99.0, 50.0))


def gate(config: str, name: str, verdict: str, **changes: Any) -> dict[str, Any]:
    """One judged gate."""
    fields = {"value": 1.106, "unit": "ratio", "limit": 0.95, "error": 0.02, "mode": "enforce", "reasons": []}
    return {"id": f"{config}::{name}", "config": config, "gate": name, "verdict": verdict, **fields, **changes}


def config(key: str, role: str, **changes: Any) -> dict[str, Any]:
    """One configuration's entry."""
    fields: dict[str, Any] = {
        "key": key,
        "label": f"vllm-{key}",
        "role": role,
        "engine": "vLLM 0.31.0 · KV BF16",
        "goodput_tok_s": 4572.3,
        "rate_rps": 11.2,
        "slo_pass_count": 2,
        "repeats": 2,
        "ttft_p99_ms": 340.0,
        "tpot_p99_ms": 44.6,
        "mbu_pct": 56.6,
        "node_power_kw": 0.637,
        "tokens_per_joule": 7.18,
        "output_tokens_per_joule": 7.2,
        "energy_j": 152880.0,
        "throttle_counts": {"sw_power_cap": 199},
        "throttle_samples": 240,
        "throttle_s": {"sw_power_cap": 197.5},
        "intervals": {
            "ttft_p99_ms": {"low": 320.0, "high": None, "n": 2600},
            "tokens_per_joule": {"low": 7.12, "high": 7.24},
            "speeds": {"serve": {"low": 1.38, "high": 1.42}},
        },
        "accuracy": accuracy(0.0 if role == "baseline" else -8.0),
        "efficiency": {"serve": 1937.1},
        "speeds": None if role == "baseline" else {"serve": 1.4},
        "peak_memory": {"serve": {"weights_gib": 15.3, "kv_gib": 38.2, "other_gib": 2.1, "peak_gib": 55.6}},
        "timed_audit": {"serve": audit(), "offline": {"status": "missing"}},
        "precision": {"weights": 8, "activations": 8, "kv": 16, "label": "W8A8KV16", "sources": {"kv": "start-up log"}},
        "power": [{"label": "GPU board power sum", "sampling_hz": 10, "sensors": [{}], "ticks": 900, "missed": 1}],
        "validity": VALID,
        "missing": {"speed": "the baseline is what others are compared with"},
        "minutes": {"search": 12.5},
        "files": ["engine.log"],
    }
    return {**fields, **changes}


def accuracy(delta_pts: float) -> dict[str, Any]:
    """A suite's answers."""
    return {
        "suite": "gsm8k-5shot",
        "score": 96.0 + delta_pts,
        "delta_pts": delta_pts,
        "interval_pts": [delta_pts - 6.0, delta_pts + 6.0],
        "flips": {"right_to_wrong": 5, "wrong_to_right": 1},
        "n": 50,
        "counts": {"correct": 44, "wrong": 6, "unparseable": 0, "truncated": 0, "failed": 0},
        "validity": VALID,
    }


def audit() -> dict[str, Any]:
    """An audited run."""
    return {"status": "audited", "picked": 24, "samples": 23, "gap_median": 0.12, "gap_max": 2.26, "top1_gap": 0.096}


def kl() -> dict[str, Any]:
    """A candidate's divergence."""
    return {
        "kl": 0.0097,
        "kl_se": 0.0004,
        "histogram": {"bins": [0.0, 0.005, 0.01, 0.02], "counts": [10, 30, 24]},
        "identity": {"kl": 0.0001},
        "sequences": 64,
        "tokens": 16384,
        "ppl": {"wikitext2": {"ppl": 8.1, "ppl_bf16": 8.0, "dnll": 0.012, "dnll_se": 0.001, "windows": 128}},
        "validity": VALID,
    }


def full_report() -> dict[str, Any]:
    """Every chapter has something to say; one gate of each verdict."""
    return {
        "id": "h100-kv-cache",
        "title": "BF16 vs FP8 KV cache",
        "status": "draft",
        "published": "2026-10-06",
        "summary": "FP8 KV cache raised SLO goodput 10.6 % but failed the accuracy gate.",
        "hardware": {"accelerator": "NVIDIA H100 80GB HBM3", "count": 1, "driver": "580.105.08"},
        "software": {"engine": "vLLM", "engine_version": "0.31.0"},
        "model": {"name": "Qwen3-30B-A3B-FP8", "shape": "MoE"},
        "slo": {"ttft_p99_ms": 2000.0, "tpot_p99_ms": 50.0},
        "workload": {"trace": "chat-mix-v1", "arrival": "Poisson, rate swept to SLO boundary"},
        "accuracy": {"suite": "gsm8k-5shot", "threshold_pts": 1.0},
        "machine_drift": {"profiles": {"serve": 0.4}},
        "variance_band_pct": 1.0,
        "fleet": {
            "cards": 64,
            "text": "one card measured",
            "configs": [{"key": "tuned", "text": "58 cards instead of 64"}],
        },
        "configs": [config("baseline", "baseline"), config("tuned", "tuned", kl=kl())],
        "gates": [
            gate("baseline", "slo", "pass", value=44.6, unit="ms", limit=50.0, error=None),
            gate("tuned", "energy", "-", mode="info", limit=None),
            gate(
                "tuned",
                "goodput",
                "inconclusive",
                reasons=[{"code": "within_error", "text": "the ratio is within its error"}],
            ),
            gate("tuned", "kl", "invalid", reasons=[{"code": "nan", "text": "a position has no probability"}]),
            gate("tuned", "accuracy[gsm8k-5shot]", "fail", reasons=[{"code": "drop", "text": "it dropped 8 points"}]),
        ],
        "not_covered": ["Whole-node power (no BMC access)"],
        "provenance": {"versions": {"python": "3.11.7"}, "engines": {"tuned": {"version": "0.31.0"}}},
        "reproduce": "pytest --tokenwatt-spec=h100.yaml",
        "spec": {"name": "h100-kv-cache", "slo": {"ttft_p99_ms": 2000}},
        "schema": "tokenwatt-report/1",
    }


def probe(rate_rps: float, state: str, ttft_ms: float | None, start_s: float = 100.0) -> Probe:
    """A window whose TTFT is infinite without ``ttft_ms``."""
    latencies = {"ttft_p99_ms": LatencyPoint(ttft_ms, ttft_ms is None), "tpot_p99_ms": LatencyPoint(30.0)}
    return Probe(
        f"search-{rate_rps:g}",
        "search",
        rate_rps,
        state,
        start_s,
        start_s + 60.0,
        latencies,
        why="" if state == "pass" else "too slow",
    )


def serving(key: str, **changes: Any) -> Serving:
    """A scenario with a probe of each kind."""
    generator = np.random.default_rng(len(key))
    fields: dict[str, Any] = {
        "slo": BOUNDS,
        "probes": (probe(4.0, "pass", 200.0), probe(8.0, "invalid", 300.0, 170.0), probe(16.0, "fail", None, 240.0)),
        "percentiles": (PercentileRow("ttft", 99.0, LatencyPoint(340.0), 320.0, None, 2600, 2000.0),),
        "samples": {
            "ttft": sample(generator.lognormal(5.0, 0.4, 2000), failed=20),
            "tpot": sample(generator.lognormal(3.4, 0.2, 2000), open=3),
        },
    }
    return Serving(**{"config": key, "scenario": "default", **fields, **changes})


def sample(values_ms: Any, failed: int = 0, open: int = 0) -> LatencySample:
    """Latencies of single requests."""
    return LatencySample(array("d", np.asarray(values_ms, dtype=np.float64).tobytes()), failed, open)


def sensor(name: str, readings: int = 1200, hz: float = 10.0, start_s: float = 90.0) -> SensorSeries:
    """A sensor whose power swings, throttled in its second half."""
    at_s = start_s + np.arange(readings) / hz
    watts = 500.0 + 100.0 * np.sin(at_s)
    watts[0] = math.nan
    return SensorSeries(
        name,
        array("d", at_s.tobytes()),
        array("d", watts.tobytes()),
        {"sw_power_cap": array("d", at_s[readings // 2 :].tobytes())},
    )


def power(key: str, sensors: int = 2, readings: int = 1200) -> PowerSeries:
    """A source of boards."""
    boards = tuple(sensor(f"GPU-{place}", readings) for place in range(sensors))
    return PowerSeries(
        key, "board", "GPU board power sum", 10.0, boards, limit_w=700.0 * sensors, idle_w=72.0 * sensors
    )


def full_material() -> Material:
    """What the figures of ``full_report`` are drawn from."""
    return Material(
        serving=(serving("baseline"), serving("tuned")),
        power=(power("baseline"), power("tuned", sensors=1)),
        gates={"tuned::goodput": GateWords("1.106 [0.94, 1.13]", ">= 0.95")},
    )

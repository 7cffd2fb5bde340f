"""Records, gates and a spec as a run on real hardware would give them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_tokenwatt.records import (
    ClientHealth,
    ConfigRecord,
    EnergyRecord,
    Figure,
    GateResult,
    GoodputRecord,
    Percentile,
    PowerRecord,
    RatedBandwidth,
    SensorInfo,
    ServedIdentity,
    SloBound,
    Verdict,
    WindowPower,
    WindowResult,
)
from pytest_tokenwatt.report.lab import ReportContext
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.spec.model import Spec

SPEC: dict[str, Any] = {
    "name": "lambda-qwen3-30b-a3b-fp8-tp1-dp1",
    "title": "Qwen3-30B-A3B FP8 on 1× H100: BF16 vs FP8 KV cache",
    "hardware": {"adapter": "nvidia", "host": "Lambda Cloud instance"},
    "engine": {
        "command": ["vllm", "serve", "{model}", "--port", "{port}"],
        "name": "vLLM",
        "kernels": "${IMAGE:-vllm/vllm-openai:latest}",
        "model": "Qwen/Qwen3-30B-A3B-FP8",
        "api_key_env": "TOKEN",
    },
    "model": {"name": "Qwen3-30B-A3B-FP8", "weight_dtype": "fp8", "kv_dtype": "bf16", "geometry": {"num_experts": 128}},
    "configs": [
        {"key": "baseline", "role": "baseline", "label": "vllm-default"},
        {"key": "tuned", "role": "tuned", "label": "vllm-fp8kv", "model": {"kv_dtype": "fp8"}, "precision": "W8A8KV8"},
    ],
    "slo": {"ttft_p99_ms": 2000, "tpot_p99_ms": 50},
    "accuracy": {"name": "gsm8k-5shot", "suite": "gsm8k.jsonl", "max_drop_pts": 1.0},
    "power": {"source": "board", "sampling_hz": 1},
    "fleet": {"cards": 64},
    "not_covered": ["Context lengths beyond the chat-mix-v1 trace"],
}
CONTEXT = ReportContext(
    generated=datetime(2026, 10, 6, 12, 0, tzinfo=UTC),
    command=("pytest", "--tokenwatt-spec=my specs/h100.yaml"),
    versions={"python": "3.11.7", "pytest-tokenwatt": "0.1.0"},
    variance_band_pct=1.0,
    energy_band_pct=0.8,
)
GPU = SensorInfo("GPU-6a1d", "NVIDIA H100 80GB HBM3", 79.6, 3.352, 700.0, "580.105.08", "0000:06:00.0")
BOUNDS = (SloBound("ttft", 99.0, 2000.0), SloBound("tpot", 99.0, 50.0))


def spec_of(tmp_path: Path, **changes: Any) -> Spec:
    path = tmp_path / "h100.yaml"
    content = {key: value for key, value in {**SPEC, **changes}.items() if value is not None}
    path.write_text(json.dumps(content), encoding="utf-8")
    return load_spec(path, {"TOKEN": "sk-secret", "IMAGE": "registry.example/secret-image:1"})


def window(label: str) -> WindowResult:
    client = ClientHealth(1.2, 20.0, 0.3, 1300, 1300, 0, 1300, 0, 10**6, 0, 0.5, 0)
    return WindowResult(
        kind="confirm",
        label=label,
        rate_rps=11.2,
        start_s=0.0,
        end_s=120.0,
        planned=1300,
        ok=1300,
        failures={},
        failure_example=None,
        percentiles=(),
        stable=True,
        waiting_growth=0.1,
        output_tokens=550_000,
        good_tokens=548_676,
        output_tok_s=4583.3,
        goodput_tok_s=4572.3,
        passes=True,
        misses=(),
        decided="complete",
        invalid=(),
        client=client,
        requests_file=f"requests-{label}.npz",
        power=(reading(),),
    )


def energy_of(tok_j: float | None, kw: float | None, **changes: Any) -> EnergyRecord:
    record = EnergyRecord(
        source="board",
        kind="board",
        sensors=1,
        energy_j=None if kw is None else kw * 240_000,
        node_power_kw=kw,
        tokens_per_joule=tok_j,
        output_tokens_per_joule=None if tok_j is None else tok_j * 1.0025,
        variance_band_pct=0.3,
        throttle_counts={"sw_power_cap": 199, "hw_slowdown": 0},
        throttle_samples=240,
        throttle_s={"sw_power_cap": 197.5},
        gpu_share_pct=None,
        invalid=(),
    )
    return replace(record, **changes)


def power_of(key: str = "baseline", **changes: Any) -> PowerRecord:
    record = PowerRecord(
        source="board",
        kind="board",
        label="GPU board power sum (NVIDIA)",
        sampling_hz=1,
        sensors=(GPU,),
        chosen="the engine's process tree",
        idle_w=Figure(72.4, "W"),
        ticks=900,
        missed=1,
        failed=0,
        lateness_p99_ms=3.1,
        invalid=(),
        file=f"power-{key}.csv",
    )
    return replace(record, **changes)


def reading(energy_j: float = 76_440.0) -> WindowPower:
    counts, seconds = {"sw_power_cap": 99}, {"sw_power_cap": 98.7}
    return WindowPower("board", "board", energy_j, "energy_counter", 76_500.0, 121, counts, 120, seconds, (), sensors=1)


def goodput_of(tok_s: float, *, scenario: str = "default", **changes: Any) -> GoodputRecord:
    percentiles = (
        Percentile("ttft", 99.0, 340.123456789, False, 2600, 320.0, 371.0, 2000.0),
        Percentile("tpot", 99.0, 44.6, False, 300, 44.0, None, 50.0),
    )
    record = GoodputRecord(
        scenario=scenario,
        mode="search",
        slo=BOUNDS,
        rate_rps=11.2,
        goodput_tok_s=tok_s,
        output_tok_s=tok_s * 1.0025,
        percentiles=percentiles,
        slo_pass_count=2,
        repeats=2,
        highest_passing_rps=11.2,
        lowest_failing_rps=11.6,
        bracket="closed",
        backoffs=0,
        error_pct=3.6,
        variance_band_pct=0.4,
        misses=(),
        invalid=(),
        notes=("one back-off",),
        windows=(window("confirm-1"), window("confirm-2")),
        figures={
            "ttft_p50_ms": Figure(61.0, "ms"),
            "mbu_pct": Figure(56.6, "%"),
            "mbu_engine_pct": Figure(None, "%", reason="the engine exports no read bytes"),
        },
        energy=energy_of(7.178, 0.637),
    )
    return replace(record, **changes)


def record_of(key: str, goodput: GoodputRecord | None, **changes: Any) -> ConfigRecord:
    labels = {"baseline": "vllm-default", "tuned": "vllm-fp8kv", "again": "default (repeat)"}
    record = ConfigRecord(
        key=key,
        role=key if key != "again" else "other",
        label=labels[key],
        like="baseline" if key == "again" else None,
        identity=ServedIdentity(
            model_ids=("Qwen/Qwen3-30B-A3B-FP8",),
            version="0.31.0",
            max_model_len=40960,
            cache_config={"cache_dtype": "fp8" if key == "tuned" else "auto"},
            start_args={"api_key": "sk-secret"},
        ),
        fingerprint="ab12",
        contract=None,
        scenarios={goodput.scenario: goodput} if goodput else {},
        invalid=(),
        not_covered=("Prompt log-probabilities: the server gives none",),
        launch={"command": ["vllm", "serve"]},
        minutes={"start": 1.5},
        files=(f"engine-{key}.log",),
        power=(power_of(key),),
        gpus=(GPU,),
        rated_bandwidth=RatedBandwidth(3.35, "table"),
    )
    return replace(record, **changes)


UNPOWERED: dict[str, Any] = {"power": (), "gpus": (), "rated_bandwidth": None}
"""Changes of a record where no source was read."""


def gate(config: str, name: str, verdict: Verdict = Verdict.PASS, **fields: Any) -> GateResult:
    blank: dict[str, Any] = {"value": None, "unit": None, "limit": None, "error": None, "reasons": ()}
    values = {**blank, **fields}
    return GateResult(
        id=f"h100.yaml::{config}::{name}",
        config=config,
        gate=name,
        verdict=verdict,
        mode="enforce",
        text="",
        rule="",
        **values,
    )


RECORDS = (
    record_of("baseline", goodput_of(4572.3)),
    record_of("tuned", goodput_of(5056.9, energy=energy_of(8.209, 0.616))),
)
GATES = (
    gate("baseline", "slo"),
    gate("tuned", "slo"),
    gate("tuned", "goodput", value=5056.9 / 4572.3, unit="ratio", limit=0.95, error=0.036),
)

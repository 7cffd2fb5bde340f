"""A candidate and its baseline with every figure that a submission record has, as a published one tells them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from report_samples import CONTEXT, GPU, SPEC, goodput_of, record_of, spec_of

from pytest_tokenwatt.gates.score import ScoreParts, Term, drift_points, score_of
from pytest_tokenwatt.gates.speeds import memory_deltas, speed_deltas
from pytest_tokenwatt.records import ConfigRecord, Contract, ProbeOutcome, SuiteRecord
from pytest_tokenwatt.records.accuracy import LengthDelta
from pytest_tokenwatt.records.audit import AuditRecord
from pytest_tokenwatt.records.drift import (
    Divergence,
    DriftDelta,
    DriftRecord,
    KlDelta,
    PerplexityDelta,
    PerplexityRecord,
)
from pytest_tokenwatt.records.profiles import (
    BudgetRun,
    EnginePeaks,
    MemoryDelta,
    PeakMemory,
    Precision,
    ProfileRecord,
    ProfileRun,
    Ratio,
    ScoreDelta,
    SpeedDelta,
    Startup,
)
from pytest_tokenwatt.report.context import ReportContext
from pytest_tokenwatt.report.lab import build_report
from pytest_tokenwatt.spec.model import Spec

SIZES = {"serve": (32, 8192, 512, 128), "interactive": (1, 1024, 256, 16), "long_context": (64, 16000, 256, 128)}
"""Concurrency, input tokens, output tokens, requests."""
RATES = {
    "baseline": {"serve": 1937.1458343328025, "interactive": 246.32308683114326, "long_context": 730.9919209844271},
    "tuned": {"serve": 2783.0896029523274, "interactive": 302.5793654997613, "long_context": 1020.5239679733002},
}
WEIGHTS_GIB = {"baseline": 15.27, "tuned": 8.84}
OTHER_GIB = {"baseline": 2.145, "tuned": 2.175}
KV_GIB = {
    "baseline": {"serve": 38.186, "interactive": 0.176, "long_context": 142.32},
    "tuned": {"serve": 19.082, "interactive": 0.088, "long_context": 71.325},
}
KV_BYTES = {
    "baseline": {"serve": 147210, "interactive": 147464, "long_context": 146884},
    "tuned": {"serve": 73563, "interactive": 73728, "long_context": 73612},
}
ASKED: dict[str, Any] = {
    "profiles": {"serve": {}, "interactive": {}, "long_context": {}},
    "drift": {"prompts": "p.jsonl", "perplexity": [{"name": "wikitext2", "file": "w.txt"}]},
    "audit": {"picked": 24},
    "budget": {"factor": 1.02},
    "score": {"points_per_nat": 56.8},
    "model": {**SPEC["model"], "name": "qwen3-8b", "path": "models/Qwen3-8B-FP8-Dynamic"},
}
STARTUP = Startup(
    weights_gib=8.84,
    kv_cache_gib=150.14,
    kv_cache_tokens=2186576.0,
    kv_bytes_per_token=150.14 * 2**30 / 2186576,
    cuda_graph_gib=0.44,
    load_seconds=3.352658,
    engine_init_seconds=12.35,
    max_concurrency_sequences=66.73,
    max_concurrency_tokens=32768,
    kv_cache_dtype="fp8",
    speculative_config="None",
    vllm_version="0.32.0",
    dtype="torch.bfloat16",
    quantization="compressed-tensors",
    missing={"activation_gib": "no line of the log has it", "non_torch_gib": "no line of the log has it"},
)
PRECISION = Precision(8, 8, 8, "W8A8KV8", 8.0, 8.79, "W8A8KV8", {"weights": "config.json", "kv": "start-up log"})
AUDIT = AuditRecord(
    run="serve-r0",
    status="audited",
    picked=24,
    samples=24,
    empty=0,
    empty_alone=0,
    empty_reference=0,
    engine_mean=-0.0948,
    bf16_mean=-0.0685,
    gap=0.0263,
    gap_median=0.0218,
    gap_max=0.3413,
    engine_top1=0.9784,
    bf16_top1=0.9948,
    top1_gap=0.0164,
    length_ratio=1.0,
    length_ratio_min=0.502,
)
KL = Divergence(
    kl=0.009696001195112797,
    kl_se=0.0007364314878597962,
    kl_lower=0.0091,
    kl_lower_se=0.0007,
    kl_sampled=0.0098,
    kl_sampled_se=0.0009,
    kl_median=0.00793668609329845,
    kl_per_token=0.009684813823354317,
    tail_mass=0.012,
    top1_agreement=0.971,
    k=20,
    sequences=256,
    tokens=62_197,
    invalid_positions=0,
    by_confidence={"0.0-1.0": (0.0091, 62_197.0)},
    per_sequence=(0.004, 0.006, 0.02),
)
IDENTITY = replace(KL, kl=0.0, kl_se=0.0, kl_median=0.0, kl_per_token=0.0, tokens=62_076)
PPL = PerplexityRecord("wikitext2", "ef" * 32, 146, 298_862, (2.2, 2.4), 9.732609386380801)
DRIFT = DriftRecord("ab" * 32, "prompt_logprobs", 20, 256, 62_197, KL, None, {"wikitext2": PPL}, 0.0012, 4096)
DRIFT_DELTA = DriftDelta(
    KlDelta(0.009696, 0.000736, 0.0079, 0.0109, 0.0),
    IDENTITY,
    {"wikitext2": PerplexityDelta("wikitext2", 0.0011003, 0.0006999, 9.732609, 9.721907, 146, 298_862)},
)
LENGTH = LengthDelta(shift=0.01762, interval=(0.01, 0.025), n=200, clusters=200, tokens=203.5, baseline_tokens=200.0)
SUITE = SuiteRecord(
    name="gsm8k-5shot",
    suite="gsm8k.jsonl",
    sha256="ab12",
    scorer="numeric",
    api="completions",
    shots=5,
    max_tokens=384,
    seeds=1,
    items=(),
    score=91.0,
    spread_pts=None,
    counts={},
    invalid=(),
    n=200,
)
CONTRACT = Contract((ProbeOutcome("models", True, "pass", ""), ProbeOutcome("tokenize", False, "missing", "404", "…")))
FINISHED = datetime(2026, 10, 6, 12, 55, 30, tzinfo=UTC)


def run_of(key: str, name: str, repeat: int, rate: float) -> ProfileRun:
    """One repeat; those of a profile differ by a part in a thousand."""
    own = rate * (0.999, 1.0, 1.001)[repeat]
    return ProfileRun(
        label=f"{name}-r{repeat}",
        window_s=60.0,
        output_tokens=round(own * 60),
        output_tok_s=own,
        requests=SIZES[name][3],
        failed=0,
        held_share=0.997,
        client_cpu_share=0.21,
        ttft_p50_ms=410.0,
        tpot_p50_ms=11.2,
        e2e_p50_ms=6100.0,
        peaks=EnginePeaks(0.1271, float(SIZES[name][0]), 0.0, 164.366, readings=140, seconds=35.5, longest_gap_s=0.3),
        requests_file=f"requests-{key}-{name}-r{repeat}.npz",
    )


def profile_of(key: str, name: str, **changes: Any) -> ProfileRecord:
    concurrency, input_tokens, output_tokens, requests = SIZES[name]
    kv_gib, rate = KV_GIB[key][name], RATES[key][name]
    memory = PeakMemory(
        weights_gib=WEIGHTS_GIB[key],
        kv_gib=kv_gib,
        other_gib=OTHER_GIB[key],
        peak_gib=WEIGHTS_GIB[key] + kv_gib + OTHER_GIB[key],
        kv_usage=kv_gib / 150.14,
        kv_bytes_per_token=KV_BYTES[key][name],
        device_peak_gib=164.366,
        error=0.002,
        weights_source="log",
    )
    runs = tuple(run_of(key, name, repeat, rate) for repeat in range(3))
    record = ProfileRecord(
        name, concurrency, input_tokens, output_tokens, requests, runs, rate, memory, load_sha256=f"{name}-load"
    )
    return replace(record, **changes)


def budget_of(name: str) -> BudgetRun:
    in_flight = float(SIZES[name][0])
    return BudgetRun(name, 1.02, 30.7, 19.7, in_flight, in_flight, True, RATES["tuned"][name])


def scored_record(key: str, **changes: Any) -> ConfigRecord:
    record = record_of(
        key,
        goodput_of(4572.3),
        contract=CONTRACT,
        minutes={"start": 1.5, "profiles": 45.24},
        gpus=(GPU,),
        suites={SUITE.name: SUITE},
        startup=STARTUP,
        precision=PRECISION,
        profiles={name: profile_of(key, name) for name in SIZES},
    )
    return replace(record, **changes)


BASELINE = scored_record(
    "baseline",
    drift=replace(DRIFT, against=None, control=IDENTITY),
    again={name: profile_of("baseline", name, output_tok_s=RATES["baseline"][name] * 1.004) for name in SIZES},
)
TUNED = scored_record(
    "tuned",
    drift=DRIFT,
    budgets={name: budget_of(name) for name in SIZES},
    audits={name: replace(AUDIT, run=f"{name}-r0") for name in SIZES},
)


def scored(speed: SpeedDelta, memory: MemoryDelta) -> ScoreDelta:
    """What the gates make of the gains, with the length shift and the divergence of ``LENGTH`` and ``KL``."""
    drift = drift_points(KL.kl or 0.0, KL.kl_se, 56.8)
    tiers = {"A": 1.0, "B": 2.0, "C": 5.0}
    parts = ScoreParts(
        speed=_term(speed.overall),
        memory=_term(memory.overall),
        length_shift=Term(LENGTH.shift, 0.004),
        drift=drift,
        mean_drop_pts=0.587,
        valid_domains=5,
        tiers=tiers,
    )
    return score_of(parts)


def _term(gain: Ratio | None) -> Term:
    if gain is None:
        return Term(missing="not compared")
    return Term(gain.value, None if gain.error is None else gain.error / 1.96)


def context_of(spec: Spec, records: tuple[ConfigRecord, ...], **changes: Any) -> ReportContext:
    """With the deltas that the gates find."""
    speeds, memories = speed_deltas(spec, records), memory_deltas(spec, records)
    found = replace(
        CONTEXT,
        drift={"tuned": DRIFT_DELTA},
        lengths={"tuned": LENGTH},
        speeds=speeds,
        memories=memories,
        scores={key: scored(speeds[key], memories[key]) for key in speeds},
        finished=FINISHED,
    )
    return replace(found, **changes)


def report_of(
    tmp_path: Path,
    records: tuple[ConfigRecord, ...] = (BASELINE, TUNED),
    asked: dict[str, Any] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """The report of ``records``; ``asked`` changes the spec, ``changes`` the context."""
    spec = spec_of(tmp_path, **{**ASKED, **(asked or {})})
    return build_report(spec, records, (), context_of(spec, records, **changes))

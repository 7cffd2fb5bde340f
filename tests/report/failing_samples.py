"""Stored files with a failing gate of every kind, for whoever tries to make one of them pass."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import exp, prod
from pathlib import Path
from statistics import fmean
from typing import Any

from report_samples import CONTEXT, energy_of, gate, goodput_of, spec_of, window
from schema_samples import REFERENCE, stored, with_suites
from submission_samples import ASKED, BASELINE, DRIFT, KL, PRECISION, TUNED, context_of

from pytest_tokenwatt.gates.deltas import accuracy_deltas
from pytest_tokenwatt.gates.divergence import drift_deltas
from pytest_tokenwatt.gates.shifts import length_deltas
from pytest_tokenwatt.records import SCHEMA, ConfigRecord, GoodputRecord
from pytest_tokenwatt.records.drift import DriftRecord
from pytest_tokenwatt.records.profiles import PeakMemory, ProfileRecord
from pytest_tokenwatt.records.stored import Provenance
from pytest_tokenwatt.report.lab import build_report
from pytest_tokenwatt.spec.model import Spec
from pytest_tokenwatt.store.records_json import record_to_json

Document = dict[str, Any]
SPEC: Mapping[str, Any] = {**ASKED, "drift": {"perplexity": [{"name": "wikitext2", "file": "w.txt"}]}}
BIGGER, SLOWER, FARTHER = 4.0, 0.4, 0.25


def reference(name: str) -> Document:
    """A published file as it is."""
    read: Document = json.loads((REFERENCE / f"{name}.json").read_text(encoding="utf-8"))
    return read


def failing_submission() -> Document:
    """The published one with a candidate that is slow, large and far off; all that it says twice is said alike."""
    document = reference("submission-fp8-chunked-prefill")
    result = document["result"]
    _scale(result, ("efficiency", "speeds"), SLOWER)
    result |= {"speed": result["speed"] * SLOWER, "speed_serve": result["speed_serve"] * SLOWER}
    for name, peak in result["peak_memory"].items():
        peak |= {part: peak[part] * BIGGER for part in ("weights_gib", "kv_gib", "other_gib", "device_peak_gib")}
        peak["peak_gib"] = peak["weights_gib"] + peak["kv_gib"] + peak["other_gib"]
        result["memories"][name] = result["anchor_peak_memory"][name]["peak_gib"] / peak["peak_gib"]
    result["peak_gib"] = result["peak_memory"]["serve"]["peak_gib"]
    result["memory_saved"] = 1 - result["peak_gib"] / result["bf16_peak_gib"]
    result["memory"] = prod(result["memories"].values()) ** (1 / 3)
    result["kl"] |= dict.fromkeys(("kl", "kl_median", "kl_per_token"), FARTHER)
    for corpus in result["kl"]["ppl"].values():
        corpus |= {"dnll": FARTHER, "ppl": corpus["ppl_bf16"] * exp(FARTHER)}
    result |= {"length_shift": FARTHER, "drift": 14.2, "qualified": False, "score": 0.1, "efficiency_gain": 0.4}
    result["quality"] |= {"tier": None}
    result["mean_drop"] = 0.2
    for audits in (result["timed_audit"], result["engine"]["audit"]):
        for audit in audits.values():
            audit |= {"gap_median": 2.0, "gap": 2.0} if audit["status"] == "audited" else {}
    for rerun in result["engine"]["budget"].values():
        rerun |= {"healthy": False, "running": 1.0 if rerun["full_running"] > 1 else 0.5}
    result["precision"] |= {"label": "W16A16KV16", "weights": 16, "activations": 16, "kv": 16}
    document["solution"]["detected_precision"] = "W16A16KV16"
    return document


def uneven_submission() -> Document:
    """One whose ``serve`` alone is slow: without it, the others would make a fine mean."""
    document = reference("submission-fp8-chunked-prefill")
    result = document["result"]
    for name in ("efficiency", "speeds"):
        result[name]["serve"] *= 0.3
    result["speed_serve"] *= 0.3
    result["speed"] = prod(result["speeds"].values()) ** (1 / 3)
    return document


def _scale(result: Document, names: tuple[str, ...], factor: float) -> None:
    for name in names:
        result[name] = {profile: value * factor for profile, value in result[name].items()}


# --- our own, with figures that are what their parts make of them


def _profile(profile: ProfileRecord, slower: float = 1.0, bigger: float = 1.0) -> ProfileRecord:
    tokens = [round(run.output_tokens * slower) for run in profile.runs]
    runs = tuple(
        replace(run, output_tokens=count, output_tok_s=count / (run.window_s or 1.0))
        for run, count in zip(profile.runs, tokens, strict=True)
    )
    rate = sum(tokens) / sum(run.window_s or 0.0 for run in runs)
    parts = {name: getattr(profile.memory, name) * bigger for name in ("weights_gib", "kv_gib", "other_gib")}
    usage = max(run.peaks.kv_usage or 0.0 for run in runs)
    memory: PeakMemory = replace(profile.memory, **parts, peak_gib=sum(parts.values()), kv_usage=usage)
    return replace(profile, runs=runs, output_tok_s=rate, memory=memory)


def _serving(tok_s: float) -> GoodputRecord:
    """Two windows alike, and what they come to together."""
    found, one = goodput_of(tok_s), window("confirm-1")
    tokens, joules = round(tok_s * one.end_s), one.power[0].energy_j or 0.0
    rates: dict[str, Any] = {"output_tok_s": tokens / one.end_s, "goodput_tok_s": tokens / one.end_s}
    one = replace(one, good_tokens=tokens, output_tokens=tokens, percentiles=found.percentiles, **rates)
    energy = energy_of(tokens / joules, joules / one.end_s / 1000.0)
    energy = replace(energy, energy_j=2 * joules, output_tokens_per_joule=tokens / joules)
    windows = (one, replace(one, label="confirm-2"))
    return replace(found, windows=windows, variance_band_pct=0.0, energy=energy, **rates)


def _overloaded() -> GoodputRecord:
    """No rate passed: both windows were too slow."""
    found = _serving(2000.0)
    slow = tuple(
        replace(each, value_ms=91.0, high_ms=None) if each.metric == "tpot" else each for each in found.percentiles
    )
    misses = ("TPOT p99 > 50 ms: 400 of 1300 requests",)
    windows = tuple(replace(one, passes=False, misses=misses, percentiles=slow, good_tokens=0) for one in found.windows)
    names = ("rate_rps", "goodput_tok_s", "output_tok_s", "error_pct", "variance_band_pct", "energy")
    nothing: dict[str, Any] = dict.fromkeys(names)
    return replace(
        found,
        **nothing,
        percentiles=slow,
        slo_pass_count=0,
        highest_passing_rps=None,
        bracket="none",
        misses=misses,
        windows=tuple(replace(one, goodput_tok_s=0.0) for one in windows),
        figures={},
    )


def _drift(nats: float, nll: tuple[float, ...]) -> DriftRecord:
    figures: dict[str, Any] = dict.fromkeys(("kl", "kl_lower", "kl_sampled", "kl_median", "kl_per_token"), nats)
    found = replace(KL, **figures, per_sequence=(nats,))
    texts = {
        name: replace(each, nll=nll, windows=len(nll), ppl=exp(fmean(nll))) for name, each in DRIFT.perplexity.items()
    }
    return replace(DRIFT, against=found, perplexity=texts)


def failing_records(spec: Spec) -> tuple[ConfigRecord, ConfigRecord]:
    """A baseline, and a candidate that breaks every promise."""
    own: dict[str, Any] = {"spec": dict(spec.raw), "provenance": Provenance(recorded=CONTEXT.generated.isoformat())}
    none = _drift(0.0, (2.2, 2.4))
    baseline = replace(
        with_suites(BASELINE, 48, "gsm8k-5shot"),
        scenarios={"default": _serving(4572.3)},
        profiles={name: _profile(profile) for name, profile in BASELINE.profiles.items()},
        again={name: _profile(profile, 1.004) for name, profile in BASELINE.again.items()},
        drift=replace(none, against=None, control=none.against),
        **own,
    )
    audits = {
        name: replace(audit, run=name, gap=2.0, gap_median=2.0, gap_max=2.0, bf16_mean=-0.5, engine_mean=-2.5)
        for name, audit in TUNED.audits.items()
    }
    candidate = replace(
        with_suites(TUNED, 30, "gsm8k-5shot", tokens=30),
        fingerprint="cd34",
        scenarios={"default": _serving(2000.0)},
        profiles={name: _profile(profile, SLOWER, BIGGER) for name, profile in TUNED.profiles.items()},
        drift=_drift(FARTHER, (3.2, 3.4)),
        audits=audits,
        budgets={name: replace(run, healthy=False, running=0.5) for name, run in TUNED.budgets.items()},
        precision=replace(PRECISION, label="W16A16KV16", weights=16, activations=16, kv=16),
        **own,
    )
    return baseline, candidate


def failing_report(folder: Path) -> Document:
    """Their lab report."""
    spec = spec_of(folder, **SPEC)
    records = failing_records(spec)
    quality = {"accuracy": accuracy_deltas(spec, records), "lengths": length_deltas(spec, records)}
    context = context_of(spec, records, drift=drift_deltas(spec, records), **quality)
    return stored(build_report(spec, records, [gate(each.key, "contract") for each in records], context))


def failing_run(folder: Path) -> Document:
    """Both records in one file, as ``--tokenwatt-out=a.json`` writes them."""
    return _run(failing_records(spec_of(folder, **SPEC)))


def overloaded_run(folder: Path) -> Document:
    """The same with a candidate whose windows all fail."""
    baseline, candidate = failing_records(spec_of(folder, **SPEC))
    return _run((baseline, replace(candidate, scenarios={"default": _overloaded()})))


def _run(records: tuple[ConfigRecord, ...]) -> Document:
    return {"schema": SCHEMA, "records": [stored(record_to_json(record)) for record in records]}


FAILING: Mapping[str, Callable[[Path], Document]] = {
    "published report": lambda folder: reference("lab-kv-cache"),
    "published submission": lambda folder: failing_submission(),
    "uneven submission": lambda folder: uneven_submission(),
    "own report": failing_report,
    "own records": failing_run,
    "own windows": overloaded_run,
}
PASSING: Mapping[str, Callable[[Path], Document]] = {
    "published report": lambda folder: reference("lab-moe-kernels"),
    "published submission": lambda folder: reference("submission-fp8-chunked-prefill"),
}

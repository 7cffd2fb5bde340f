"""Stored files with a failing gate of every kind, for whoever tries to make one of them pass."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

from report_samples import CONTEXT, energy_of, gate, goodput_of, spec_of
from schema_samples import REFERENCE, stored, with_suites
from submission_samples import ASKED, BASELINE, DRIFT, KL, PRECISION, TUNED, context_of

from pytest_tokenwatt.gates.deltas import accuracy_deltas
from pytest_tokenwatt.gates.divergence import drift_deltas
from pytest_tokenwatt.gates.shifts import length_deltas
from pytest_tokenwatt.records import ConfigRecord
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
        corpus["dnll"] = FARTHER
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


# --- our own


def _worse(profile: ProfileRecord) -> ProfileRecord:
    runs = tuple(replace(run, output_tok_s=(run.output_tok_s or 0.0) * SLOWER) for run in profile.runs)
    parts = {
        name: getattr(profile.memory, name) * BIGGER for name in ("weights_gib", "kv_gib", "other_gib", "peak_gib")
    }
    memory: PeakMemory = replace(profile.memory, **parts)
    return replace(profile, runs=runs, output_tok_s=(profile.output_tok_s or 0.0) * SLOWER, memory=memory)


def failing_records(spec: Spec) -> tuple[ConfigRecord, ConfigRecord]:
    """A baseline, and a candidate that breaks every promise."""
    bounds: dict[str, Any] = dict.fromkeys(("kl", "kl_lower", "kl_sampled", "kl_median", "kl_per_token"), FARTHER)
    far = replace(KL, **bounds)
    perplexity = {name: replace(each, nll=(3.2, 3.4), ppl=27.1) for name, each in DRIFT.perplexity.items()}
    candidate = replace(
        with_suites(TUNED, 30, "gsm8k-5shot", tokens=30),
        fingerprint="cd34",
        scenarios={"default": goodput_of(2000.0, energy=energy_of(3.14, 0.637))},
        profiles={name: _worse(profile) for name, profile in TUNED.profiles.items()},
        drift=replace(DRIFT, against=far, perplexity=perplexity),
        audits={name: replace(audit, gap_median=2.0, gap=2.0) for name, audit in TUNED.audits.items()},
        budgets={name: replace(run, healthy=False, running=0.5) for name, run in TUNED.budgets.items()},
        precision=replace(PRECISION, label="W16A16KV16", weights=16, activations=16, kv=16),
    )
    own: dict[str, Any] = {"spec": dict(spec.raw), "provenance": Provenance(recorded=CONTEXT.generated.isoformat())}
    return replace(with_suites(BASELINE, 48, "gsm8k-5shot"), **own), replace(candidate, **own)


def failing_report(folder: Path) -> Document:
    """Their lab report."""
    spec = spec_of(folder, **SPEC)
    records = failing_records(spec)
    quality = {"accuracy": accuracy_deltas(spec, records), "lengths": length_deltas(spec, records)}
    context = context_of(spec, records, drift=drift_deltas(spec, records), **quality)
    return stored(build_report(spec, records, [gate(each.key, "contract") for each in records], context))


def failing_run(folder: Path) -> Document:
    """Both records in one file, as ``--tokenwatt-out=a.json`` writes them."""
    records = failing_records(spec_of(folder, **SPEC))
    return {"schema": records[0].schema, "records": [stored(record_to_json(record)) for record in records]}


FAILING: Mapping[str, Callable[[Path], Document]] = {
    "published report": lambda folder: reference("lab-kv-cache"),
    "published submission": lambda folder: failing_submission(),
    "uneven submission": lambda folder: uneven_submission(),
    "own report": failing_report,
    "own records": failing_run,
}
PASSING: Mapping[str, Callable[[Path], Document]] = {
    "published report": lambda folder: reference("lab-moe-kernels"),
    "published submission": lambda folder: reference("submission-fp8-chunked-prefill"),
}

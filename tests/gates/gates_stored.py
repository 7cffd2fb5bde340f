"""Records as published reports and submissions state them: figures without the parts that they were made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gates_builders import config, energy, goodput, percentile, scored

from pytest_tokenwatt.gates.catalog import list_gates
from pytest_tokenwatt.gates.comparable import Comparing
from pytest_tokenwatt.gates.decidable import asks_for, undecidable
from pytest_tokenwatt.gates.judge import judge, not_stored
from pytest_tokenwatt.records import ConfigRecord, GateResult
from pytest_tokenwatt.records.audit import AuditRecord
from pytest_tokenwatt.records.drift import Divergence, DriftRecord, PerplexityDelta
from pytest_tokenwatt.records.power import SensorInfo
from pytest_tokenwatt.records.profiles import BudgetRun, PeakMemory, Precision, ProfileRecord
from pytest_tokenwatt.records.stored import Provenance, StoredFigures
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.spec.model import Spec

SUITE = "gsm8k-5shot"
PUBLISHED = Provenance(recorded="2026-10-06")


def spec_of(tmp_path: Path, text: str) -> Spec:
    """A spec of this text."""
    path = tmp_path / "lab.yaml"
    path.write_text(text, encoding="utf-8")
    return load_spec(path, {})


# --- lab reports

LAB = """engine: {endpoint: 'http://127.0.0.1:8000/v1', model: m}
configs:
  - {key: baseline, role: baseline}
  - {key: tuned, role: tuned}
slo: {ttft_p99_ms: 2000, tpot_p99_ms: 50}
measurement: {repeats: 2}
accuracy: {name: gsm8k-5shot, suite: gsm8k-200.jsonl, max_drop_pts: 1.0, limit: 50}
power: {source: board}
"""


def lab(
    key: str,
    tok_s: float | None,
    kw: float,
    ttft_ms: float,
    tpot_ms: float,
    score: float | None,
    *,
    band_pct: float | None = 1.0,
    delta_pts: float | None = 0.0,
    unknown: tuple[str, ...] = (),
    changes: Mapping[str, Any] | None = None,
    **of_config: Any,
) -> ConfigRecord:
    """One entry of a report's ``configs``."""
    tok_j = None if tok_s is None else tok_s / (1000.0 * kw)
    record = goodput(
        tok_s,
        rate_rps=None,
        output_tok_s=None,
        percentiles=(percentile("ttft", ttft_ms, 2000.0), percentile("tpot", tpot_ms, 50.0)),
        highest_passing_rps=None,
        lowest_failing_rps=None,
        error_pct=None,
        variance_band_pct=None,
        slo_pass_count=2,
        figures={},
        energy=energy(tok_j, energy_j=None, node_power_kw=kw, variance_band_pct=None),
    )
    parts: dict[str, Any] = {
        "role": key if key in ("baseline", "tuned") else "other",
        "contract": None,
        "gpus": (SensorInfo("GPU-0", "NVIDIA H100 80GB HBM3", driver="580.105.08"),),
        "suites": {SUITE: scored(score, SUITE)} if score is not None else {},
        "provenance": PUBLISHED,
        "stored": StoredFigures(
            source="lab report",
            band_pct=band_pct,
            delta_pts={} if delta_pts is None else {SUITE: delta_pts},
            spread_pts={SUITE: 0.0},
            unknown=unknown,
        ),
    }
    return config(key, replace(record, **(changes or {})), **{**parts, **of_config})


def kv_cache(**tuned: Any) -> tuple[ConfigRecord, ConfigRecord]:
    """BF16 against FP8 KV cache on one H100."""
    base = lab("baseline", 4572.3, 0.637, 340.0, 44.6, 96.0)
    return base, lab("tuned", 5056.9, 0.616, 352.0, 43.7, **{"score": 88.0, "delta_pts": -8.0, **tuned})


def moe_kernels() -> tuple[ConfigRecord, ...]:
    """Default against tuned kernels on one H100, and the default ones again."""
    return (
        lab("baseline", 4515.0, 0.623, 338.0, 44.2, 96.0, band_pct=0.7),
        lab("tuned", 4522.8, 0.641, 333.0, 42.3, 96.0, band_pct=0.7),
        lab("other", 4516.4, 0.631, 333.0, 43.0, 96.0, band_pct=0.7),
    )


# --- a submission

SUBMISSION = """engine: {endpoint: 'http://127.0.0.1:8000/v1', model: m}
configs:
  - {key: baseline, role: baseline}
  - {key: tuned, role: tuned, precision: W8A8KV8}
profiles: {serve: {}, interactive: {}, long_context: {}}
drift: {perplexity: [{name: hidden, file: hidden}, {name: wikitext2, file: wikitext2}]}
audit: {}
budget: {factor: 1.02}
score: {}
"""
RATES = {
    "interactive": (246.32308683114326, 302.5793654997613),
    "long_context": (730.9919209844271, 1020.5239679733002),
    "serve": (1937.1458343328025, 2783.0896029523274),
}
PEAKS_GIB = {"interactive": (17.591, 11.103), "long_context": (159.736, 82.34), "serve": (55.602, 30.098)}
AUDITS = {"interactive": (0.12190573442048194, 1), "long_context": (0.04173304980499706, 0), "serve": (0.0218, 0)}
UNTIMED = ("memory_capped", "offline", "online_slo")


def submitted(name: str, side: int) -> ProfileRecord:
    """One profile of one side of a submission."""
    memory = PeakMemory(peak_gib=PEAKS_GIB[name][side])
    return ProfileRecord(name, 32, 8192, 512, 128, (), RATES[name][side], memory, "")


def divergence(kl: float | None, se: float | None, **changes: Any) -> Divergence:
    """A divergence of which only the value and its error are stored."""
    found = Divergence(
        kl, se, None, None, None, None, None, None, None, None, 0, sequences=256, tokens=62_197, invalid_positions=0
    )  # fmt: skip
    return replace(found, **changes)


def scored_on(against: Divergence | None, control: Divergence | None) -> DriftRecord:
    """What a submission says of drift."""
    return DriftRecord("", "", 0, 256, 62_197, against, control)


def audits() -> dict[str, AuditRecord]:
    """Three runs that were audited, and three that were not timed."""
    found = {
        name: AuditRecord(
            f"{name}-r0.json", "audited", 24, 24 - empty, empty, 0, empty, gap_median=gap, length_ratio=1.0
        )
        for name, (gap, empty) in AUDITS.items()
    }
    return found | {name: AuditRecord(name, "missing", 0, 0, 0, 0, 0) for name in UNTIMED}


def stated(**changes: Any) -> StoredFigures:
    """What the submission states beside its parts."""
    known: dict[str, Any] = {
        "mean_drop_pts": 0.587,
        "valid_domains": 5,
        "length_shift": 0.01762,
        "drift_points": 0.5509,
        "score_se": 0.0394,
        "gpu_hours": 0.779,
        "verdicts": {"contract": "pass"},
        "perplexity": {
            "hidden": PerplexityDelta(
                "hidden", 0.0009363764522941531, 0.0005956011568420956, 15.63, 15.62, 128, 262_016
            ),
            "wikitext2": PerplexityDelta(
                "wikitext2", 0.0011002849716787954, 0.0006998532920999665, 9.733, 9.722, 146, 298_862
            ),
        },
    }
    return StoredFigures(source="submission", **{**known, **changes})


def submission(**tuned: Any) -> tuple[ConfigRecord, ConfigRecord]:
    """FP8 weights and KV cache against BF16; ``tuned`` replaces fields of the candidate's record."""
    common: dict[str, Any] = {
        "scenarios": {},
        "contract": None,
        "provenance": Provenance(recorded="2026-10-11T20:06:33Z"),
    }
    base = config(
        "baseline",
        **common,
        profiles={name: submitted(name, 0) for name in RATES},
        drift=scored_on(None, divergence(0.0, 0.0)),
        stored=StoredFigures(source="submission"),
    )
    parts: dict[str, Any] = {
        "profiles": {name: submitted(name, 1) for name in RATES},
        "drift": scored_on(divergence(0.009696001195112797, 0.0007364314878597962), None),
        "audits": audits(),
        "budgets": {
            "interactive": BudgetRun("interactive", 1.02, 11.325, None, 1.0, 1.0, healthy=True, value=305.8),
            "long_context": BudgetRun("long_context", 1.02, 83.987, None, 64.0, 64.0, healthy=True, value=1024.3),
            "serve": BudgetRun("serve", 1.02, 30.7, None, 32.0, 32.0, healthy=True, value=2774.9),
        },
        "precision": Precision(8, 8, 8, "W8A8KV8", 8.0),
        "stored": stated(),
    }
    return base, config("tuned", **{**common, **parts, **tuned})


# --- replays


def replay(
    spec: Spec, records: tuple[ConfigRecord, ...], comparing: Comparing | None = None
) -> tuple[dict[str, GateResult], dict[str, str]]:
    """Judge stored records as a replay does: verdicts of the items, and why other gates are only listed."""
    base = next((record for record in records if record.role == "baseline"), None)
    found: dict[str, GateResult] = {}
    listed: dict[str, str] = {}
    for gate in list_gates(spec, records):
        record = next((each for each in records if each.key == gate.config), None)
        if record is None:
            continue
        compared = None if record.role == "baseline" else base
        why = undecidable(gate, record, compared, records)
        name = f"{gate.config}::{gate.gate}"
        if why is None:
            results = tuple(each for each in found.values() if each.config == gate.config)
            found[name] = judge(gate, record, compared, records, results, comparing=comparing or Comparing())
        elif asks_for(spec, gate):
            found[name] = not_stored(gate, why)
        else:
            listed[name] = why.text
    return found, listed

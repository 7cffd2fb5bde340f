"""The lab report: one JSON document about a run, with the field names and units of published lab reports."""

from __future__ import annotations

import hashlib
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from pytest_tokenwatt.records import ConfigRecord, GateResult
from pytest_tokenwatt.report import describe
from pytest_tokenwatt.report.accuracy import accuracy_block, suite_hashes
from pytest_tokenwatt.report.again import baseline_again, machine_drift
from pytest_tokenwatt.report.configs import config_entry
from pytest_tokenwatt.report.context import ReportContext
from pytest_tokenwatt.report.coverage import caveats, not_covered, status
from pytest_tokenwatt.report.fleet import Bands, fleet_block
from pytest_tokenwatt.report.machine import driver, gpu_ids, hardware
from pytest_tokenwatt.report.power import power_block
from pytest_tokenwatt.report.stored_reasons import with_stored_reasons
from pytest_tokenwatt.report.subject import Subject
from pytest_tokenwatt.report.submission import submission
from pytest_tokenwatt.report.summary import summary
from pytest_tokenwatt.report.validity import reasons
from pytest_tokenwatt.spec.model import Configuration, Scenario, Spec

__all__ = ["REPORT_SCHEMA", "ReportContext", "build_report", "report_title"]

REPORT_SCHEMA = "tokenwatt-report/1"
DIGITS = 6


def build_report(
    spec: Spec, records: Sequence[ConfigRecord], gates: Sequence[GateResult], context: ReportContext
) -> dict[str, Any]:
    """The lab report as JSON values, without NaN; the same arguments give the same report.

    What is not known is ``None``: ``not_covered`` says why for the whole run, ``configs[].missing`` for one
    configuration. Figures are rounded to six significant digits; the records keep them all.
    """
    subjects = _subjects(spec, records, context)
    pairs = [(record, spec.configuration(record.key)) for record in records]
    first = pairs[0][1] if pairs else spec.configurations[0]
    scenario = first.scenarios[0]
    found = caveats(spec, records, interrupted=context.interrupted)
    blocks = {
        "hardware": hardware(spec, records, first),
        "software": describe.software(pairs),
        "model": describe.model(spec, pairs),
    }
    report = {
        "id": spec.name,
        "status": status(found, records, gates),
        "title": report_title(spec, context.title),
        "published": context.generated.date().isoformat(),
        "summary": summary(spec, records, gates, found, context),
        **blocks,
        "slo": describe.slo(scenario),
        "workload": describe.workload(first, scenario),
        "power": power_block(records, scenario),
        "accuracy": accuracy_block(spec, records),
        "runs": scenario.measurement.repeats,
        "variance_band_pct": context.variance_band_pct,
        "machine_drift": _machine_drift(records, context),
        "fleet": fleet_block(spec, records, Bands(context.variance_band_pct, context.energy_band_pct)),
        "configs": [_entry(subject, context) for subject in subjects],
        "not_covered": [
            *not_covered(spec, records, found, blocks, context),
            *_no_band(context),
        ],
        "reproduce": shlex.join(context.command),
        "spec": dict(spec.raw),
        "schema": REPORT_SCHEMA,
        "gates": [_gate(gate) for gate in gates],
        "provenance": _provenance(spec, records, context),
        "replayed": None,
    }
    if len(first.scenarios) > 1:
        report["scenarios"] = _scenarios(first)
    plain: dict[str, Any] = _plain(report)
    # The spec stays as its author wrote it, numbers included.
    return {**plain, "spec": json.loads(_canonical(spec.raw))}


def _no_band(context: ReportContext) -> list[str]:
    return ["Variance band: nothing was measured twice"] if context.variance_band_pct is None else []


def report_title(spec: Spec, title: str | None = None) -> str:
    """The title asked for, else the spec's own, else its name."""
    return title or describe.raw(spec.raw, "title") or spec.name


def _subjects(spec: Spec, records: Sequence[ConfigRecord], context: ReportContext) -> list[Subject]:
    baseline = context.baseline or _baseline(records)
    return [
        Subject(
            spec=spec,
            record=record,
            baseline=baseline,
            energy_band_pct=context.energy_band_pct,
            accuracy=context.accuracy.get(record.key),
            length=context.lengths.get(record.key),
            drift=context.drift.get(record.key),
            speed=context.speeds.get(record.key),
            memory=context.memories.get(record.key),
            score=context.scores.get(record.key),
        )
        for record in records
    ]


def _machine_drift(records: Sequence[ConfigRecord], context: ReportContext) -> dict[str, Any]:
    baseline = context.baseline or _baseline(records)
    return machine_drift(baseline, baseline_again(records, baseline), context.variance_band_pct)


def _baseline(records: Sequence[ConfigRecord]) -> ConfigRecord | None:
    return next((record for record in records if record.role == "baseline"), None)


def _entry(subject: Subject, context: ReportContext) -> dict[str, Any]:
    """The configuration's entry, and the submission record of a candidate whose spec asks for a score."""
    entry, record = config_entry(subject), subject.record
    if subject.spec.score is not None and record.role != "baseline" and record.like is None:
        entry = {**entry, "submission": submission(subject, context.generated, context.finished)}
    return dict(with_stored_reasons(entry, record, subject.baseline))


def _gate(gate: GateResult) -> dict[str, Any]:
    return {
        "id": gate.id,
        "config": gate.config,
        "gate": gate.gate,
        "value": gate.value,
        "unit": gate.unit,
        "limit": gate.limit,
        "error": gate.error,
        "text": gate.text,
        "rule": gate.rule,
        "verdict": gate.verdict.value,
        "mode": gate.mode,
        "reasons": reasons(gate.reasons),
    }


def _scenarios(configuration: Configuration) -> dict[str, Any]:
    return {
        scenario.name: {"slo": describe.slo(scenario), "workload": describe.workload(configuration, scenario)}
        for scenario in configuration.scenarios
    }


def _provenance(spec: Spec, records: Sequence[ConfigRecord], context: ReportContext) -> dict[str, Any]:
    return {
        "generated": context.generated.isoformat(timespec="seconds"),
        "versions": dict(context.versions),
        "hashes": _hashes(spec, records),
        "image_digest": None,
        "driver": driver(records),
        "gpu_uuids": gpu_ids(records),
        "engines": {record.key: _engine(record) for record in records},
    }


def _hashes(spec: Spec, records: Sequence[ConfigRecord]) -> dict[str, Any]:
    """SHA-256 of the spec as written, of each configuration's load (requests and SLO), suites and scored token ids."""
    return {
        "spec_sha256": hashlib.sha256(_canonical(spec.raw).encode()).hexdigest(),
        "load_sha256": {
            record.key: {
                each.name: _load_sha256(spec, record, each) for each in spec.configuration(record.key).scenarios
            }
            for record in records
        },
        "suite_sha256": suite_hashes(records),
        "drift_sha256": {record.key: (record.drift.sha256 or None) if record.drift else None for record in records},
    }


def _load_sha256(spec: Spec, record: ConfigRecord, scenario: Scenario) -> str | None:
    """As it was measured; of what was not, as it would be. Files of the load may be gone by the time of a replay."""
    measured = record.scenarios.get(scenario.name)
    known = measured.load_sha256 if measured else None
    return known or spec.digest(spec.configuration(record.key), scenario)


def _engine(record: ConfigRecord) -> dict[str, Any]:
    identity = record.identity
    return {
        "version": identity.version if identity else None,
        "model_ids": list(identity.model_ids) if identity else None,
        "root": identity.root if identity else None,
        "max_model_len": identity.max_model_len if identity else None,
        "cache_config": dict(identity.cache_config) if identity else None,
        "simulated": identity.simulated if identity else None,
        "fingerprint": record.fingerprint,
        "launch": dict(record.launch),
    }


def _canonical(raw: Mapping[str, Any]) -> str:
    return json.dumps(raw, allow_nan=False, default=str)


def _plain(value: Any) -> Any:
    """JSON values only (null for what JSON cannot hold), floats rounded to six significant digits."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return _rounded(value) if math.isfinite(value) else None
    return value.isoformat() if isinstance(value, date) else value


def _rounded(value: float) -> float:
    """Six significant digits, but a count such as 2186576.0 as it is."""
    return value if value.is_integer() else float(f"{value:.{DIGITS}g}")

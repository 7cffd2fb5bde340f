"""The lab report: one JSON document about a run, with the field names and units of published lab reports."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from pytest_tokenwatt.records import ConfigRecord, GateResult
from pytest_tokenwatt.records.accuracy import AccuracyDelta, LengthDelta
from pytest_tokenwatt.records.drift import DriftDelta
from pytest_tokenwatt.report import describe
from pytest_tokenwatt.report.accuracy import accuracy_block, suite_hashes
from pytest_tokenwatt.report.configs import config_entry
from pytest_tokenwatt.report.coverage import caveats, not_covered, status
from pytest_tokenwatt.report.fleet import Bands, fleet_block
from pytest_tokenwatt.report.machine import driver, gpu_ids, hardware
from pytest_tokenwatt.report.power import power_block
from pytest_tokenwatt.report.summary import summary
from pytest_tokenwatt.report.validity import reasons
from pytest_tokenwatt.spec.model import Configuration, Spec

REPORT_SCHEMA = "tokenwatt-report/1"
DIGITS = 6


@dataclass(frozen=True, slots=True)
class ReportContext:
    """What a report says of the run beside its records.

    ``generated`` is an aware instant; ``command`` the words of the command line that repeats the run; ``versions``
    name the software around the engine. ``variance_band_pct`` is the band over all configurations (measured by
    repeats and by a repeated baseline), ``energy_band_pct`` that of tokens per joule; ``None`` when there was nothing
    to compare. ``accuracy`` is how the answers of each configuration compare with the baseline's, ``lengths``
    how long they are, ``drift`` how far its distributions are from the baseline's. ``interrupted`` says what ended
    the run early.
    """

    generated: datetime
    command: tuple[str, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    variance_band_pct: float | None = None
    title: str | None = None
    interrupted: str | None = None
    energy_band_pct: float | None = None
    accuracy: Mapping[str, AccuracyDelta] = field(default_factory=dict)
    lengths: Mapping[str, LengthDelta] = field(default_factory=dict)
    drift: Mapping[str, DriftDelta] = field(default_factory=dict)


def build_report(
    spec: Spec, records: Sequence[ConfigRecord], gates: Sequence[GateResult], context: ReportContext
) -> dict[str, Any]:
    """The lab report as JSON values, without NaN; the same arguments give the same report.

    What is not known is ``None``: ``not_covered`` says why for the whole run, ``configs[].missing`` for one
    configuration. Figures are rounded to six significant digits; the records keep them all.
    """
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
        "summary": summary(records, gates, found, context.accuracy, context.drift),
        **blocks,
        "slo": describe.slo(scenario),
        "workload": describe.workload(first, scenario),
        "power": power_block(records, scenario),
        "accuracy": accuracy_block(spec, records),
        "runs": scenario.measurement.repeats,
        "variance_band_pct": context.variance_band_pct,
        "fleet": fleet_block(spec, records, Bands(context.variance_band_pct, context.energy_band_pct)),
        "configs": [_entry(spec, context, record, configuration) for record, configuration in pairs],
        "not_covered": [
            *not_covered(spec, records, found, blocks, context.lengths, context.drift),
            *_no_band(context),
        ],
        "reproduce": shlex.join(context.command),
        "spec": dict(spec.raw),
        "schema": REPORT_SCHEMA,
        "gates": [_gate(gate) for gate in gates],
        "provenance": _provenance(spec, records, context),
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


def _entry(spec: Spec, context: ReportContext, record: ConfigRecord, configuration: Configuration) -> dict[str, Any]:
    return config_entry(
        record,
        configuration,
        context.energy_band_pct,
        suites=spec.accuracy,
        accuracy=context.accuracy.get(record.key),
        length=context.lengths.get(record.key),
        drift_asked=spec.drift,
        drift=context.drift.get(record.key),
    )


def _gate(gate: GateResult) -> dict[str, Any]:
    return {
        "id": gate.id,
        "config": gate.config,
        "gate": gate.gate,
        "value": gate.value,
        "unit": gate.unit,
        "limit": gate.limit,
        "error": gate.error,
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
    configurations = [spec.configuration(record.key) for record in records]
    return {
        "spec_sha256": hashlib.sha256(_canonical(spec.raw).encode()).hexdigest(),
        "load_sha256": {
            configuration.key: {each.name: spec.digest(configuration, each) for each in configuration.scenarios}
            for configuration in configurations
        },
        "suite_sha256": suite_hashes(records),
        "drift_sha256": {record.key: (record.drift.sha256 or None) if record.drift else None for record in records},
    }


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
    """JSON values only, floats rounded to six significant digits."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    return value.isoformat() if isinstance(value, date) else value

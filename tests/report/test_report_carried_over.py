"""One of our own reports, replayed, says of every configuration what it said before, figure by figure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from leaf_differences import differences
from report_samples import CONTEXT, UNPOWERED, energy_of, goodput_of, record_of, spec_of
from schema_samples import FAULT, faults, with_suites
from submission_samples import ASKED, AUDIT, BASELINE, DRIFT, FINISHED, IDENTITY, PPL, TUNED

from pytest_tokenwatt.gates.band import session_band_pct, session_energy_band_pct
from pytest_tokenwatt.gates.catalog import list_gates
from pytest_tokenwatt.gates.deltas import accuracy_deltas
from pytest_tokenwatt.gates.divergence import drift_deltas
from pytest_tokenwatt.gates.judge import judge
from pytest_tokenwatt.gates.qualify import score_deltas
from pytest_tokenwatt.gates.shifts import length_deltas
from pytest_tokenwatt.gates.speeds import memory_deltas, speed_deltas
from pytest_tokenwatt.records import ConfigRecord, GateResult, Outcome, Percentile
from pytest_tokenwatt.records.drift import AnswerLength
from pytest_tokenwatt.records.profiles import ProfileRecord
from pytest_tokenwatt.replay import open_replay
from pytest_tokenwatt.report.lab import build_report
from pytest_tokenwatt.spec.model import Spec
from pytest_tokenwatt.store.records_json import read_record, write_record
from pytest_tokenwatt.store.replay.read import read_stored

POINTS = ("even", "odd")


def judged(spec: Spec, records: Sequence[ConfigRecord]) -> tuple[GateResult, ...]:
    """All gates, the score last, which rests on the others."""
    found: list[GateResult] = []
    known = {record.key: record for record in records}
    base = next((record for record in records if record.role == "baseline"), None)
    gates = [gate for gate in list_gates(spec, records) if gate.config in known]
    for gate in sorted(gates, key=lambda each: each.kind == "score"):
        other = None if base is None or gate.config == base.key else base
        found.append(judge(gate, known[gate.config], other, records, found))
    return tuple(found)


def report_of(spec: Spec, records: Sequence[ConfigRecord]) -> dict[str, Any]:
    """As a live run makes it."""
    gates = judged(spec, records)
    context = replace(
        CONTEXT,
        variance_band_pct=session_band_pct(records, "default", ()),
        energy_band_pct=session_energy_band_pct(records, "default", ()),
        accuracy=accuracy_deltas(spec, records),
        lengths=length_deltas(spec, records),
        drift=drift_deltas(spec, records),
        speeds=speed_deltas(spec, records),
        memories=memory_deltas(spec, records),
        scores=score_deltas(spec, records, gates),
        finished=FINISHED,
    )
    written: dict[str, Any] = json.loads(json.dumps(build_report(spec, records, gates, context), allow_nan=False))
    return written


def replayed(report: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    path = folder / "report.json"
    path.write_text(json.dumps(report), encoding="utf-8")
    lab = open_replay([path], out=folder / "out")
    for gate in lab.gates:
        lab.judge(gate)
    done = lab.finish()
    assert done is not None
    again: dict[str, Any] = json.loads(json.dumps(done.report, allow_nan=False))
    return again


def percentiles() -> tuple[Percentile, ...]:
    """Also of latencies that no SLO asks for, as live runs have them."""
    others = (("ttft", 50.0, None), ("itl", 99.0, None), ("e2e", 90.0, 900.0))
    measured = goodput_of(1.0).percentiles
    return (*measured, *(Percentile(name, rank, 300.0, False, 700, 250.0, high) for name, rank, high in others))


def served(record: ConfigRecord, tok_s: float, tok_j: float) -> ConfigRecord:
    goodput = goodput_of(tok_s, percentiles=percentiles(), energy=energy_of(tok_j, tok_s / tok_j / 1000.0))
    return replace(record, scenarios={"default": goodput}, fingerprint=f"start of {record.key}")


def faster(profile: ProfileRecord, factor: float) -> ProfileRecord:
    """Another start of the same engine."""
    runs = [replace(run, output_tok_s=(run.output_tok_s or 0.0) * factor) for run in profile.runs]
    counted = [replace(run, output_tokens=round((run.output_tok_s or 0.0) * (run.window_s or 0.0))) for run in runs]
    return replace(profile, runs=tuple(counted), output_tok_s=(profile.output_tok_s or 0.0) * factor)


def complete(folder: Path, *suites: str) -> dict[str, Any]:
    """With every measurement that there is, of answers that flip, some of which failed."""
    asked = [{"name": name, "suite": f"{name}.jsonl", "max_drop_pts": 9.0} for name in suites]
    spec = spec_of(folder, **ASKED, accuracy=asked)
    longer = tuple(AnswerLength(f"p{number}", 120 + number % 9, cut=number > 60) for number in range(64))
    shorter = tuple(replace(each, tokens=(each.tokens or 0) - 1) for each in longer)
    worse = replace(PPL, nll=(2.21, 2.42), ppl=10.1)
    drift = replace(DRIFT, perplexity={"wikitext2": worse}, answers=longer, answers_sha256="aa")
    own = replace(DRIFT, against=None, control=IDENTITY, answers=shorter, answers_sha256="aa")
    audits = {**TUNED.audits, "goodput": replace(AUDIT, run="goodput")}
    again = {name: faster(profile, 1.004) for name, profile in BASELINE.profiles.items()}
    baseline = with_suites(served(replace(BASELINE, again=again, drift=own), 4572.3, 7.178), 48, *suites)
    tuned = with_suites(served(replace(TUNED, drift=drift, audits=audits), 5056.9, 8.209), 45, *suites, tokens=103)
    return report_of(spec, (baseline, tuned))


@pytest.mark.parametrize("suites", [("gsm8k-5shot",), ("gsm8k-5shot", "mmlu")])
def test_a_complete_report_comes_back_leaf_by_leaf(tmp_path: Path, suites: tuple[str, ...]) -> None:
    report = complete(tmp_path, *suites)
    again = replayed(report, tmp_path)
    assert differences(report["configs"], again["configs"]) == []
    assert faults(again) == []
    tuned = report["configs"][1]
    entry = tuned["accuracy"] if isinstance(tuned["accuracy"], dict) else tuned["accuracy"][0]
    assert (entry["flips"], entry["control"]["n"]) == ({"right_to_wrong": 3, "wrong_to_right": 0}, 50)
    assert set(entry["domains"]) == set(POINTS)
    assert tuned["kl"]["histogram"] is not None
    assert tuned["kl"]["identity"] is not None
    assert tuned["submission"]["result"]["score_se"] is not None
    assert tuned["intervals"]["itl_p99_ms"]["n"] == 700


def test_a_record_that_was_read_from_a_report_can_be_stored_and_read(tmp_path: Path) -> None:
    """As a baseline that is promoted from a report."""
    path = tmp_path / "report.json"
    path.write_text(json.dumps(complete(tmp_path, "gsm8k-5shot")), encoding="utf-8")
    for record in read_stored(path).records:
        assert record.stored is not None
        assert record.stored.missing
        write_record(tmp_path / "record.json", record)
        assert read_record(tmp_path / "record.json").record == record


def test_its_gates_find_the_same_in_the_same_words(tmp_path: Path) -> None:
    report = complete(tmp_path, "gsm8k-5shot")
    before, after = of_tuned(report), of_tuned(replayed(report, tmp_path))
    for name in ("accuracy[gsm8k-5shot]", "kl", "length", "speed", "memory", "score", "audit", "slo"):
        assert after[name] == before[name]


def of_tuned(report: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    gates = [gate for gate in report["gates"] if gate["config"] == "tuned"]
    return {gate["gate"]: tuple(gate[name] for name in ("verdict", "text", "rule")) for gate in gates}


def test_answers_that_failed_on_one_side_are_compared_as_before(tmp_path: Path) -> None:
    """199 answers against 200: the pairs that both answered were compared, and still are."""
    spec = spec_of(tmp_path, accuracy={"name": "s", "suite": "s.jsonl", "max_drop_pts": 9.0})
    records = (record_of("baseline", None), record_of("tuned", None))
    baseline, tuned = (with_suites(served(each, 4572.3, 7.178), 48, "s") for each in records)
    suite = tuned.suites["s"]
    items = (replace(suite.items[0], outcome=Outcome.FAILED), *suite.items[1:])
    failed = replace(suite, items=items, score=100 * 47 / 49, counts={**suite.counts, "correct": 47, "failed": 1})
    report = report_of(spec, (baseline, replace(tuned, suites={"s": failed})))
    again = replayed(report, tmp_path)
    assert differences(report["configs"], again["configs"]) == []
    assert [gate["verdict"] for gate in again["gates"] if gate["gate"] == "accuracy[s]"][-1] == "pass"


def test_reasons_of_what_is_null_come_back(tmp_path: Path) -> None:
    """A configuration that did not come up, one that nothing is compared with, and figures that were not asked for."""
    spec = spec_of(tmp_path)
    records = (record_of("baseline", None, **UNPOWERED), record_of("tuned", None, invalid=(FAULT,), **UNPOWERED))
    report = report_of(spec, records)
    again = replayed(report, tmp_path)
    assert differences(report["configs"], again["configs"]) == []


def test_what_is_known_to_be_unknown_never_becomes_something_without_a_field(tmp_path: Path) -> None:
    """An error that was not known would count as 0 if it were only not stored."""
    spec = spec_of(tmp_path, **ASKED, accuracy=None)
    profiles = {name: replace(each, memory=replace(each.memory, error=None)) for name, each in TUNED.profiles.items()}
    records = [served(BASELINE, 4572.3, 7.178), served(replace(TUNED, profiles=profiles), 5056.9, 8.209)]
    paths = [tmp_path / f"{record.key}.json" for record in records]
    for path, record in zip(paths, records, strict=True):
        content = {**report_of(spec, (record,)), "title": path.name}
        path.write_text(json.dumps(content), encoding="utf-8")
    lab = open_replay(paths, out=tmp_path / "out")
    done = lab.finish()
    assert done is not None
    tuned = done.report["configs"][1]
    assert tuned["memory"] is not None
    assert tuned["peak_memory"]["serve"]["missing"]["error"] == "not known of this profile"
    assert tuned["intervals"]["memory"]["low"] is None


def test_reasons_against_one_baseline_are_not_those_against_another(tmp_path: Path) -> None:
    """Alone there was nothing to compare with; beside a baseline of another file that is no reason any more."""
    spec = spec_of(tmp_path)
    records = (record_of("baseline", None), record_of("tuned", None))
    both = [with_suites(served(each, 4572.3, 7.178), 48, "gsm8k-5shot") for each in records]
    for number, record in enumerate(both):
        folder = tmp_path / str(number)
        folder.mkdir()
        content = {**report_of(spec, (record,)), "title": f"run {number}"}
        (folder / "report.json").write_text(json.dumps(content), encoding="utf-8")
    lab = open_replay([tmp_path / str(number) / "report.json" for number in (0, 1)], out=tmp_path / "out")
    done = lab.finish()
    assert done is not None
    entry = done.report["configs"][1]["accuracy"]
    assert entry["delta_pts"] == 0.0
    assert entry["missing"]["flips"] == "the record has no results of single items"

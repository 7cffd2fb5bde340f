"""What keeps a measurement from being taken: no time left, nothing to measure, nowhere to write."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_tokenwatt.campaign.desk import LabOptions
from pytest_tokenwatt.campaign.ledger import blank_record
from pytest_tokenwatt.campaign.misfits import misfits
from pytest_tokenwatt.campaign.observe import Deadline
from pytest_tokenwatt.campaign.phase import Phase
from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.campaign.suites import Shelf
from pytest_tokenwatt.errors import GateFailed, LoadError, NotMeasured, UsageError
from pytest_tokenwatt.gates.judge import judge
from pytest_tokenwatt.lab import Lab
from pytest_tokenwatt.records import ConfigRecord, Reason, Verdict
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.spec.model import Spec
from pytest_tokenwatt.store.journal import Journal
from pytest_tokenwatt.store.records_json import write_record
from pytest_tokenwatt.store.rundir import RunDirectory

ENGINE = "engine: {command: [no-such-engine, --port, '{port}']}\n"
SLO = "slo: {ttft_p90_ms: 3000}\n"


class Silent:
    def line(self, text: str) -> None:
        """Nothing is shown."""


def spec_of(tmp_path: Path, text: str = ENGINE + SLO) -> Spec:
    path = tmp_path / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    return load_spec(path, {})


def lab_of(tmp_path: Path, text: str = ENGINE + SLO, *reports: Path, out: Path | None = None) -> Lab:
    return Lab(spec_of(tmp_path, text), LabOptions(tmp_path, ("pytest",), out=out, reports=reports), Silent())


def test_a_deadline_counts_from_its_first_start() -> None:
    deadline = Deadline(1.0)
    deadline.check()
    deadline.start()
    first_s = deadline.at_s
    deadline.start()
    assert first_s is not None
    assert deadline.at_s == first_s
    with pytest.raises(LoadError, match="the time budget of 1 minutes is used up"):
        Deadline(1.0, time.monotonic() - 1).check()


def test_no_engine_is_started_when_the_time_is_used_up(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    run_dir = RunDirectory(tmp_path / "run")
    with Journal(run_dir.file("journal.jsonl")) as journal:
        used_up = Deadline(1.0, time.monotonic() - 1)
        session = Session(spec, run_dir, journal, "r1", 7, used_up, os.environ, lambda _: None, Shelf(spec))
        phase = Phase(spec.configurations[0], session)
        record = phase.measure()
    assert [reason.code for reason in record.invalid] == ["time_budget"]
    lab = lab_of(tmp_path)
    assert {judge(gate, record, None).verdict for gate in lab.gates} == {Verdict.INCONCLUSIVE}


def test_goodput_that_ran_out_of_time_is_inconclusive_for_a_test_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_time(phase: Phase) -> ConfigRecord:
        phase.amend(replace(phase.record, invalid=(Reason("time_budget", "5 minutes are used up"),)))
        return phase.record

    monkeypatch.setattr(Phase, "measure", out_of_time)
    lab = lab_of(tmp_path)
    with pytest.raises(GateFailed, match="baseline goodput is inconclusive: time_budget") as caught:
        lab.goodput("baseline")
    assert caught.value.verdict == Verdict.INCONCLUSIVE
    lab.close()


@pytest.mark.parametrize(
    ("block", "severity", "what"),
    [
        ("workload: {trace: lengths.jsonl}\n" + SLO, "error", "lengths.jsonl:2: is not JSON"),
        ("workload: {input_tokens: {median: 9, p90: 9}}\n" + SLO, "error", "workload.input_tokens: median 9"),
        ("workload: {trace: absent.jsonl}\n" + SLO, "", ""),
        ("", "warning", "baseline promises nothing in scenario default"),
        ("accuracy: {suite: sums.jsonl}\n", "", ""),
        (SLO, "", ""),
        (SLO + "gates: {rules: [{name: r, metric: ttft_p51_ms, max: 1}]}\n", "error", "did you mean ttft_p"),
        (SLO + "gates: {rules: [{name: r, metric: ttft_p51_ms, max: 1, mode: off}]}\n", "", ""),
        (SLO + "gates: {rules: [{name: r, metric: 'server:any', max: 1}]}\n", "", ""),
        (SLO + "gates: {rules: [{name: r, metric: output_tok_s, min: 1}]}\n", "", ""),
        (SLO + "gates: {rules: [{name: r, metric: energy_j, max: 1}]}\n", "error", "energy_j needs a power source"),
        (SLO + "power: {source: board}\ngates: {rules: [{name: r, metric: energy_j, max: 1}]}\n", "", ""),
        (SLO + "gates: {energy: {min_tok_j: 5}}\n", "warning", "gates.energy: makes no gate: there is no power: block"),
        (SLO + "gates: {energy: {min_tok_j: 5, mode: off}}\n", "", ""),
        (SLO + "gates: {energy: {min: null}, speed: {min: 0.95}}\n", "", ""),
    ],
)
def test_a_workload_is_tried_before_an_engine_starts(tmp_path: Path, block: str, severity: str, what: str) -> None:
    (tmp_path / "lengths.jsonl").write_text('{"input_tokens": 8, "output_tokens": 8}\n{', encoding="utf-8")
    spec = spec_of(tmp_path, ENGINE + block)
    found = misfits(spec, [*spec.configurations, *spec.configurations])
    assert [problem.severity for problem in found] == ([severity] if severity else [])
    assert all(what in str(problem) for problem in found)


def test_places_that_cannot_be_written_are_found_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "notes").touch()
    lab = lab_of(tmp_path, ENGINE + SLO, tmp_path, tmp_path / "new/report.json", out=tmp_path / "notes/run")
    found = [problem for problem in lab.preflight(lab.gates) if problem.key and problem.key.startswith("--")]
    assert [problem.key for problem in found] == ["--tokenwatt-out", "--tokenwatt-report"]


@pytest.mark.parametrize(
    ("held", "severity", "what"),
    [
        ("baseline", "warning", "holds the record of baseline, recorded at an unknown time: it is written over"),
        ("tuned", "error", "holds the record of tuned, which is not of this run and would be lost"),
        (None, "error", "is no record of a run and would be lost"),
    ],
)
def test_what_a_record_file_holds_is_told_before_it_is_written_over(
    tmp_path: Path, held: str | None, severity: str, what: str
) -> None:
    place = tmp_path / "a.json"
    if held is None:
        place.write_text("{}", encoding="utf-8")
    else:
        write_record(place, blank_record(spec_of(tmp_path).with_role(held).configurations[0]))
    lab = lab_of(tmp_path, ENGINE + SLO, out=place)
    (found,) = [problem for problem in lab.preflight(lab.gates) if problem.key == "--tokenwatt-out"]
    assert (found.severity, found.what) == (severity, f"{place} {what}")


def test_a_directory_that_holds_a_run_is_told_unless_that_run_is_continued(tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "journal.jsonl").touch()
    lab = lab_of(tmp_path, out=out)
    (found,) = [problem for problem in lab.preflight(lab.gates) if problem.key == "--tokenwatt-out"]
    assert (found.severity, found.what) == ("warning", f"{out} holds a run already, whose files are written over")
    again = Lab(spec_of(tmp_path), LabOptions(tmp_path, ("pytest",), out=out, resume=True), Silent())
    assert not any(problem.key == "--tokenwatt-out" for problem in again.preflight(again.gates))


def test_a_copy_of_the_report_makes_its_directory_and_a_failed_one_keeps_the_verdicts(tmp_path: Path) -> None:
    copy = tmp_path / "new" / "report.json"
    lab = lab_of(tmp_path, ENGINE + SLO, copy)
    lab.record_gate("baseline", "my rule", 2.0, ">=", 1.0)
    finished = lab.finish()
    assert finished is not None
    assert [gate["id"] for gate in json.loads(copy.read_text(encoding="utf-8"))["gates"]] == ["baseline::my rule"]

    (tmp_path / "notes").touch()
    unlucky = lab_of(tmp_path, ENGINE + SLO, tmp_path / "notes" / "report.json")
    unlucky.record_gate("baseline", "my rule", 2.0, ">=", 1.0)
    with pytest.raises(OSError):
        unlucky.finish()
    assert unlucky.finished is not None
    assert unlucky.finished.report_path.exists()


def test_one_rule_is_not_judged_over_another_of_its_name(tmp_path: Path) -> None:
    lab = lab_of(tmp_path)
    failed = lab.record_gate("baseline", "my rule", 0.5, ">=", 1.0)
    assert lab.record_gate("baseline", "my rule", 0.5, ">=", 1.0) == failed
    with pytest.raises(UsageError, match="another rule 'my rule'"):
        lab.record_gate("baseline", "my rule", 2.0, ">=", 1.0)
    finished = lab.finish()
    assert finished is not None
    assert [result.verdict for result in finished.results] == [Verdict.FAIL]


def test_goodput_of_a_scenario_without_an_slo_was_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_scenarios(phase: Phase) -> ConfigRecord:
        return phase.record

    monkeypatch.setattr(Phase, "measure", without_scenarios)
    lab = lab_of(tmp_path, ENGINE)
    with pytest.raises(NotMeasured, match="baseline goodput was not measured: scenario default has no slo"):
        lab.goodput("baseline")
    lab.close()


@pytest.mark.parametrize(
    ("extra", "outcome"),
    [
        ("configs: [{key: tuned}]\n", "will fail"),
        ("configs: [{key: tuned}]\ngates: {on_missing_baseline: record}\n", "will be skipped"),
        ("configs: [{key: tuned, gates: {goodput: {mode: info}}}]\n", None),
        ("configs: [{key: tuned}, {key: base, role: baseline}]\n", None),
    ],
)
def test_a_missing_baseline_is_said_before_the_run(tmp_path: Path, extra: str, outcome: str | None) -> None:
    lab = lab_of(tmp_path, ENGINE + SLO + extra)
    found = [problem for problem in lab.preflight(lab.gates) if "no baseline" in problem.what]
    assert [problem.severity for problem in found] == ([] if outcome is None else ["warning"])
    assert all(problem.what.endswith(f"tuned goodput {outcome}") for problem in found)


def test_only_a_run_or_nothing_can_be_continued(tmp_path: Path) -> None:
    place = tmp_path / "runs"
    options = LabOptions(tmp_path, ("pytest",), out=place, resume=True)
    tried = Lab(spec_of(tmp_path, ENGINE + SLO), options, Silent())

    def refused() -> list[str]:
        return [problem.what for problem in tried.preflight(tried.gates) if problem.key == "--tokenwatt-resume"]

    assert refused() == []
    place.mkdir()
    assert refused() == []
    (place / "notes.txt").write_text("mine", encoding="utf-8")
    assert refused() == [f"{place} holds no run"]
    (place / "journal.jsonl").write_text("", encoding="utf-8")
    assert refused() == []


@pytest.mark.parametrize(
    ("blocks", "said", "severity"),
    [
        ("configs: [{key: baseline, role: baseline, precision: banana}]", "says no bits", "error"),
        ("budget: {}\nprofiles: {serve: {}}", "cannot be started with less memory", "warning"),
        ("score: {}\nprofiles: {serve: {}}", "no drift block", "warning"),
    ],
)
def test_what_can_only_come_out_undecided_is_said_before(tmp_path: Path, blocks: str, said: str, severity: str) -> None:
    text = 'engine: {endpoint: "http://127.0.0.1:9/v1"}\n' + blocks + "\n"
    if "configs" not in blocks:
        text += "configs: [{key: baseline, role: baseline}, {key: tuned, role: tuned}]\n"
    (tmp_path / "spec.yaml").write_text(text, encoding="utf-8")
    lab = Lab(load_spec(tmp_path / "spec.yaml", {}), LabOptions(rootdir=tmp_path, invocation=("pytest",)), Silent())
    lab.select(lab.gates)
    found = [problem for problem in lab.preflight(lab.gates) if said in problem.what]
    assert [problem.severity for problem in found] == [severity]

"""Ctrl-C between two scenarios: the first one stays measured."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_tokenwatt.campaign.observe import Deadline
from pytest_tokenwatt.campaign.phase import Phase
from pytest_tokenwatt.campaign.scenario import named_death, unmeasured
from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.campaign.suites import Shelf
from pytest_tokenwatt.records import Contract, GoodputRecord, ProbeOutcome, Reason, ServedIdentity
from pytest_tokenwatt.records.profiles import Startup
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.spec.model import Scenario
from pytest_tokenwatt.store.journal import Journal
from pytest_tokenwatt.store.records_json import read_record
from pytest_tokenwatt.store.rundir import RunDirectory

SPEC = """\
engine: {endpoint: "http://127.0.0.1:9/v1"}
slo: {ttft_p90_ms: 3000}
scenarios: [{name: chat}, {name: rag}]
"""
DONE = Reason("client_cpu", "as measured")


class Engine(SimpleNamespace):
    endpoint = "http://127.0.0.1:9/v1"
    identity = ServedIdentity(("toy",), simulated=True)
    fingerprint = None
    launch: dict[str, Any] = {}  # noqa: RUF012 - read only
    notes = ()
    startup = Startup()
    stops = 0

    def environment(self, names: object) -> dict[str, str]:
        return {}

    def processes(self) -> None:
        return None

    def check_contract(self) -> Contract:
        return Contract((ProbeOutcome("version", False, "missing", "404", "the served version"),))

    def stop(self) -> None:
        self.stops += 1


@pytest.mark.parametrize("first", ["start", "rag"])
def test_what_was_measured_before_ctrl_c_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    engine = Engine()

    def start(*_: object) -> Engine:
        if first == "start":
            raise KeyboardInterrupt
        return engine

    def measure(_: object, scenario: Scenario, *__: object) -> GoodputRecord:
        if scenario.name == first:
            raise KeyboardInterrupt
        return unmeasured(scenario, DONE)

    monkeypatch.setattr("pytest_tokenwatt.campaign.phase.start_engine", start)
    monkeypatch.setattr("pytest_tokenwatt.campaign.timed.measure_scenario", measure)
    (tmp_path / "spec.yaml").write_text(SPEC, encoding="utf-8")
    spec = load_spec(tmp_path / "spec.yaml", {})
    run_dir = RunDirectory(tmp_path / "run")
    with Journal(run_dir.file("journal.jsonl")) as journal:
        session = Session(spec, run_dir, journal, "r1", 7, Deadline(), os.environ, lambda _: None, Shelf(spec))
        phase = Phase(spec.configurations[0], session)
        with pytest.raises(KeyboardInterrupt):
            phase.measure()
    stored = read_record(run_dir.path / "record-baseline.json").record
    codes = {name: [reason.code for reason in each.invalid] for name, each in stored.scenarios.items()}
    if first == "start":
        assert [reason.code for reason in stored.invalid] == ["interrupted"]
    else:
        assert stored.invalid == ()
        assert codes == {"chat": ["client_cpu"], "rag": ["interrupted"]}
        assert stored.not_covered == ("Contract probe version is missing: the served version",)
        assert engine.stops == 1


def test_a_death_is_named_before_what_follows_from_it(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC, encoding="utf-8")
    scenario = load_spec(tmp_path / "spec.yaml", {}).configurations[0].scenarios[0]
    record = unmeasured(scenario, Reason("offered_shortfall", "0 of 10 were sent"))
    assert named_death(record, "engine baseline died with exit code 1") == record
    died = replace(record, invalid=(*record.invalid, Reason("engine_died", "the engine died during this load")))
    assert named_death(died, None) == died
    named = named_death(died, "engine baseline died with exit code 1 (log: engine-baseline.log)")
    assert [reason.code for reason in named.invalid] == ["engine_died", "offered_shortfall"]
    assert "exit code 1 (log: engine-baseline.log)" in str(named.invalid[0])

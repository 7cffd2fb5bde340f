"""Suites within a run: what they can tell beforehand, how they are asked, and what of them is continued."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from pytest_tokenwatt.campaign.accuracy import measure_suite
from pytest_tokenwatt.campaign.ledger import blank_record
from pytest_tokenwatt.campaign.observe import Deadline
from pytest_tokenwatt.campaign.resume import earlier_records, kept_suites
from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.campaign.suites import Shelf, compared
from pytest_tokenwatt.errors import LoadError, NotMeasured, Problem
from pytest_tokenwatt.quality.accuracy import suite_record
from pytest_tokenwatt.quality.asking import CONTROL, questions
from pytest_tokenwatt.records import ConfigRecord, Reply, SuiteRecord
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.spec.model import Spec
from pytest_tokenwatt.store.answers import read_answers
from pytest_tokenwatt.store.journal import Journal
from pytest_tokenwatt.store.records_json import read_record, write_record
from pytest_tokenwatt.store.rundir import RunDirectory

CONFIGS = [{"key": "baseline", "role": "baseline"}, {"key": "tuned", "role": "tuned"}]


def spec_of(root: Path, *, items: int = 40, rule: str = "point", more: Mapping[str, Any] = {}, **suite: Any) -> Spec:
    lines = [json.dumps({"id": f"q{number}", "prompt": f"{number} =", "answer": number}) for number in range(items)]
    (root / "sums.jsonl").write_text("\n".join(lines), encoding="utf-8")
    spec = {
        "engine": {"endpoint": "http://127.0.0.1:9/v1"},
        "configs": CONFIGS,
        "accuracy": {"name": "sums", "suite": "sums.jsonl", "concurrency": 4, **suite},
        "gates": {"accuracy": {"rule": rule}},
        **more,
    }
    (root / "spec.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
    return load_spec(root / "spec.yaml", {})


# --- what a suite can tell, before anything starts


def problems(spec: Spec) -> list[Problem]:
    return list(Shelf(spec).problems())


@pytest.mark.parametrize(("rule", "severity"), [("point", "warning"), ("noninferiority", "error")])
def test_a_suite_that_cannot_resolve_its_margin_is_told_beforehand(tmp_path: Path, rule: str, severity: str) -> None:
    (problem,) = problems(spec_of(tmp_path, rule=rule))
    assert problem.severity == severity
    assert "40 items can resolve a drop of 8.8 points, and max_drop_pts is 1 (assuming that 5 % flip)" in str(problem)
    assert "ask 3,092 items" in str(problem)
    assert problems(spec_of(tmp_path, rule=rule, max_drop_pts=9)) == []


@pytest.mark.parametrize("margin", [0, 1e-320, 1e-200, 0.001])
def test_no_number_of_items_is_advised_for_no_margin(tmp_path: Path, margin: float) -> None:
    (problem,) = problems(spec_of(tmp_path, rule="noninferiority", max_drop_pts=margin))
    assert problem.remedy == "raise max_drop_pts"


@pytest.mark.parametrize(("temperature", "tells"), [(0, "8.8"), (0.7, "0.9")])
def test_seeds_of_greedy_answers_tell_nothing_new(tmp_path: Path, temperature: float, tells: str) -> None:
    spec = spec_of(tmp_path, rule="noninferiority", seeds=100, sampling={"temperature": temperature})
    assert Shelf(spec).tells()["sums"] == f"40 items can resolve a drop of {tells} points (if 5 % of them flip)"
    assert len(problems(spec)) == (1 if temperature == 0 else 0)


def test_a_baseline_alone_has_no_margin(tmp_path: Path) -> None:
    assert problems(spec_of(tmp_path, more={"configs": CONFIGS[:1]}, min_score=50)) == []


def test_a_stop_that_any_word_sets_off_is_named(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, max_drop_pts=9, stop=["Question", "\n\nQuestion:", "###"])
    (problem,) = problems(spec)
    assert problem.severity == "warning"
    assert str(problem).startswith(f"{spec.path}:{problem.line}: accuracy.stop: 'Question' ends an answer wherever it")
    assert problem.remedy == 'write "\\nQuestion", which begins a line'


# --- asking


@dataclass
class Engine:
    """Says every number that it is asked for; from ``slow_after`` on it keeps everybody waiting."""

    slow_after: int = 10**9
    text: str | None = None
    sent: list[str] = field(default_factory=list)
    fingerprint: str = "f"
    launch: Mapping[str, Any] = field(default_factory=dict)

    @property
    def client(self) -> Any:
        return SimpleNamespace(complete=self.complete)

    async def complete(self, prompt: str, **_: Any) -> Reply:
        self.sent.append(prompt)
        await asyncio.sleep(60 if len(self.sent) > self.slow_after else 0)
        text = f" {prompt.split()[0]}" if self.text is None else self.text
        return Reply(text, "stop", 2, 1, None, {"choices": [{"text": text, "finish_reason": "stop"}]})

    def call(self, work: Any) -> Any:
        return asyncio.run(work)

    def death(self) -> None:
        return None


def session_of(
    spec: Spec, root: Path, said: list[str], *, minutes: float | None = None, resume: bool = False
) -> Session:
    run_dir = RunDirectory(root / "run")
    at_s = None if minutes is None else time.monotonic() + 60 * minutes
    earlier: dict[str, ConfigRecord] | None = {} if resume else None
    journal = Journal(run_dir.file("journal.jsonl"))
    return Session(
        spec, run_dir, journal, "r1", 7, Deadline(minutes, at_s), os.environ, said.append, Shelf(spec), earlier
    )


def asked(spec: Spec, root: Path, engine: Engine, said: list[str], key: str = "baseline", **how: Any) -> SuiteRecord:
    session = session_of(spec, root, said, **how)
    with session.journal:
        return measure_suite(spec.configuration(key), spec.accuracy[0], engine, session)  # type: ignore[arg-type]


def test_a_suite_stops_when_the_time_is_used_up_and_goes_on_from_there(tmp_path: Path) -> None:
    spec, engine = spec_of(tmp_path), Engine(slow_after=20)
    said: list[str] = []
    began_s = time.monotonic()
    with pytest.raises(LoadError) as caught:
        asked(spec, tmp_path, engine, said, minutes=0.5 / 60)
    assert caught.value.reason == "time_budget"
    assert time.monotonic() - began_s < 20
    assert len(read_answers(tmp_path / "run" / "answers-baseline-sums.jsonl")) == 20
    again = Engine()
    record = asked(spec, tmp_path, again, said, resume=True)
    assert (len(again.sent), record.score) == (20, 100.0)
    assert "baseline sums: 20 answers of the interrupted run are kept" in said


def test_stored_answers_are_scored_anew_without_an_engine(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, control=True, seeds=2)
    suite, shelf = spec.accuracy[0], Shelf(spec)
    record = asked(spec, tmp_path, Engine(), [])
    answers = read_answers(tmp_path / "run" / str(record.answers_file))
    loaded = shelf.open(suite)
    both = questions(loaded.items, suite) + questions(loaded.items, suite, part=CONTROL)
    again = suite_record(suite, loaded, shelf.scorer(suite), both, answers, answers_file=record.answers_file)
    assert again == record


def test_a_test_of_its_own_sees_no_drop_where_none_could_show(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    read, unread = (asked(spec, tmp_path, Engine(text=text), []) for text in (None, ""))
    assert compared("tuned", unread, read).delta_pts == -100.0
    with pytest.raises(NotMeasured, match=r"none of the baseline's answers to sums can be read \(40 unparseable\)"):
        _ = compared("tuned", unread, unread).delta_pts


def test_only_the_baseline_has_a_control(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, control=True, seeds=2)
    records = {key: asked(spec, tmp_path, Engine(), [], key) for key in ("baseline", "tuned")}
    assert [len(records["baseline"].items), len(records["baseline"].control)] == [80, 40]
    assert [len(records["tuned"].items), len(records["tuned"].control)] == [80, 0]


def test_what_is_odd_about_the_answers_is_said_at_once(tmp_path: Path) -> None:
    said: list[str] = []
    record = asked(spec_of(tmp_path), tmp_path, Engine(text=""), said)
    assert record.counts["unparseable"] == 40
    assert "baseline sums: 0.0 % of 40 right (40 unparseable)" in said
    assert any("40 of 40 answers hold nothing that the scorer can read" in line for line in said)


def test_pairs_whose_names_run_together_have_files_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "sums.jsonl").write_text('{"id": "q1", "prompt": "1 =", "answer": "1"}', encoding="utf-8")
    configs = [{"key": "a-b", "role": "baseline"}, {"key": "a", "role": "tuned"}]
    suites = [{"name": name, "suite": "sums.jsonl"} for name in ("c", "b-c")]
    spec = spec_of(tmp_path, more={"configs": configs, "accuracy": suites})
    session = session_of(spec, tmp_path, [])
    with session.journal:
        records = [
            measure_suite(config, suite, Engine(), session)  # type: ignore[arg-type]
            for config in spec.configurations
            for suite in spec.accuracy
        ]
    files = [record.answers_file for record in records]
    assert len(set(files)) == 4
    assert all(len(read_answers(tmp_path / "run" / str(name))) == 40 for name in files)


# --- going on with an interrupted run


def stored(spec: Spec, root: Path) -> None:
    suite = asked(spec, root, Engine(), [])
    blank = blank_record(spec.configuration("baseline"))
    record = replace(blank, spec=spec.raw, suites={"sums": suite}, fingerprint="f")
    write_record(root / "run" / "record-baseline.json", record)
    assert read_record(root / "run" / "record-baseline.json").record.suites["sums"] == suite


@pytest.mark.parametrize(
    ("changes", "continued"),
    [
        ({}, True),
        ({"max_drop_pts": 5.0, "min_score": 10}, True),
        ({"rule": "noninferiority"}, True),
        ({"more": {"configs": [{**CONFIGS[0], "label": "x", "gates": {"goodput": {"min": 0.9}}}, CONFIGS[1]]}}, True),
        ({"more": {"title": "another", "x-note": 1}}, True),
        ({"max_tokens": 7}, False),
        ({"concurrency": 8}, False),
        ({"more": {"configs": [{**CONFIGS[0], "precision": "W8A8KV8"}, CONFIGS[1]]}}, False),
    ],
)
def test_limits_may_change_before_a_run_is_continued(tmp_path: Path, changes: dict[str, Any], continued: bool) -> None:
    stored(spec_of(tmp_path), tmp_path)
    records, notes = earlier_records(tmp_path / "run", spec_of(tmp_path, **changes))
    assert (list(records) == ["baseline"]) is continued
    assert any("the spec has changed since" in note for note in notes) is not continued


def test_a_suite_of_a_quick_run_lacks_the_other_seeds(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, seeds=3)
    stored(spec.quick(), tmp_path)
    records, _ = earlier_records(tmp_path / "run", spec)
    assert list(kept_suites(records["baseline"], spec.quick().accuracy)) != []
    assert list(kept_suites(records["baseline"], spec.accuracy)) == []
    engine = Engine()
    record = asked(spec, tmp_path, engine, [], resume=True)
    assert (len(engine.sent), len(record.items)) == (80, 120)


def test_a_suite_that_is_not_asked_any_more_is_not_kept(tmp_path: Path) -> None:
    stored(spec_of(tmp_path), tmp_path)
    record = read_record(tmp_path / "run" / "record-baseline.json").record
    assert list(kept_suites(record, ())) == []


def test_a_phase_that_measured_nothing_is_passed_over(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    (tmp_path / "run").mkdir()
    write_record(tmp_path / "run" / "record-baseline.json", blank_record(spec.configuration("baseline")))
    (tmp_path / "run" / "record-tuned.json").write_text("{", encoding="utf-8")
    records, notes = earlier_records(tmp_path / "run", spec)
    assert records == {}
    assert [note.partition(":")[0] for note in notes] == ["record-tuned.json is not continued"]


def test_progress_is_told_with_the_time_that_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_tokenwatt.campaign.accuracy.PROGRESS_EVERY_S", 0.0)
    said: list[str] = []
    asked(spec_of(tmp_path), tmp_path, Engine(), said)
    told = [line for line in said if re.search(r"\b\d+ of 40 answers, about \d+ s left$", line)]
    assert len(told) >= 30

"""Pytest's own ways to choose and to look, applied to gates."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripted_lab import ALL, Project

from pytest_tokenwatt.store.records_json import write_record
from pytest_tokenwatt.store.replay.read import read_stored

STORED = Path(__file__).resolve().parents[1] / "report" / "reference" / "lab-moe-kernels.json"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    project = Project(pytester, monkeypatch)
    pytester.makepyfile(test_user="def test_plain(): pass\ndef test_lab(goodput): pass")
    return project


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-k", "tuned"], ALL[3:]),
        (["-k", "tuned and slo"], [ALL[4]]),
        (["-k", "rule"], [ALL[2], ALL[6]]),
        (["-m", "tokenwatt"], ALL),
        (["-m", "not tokenwatt"], []),
        (["--deselect", "lab.yaml::tuned"], ALL[:3]),
        (["--deselect", "lab.yaml::tuned::slo", "--deselect", "lab.yaml::baseline"], [ALL[3], *ALL[5:]]),
    ],
)
def test_gates_are_selected_like_tests(project: Project, arguments: list[str], expected: list[str]) -> None:
    assert project.collected("lab.yaml", *arguments) == expected


def test_the_mark_covers_gates_and_tests_that_measure(project: Project) -> None:
    measured = ["test_user.py::test_lab[baseline]", "test_user.py::test_lab[tuned]"]
    selected = project.collected("lab.yaml", ".", "-m", "tokenwatt")
    assert sorted(selected) == sorted([*ALL, *measured])
    assert project.collected("lab.yaml", ".", "-m", "not tokenwatt") == ["test_user.py::test_plain"]


def test_last_failed(project: Project) -> None:
    project.spec(extra="x-verdicts: {'tuned::slo': fail}\n")
    options = ("-p", "cacheprovider", "lab.yaml", "test_user.py")
    assert project.run(*options).ret == 1
    assert project.collected("--lf", *options) == ["lab.yaml::tuned::slo"]
    assert project.run("--lf", "--tokenwatt-spec=lab.yaml", "-p", "cacheprovider").ret == 1
    first = project.collected("--ff", *options)
    assert first == [
        "test_user.py::test_plain",
        *ALL[:3],
        "test_user.py::test_lab[baseline]",
        ALL[4],
        ALL[3],
        *ALL[5:],
        "test_user.py::test_lab[tuned]",
    ]


def test_stop_at_the_first_failure(project: Project) -> None:
    project.spec(extra="x-verdicts: {'baseline::slo': fail}\n")
    result = project.run("-x", "lab.yaml")
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1)
    assert project.calls == [
        "select 7",
        *(f"measure baseline::{gate}" for gate in ("contract", "slo")),
        "finish",
        "close",
        "close",
    ]
    assert "nothing of this spec ran" not in result.stdout.str()


@pytest.mark.parametrize("look", ["--setup-plan", "--setup-only", "--collect-only", "--fixtures", "--markers"])
def test_looking_starts_nothing_and_passes(project: Project, look: str) -> None:
    result = project.run(look, "lab.yaml")
    assert result.ret == 0
    assert not [call for call in project.calls if call.startswith(("measure", "engine"))]
    assert "nothing of this spec ran" not in result.stdout.str()


def test_fixtures_and_mark_are_documented(project: Project) -> None:
    project.run("--fixtures").stdout.fnmatch_lines(["goodput *", "*Goodput at the highest rate*", "tokenwatt *"])
    project.run("--markers").stdout.fnmatch_lines(["@pytest.mark.tokenwatt(config=KEY): *"])


def test_strict_settings_find_nothing(project: Project) -> None:
    result = project.run("-W", "error", "--strict-markers", "--strict-config", "lab.yaml", ".")
    result.assert_outcomes(passed=10)
    assert result.ret == 0


@pytest.mark.parametrize("absent", ["terminal", "capture", "cacheprovider", "junitxml", "tokenwatt_aliases"])
def test_other_plugins_may_be_missing(project: Project, absent: str) -> None:
    assert project.run("-p", f"no:{absent}", "lab.yaml").ret == 0


def test_items_of_a_replay_are_named_as_they_are_shown(project: Project) -> None:
    (project.pytester.path / "lab.json").write_bytes(STORED.read_bytes())
    replay = "--tokenwatt-replay=lab.json"
    assert "lab.json::tuned::slo" in project.collected(replay)
    assert project.collected(replay, "lab.json::tuned::slo") == ["lab.json::tuned::slo"]
    assert project.collected(replay, "lab.json") == project.collected(replay)


def test_items_of_a_replayed_directory_are_named_as_they_are_shown(project: Project) -> None:
    run = project.pytester.mkdir("run")
    write_record(run / "record-baseline.json", read_stored(STORED).records[0])
    shown = project.collected("--tokenwatt-replay=run")
    assert project.collected("--tokenwatt-replay=run", shown[0]) == shown[:1]

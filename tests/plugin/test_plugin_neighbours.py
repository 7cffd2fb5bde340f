"""Beside other plugins: workers, timeouts, reruns; and an idle run that must not notice us."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from scripted_lab import Project

import pytest_tokenwatt

IDLE = """
import sys
before = set(sys.modules)
import pytest
code = pytest.main([*sys.argv[1:]])
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
print("CODE", int(code), "LOADED", *sorted(loaded - set(sys.stdlib_module_names)))
print("OURS", *sorted(name for name in sys.modules if name.startswith("pytest_tokenwatt")))
"""
PYTEST_ITSELF = {"_pytest", "pytest", "pluggy", "iniconfig", "packaging", "py", "pygments"}
LIGHT = {
    "pytest_tokenwatt",
    "pytest_tokenwatt.errors",
    "pytest_tokenwatt.plugin",
    "pytest_tokenwatt.plugin.aliases",
    "pytest_tokenwatt.plugin.arguments",
    "pytest_tokenwatt.plugin.fixtures",
    "pytest_tokenwatt.plugin.hooks",
    "pytest_tokenwatt.plugin.options",
}


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(pytester, monkeypatch)


def test_an_idle_run_loads_only_what_pytest_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(pytest_tokenwatt.__file__).parents[1]))
    (tmp_path / "test_plain.py").write_text("def test_ok(): pass", encoding="utf-8")
    (tmp_path / "lab.yaml").write_text("engine: {}\nslo: {}\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", IDLE, "-p", "pytest_tokenwatt.plugin", "-p", "no:cacheprovider", "-q"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    code, _, _, *loaded = next(line for line in lines if line.startswith("CODE")).split()[1:]
    assert code == "0"
    assert set(loaded) <= PYTEST_ITSELF | {"pytest_tokenwatt", "test_plain"}
    assert set(next(line for line in lines if line.startswith("OURS")).split()[1:]) == LIGHT
    assert {path.name for path in tmp_path.iterdir()} <= {"test_plain.py", "lab.yaml", "__pycache__"}


@pytest.mark.parametrize("workers", [("-n2",), ("-n1",), ("--dist=loadfile", "--tx=popen")])
def test_gates_refuse_workers_and_name_the_recipe(project: Project, workers: tuple[str, ...]) -> None:
    pytest.importorskip("xdist")
    result = project.run("-p", "xdist.plugin", "-p", "xdist.looponfail", *workers, "lab.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: gates measure the whole machine * run them with -n0*"])
    assert project.run("-p", "xdist.plugin", "-n0", "lab.yaml").ret == 0
    assert project.run("-p", "xdist.plugin", "--collect-only", *workers, "lab.yaml").ret == 0


def test_workers_without_a_spec_are_none_of_our_business(project: Project) -> None:
    pytest.importorskip("xdist")
    project.pytester.makepyfile("def test_ok(): pass")
    result = project.run("-p", "xdist.plugin", "-p", "pytest_tokenwatt.plugin", "-n1", "-W", "error")
    assert result.ret == 0
    assert "gates" not in result.stdout.str()


def test_gates_are_exempt_from_timeouts(project: Project) -> None:
    pytest.importorskip("pytest_timeout")
    project.pytester.makeconftest(
        "def pytest_collection_finish(session):\n"
        "    for item in session.items:\n"
        "        print('TIMEOUT', item.name, [mark.args for mark in item.iter_markers('timeout')])\n"
    )
    result = project.run("-p", "pytest_timeout", "--timeout=60", "--strict-markers", "lab.yaml::tuned::slo", "-s")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["TIMEOUT slo [[](0,)[]]"])


def test_a_rerun_returns_the_same_verdict(project: Project) -> None:
    pytest.importorskip("pytest_rerunfailures")
    project.spec(extra="x-verdicts: {'tuned::slo': invalid}\n")
    result = project.run("-p", "pytest_rerunfailures", "--reruns=2", "lab.yaml", "--junitxml=junit.xml")
    assert result.ret == 11
    assert project.calls.count("measure tuned::slo") == 1
    result.stdout.fnmatch_lines(["*1 failed, 6 passed, 2 rerun*"])
    for case in ET.parse(project.pytester.path / "junit.xml").iter("testcase"):
        assert [each.get("name") for each in case.iter("property")].count("tokenwatt_verdict") == 1


def test_engines_are_let_go_only_behind_the_reruns(project: Project) -> None:
    pytest.importorskip("pytest_rerunfailures")
    project.spec(extra="x-verdicts: {'baseline::rule[fast]': fail}\n")
    project.run("-p", "pytest_rerunfailures", "--reruns=1", "lab.yaml")
    assert project.calls.count("leave baseline") == 1


def test_a_plugin_that_shuffles_cannot_split_a_phase(project: Project) -> None:
    project.pytester.makeconftest(
        "import pytest\n@pytest.hookimpl(trylast=True)\ndef pytest_collection_modifyitems(items): items.reverse()\n"
    )
    keys = [each.split("::")[1] for each in project.collected("lab.yaml")]
    assert keys == ["baseline"] * 3 + ["tuned"] * 4

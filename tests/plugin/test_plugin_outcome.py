"""What pytest makes of verdicts: outcomes, messages, exit codes, JUnit."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from scripted_lab import Project


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(pytester, monkeypatch)


def script(project: Project, *verdicts: str, on_inconclusive: str = "fail") -> None:
    lines = "".join(f"  {verdict}\n" for verdict in verdicts)
    project.spec(extra=f"  on_inconclusive: {on_inconclusive}\nx-verdicts:\n{lines or '  none: pass'}\n")


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([], 0),
        (["tuned::slo: fail"], 1),
        (["tuned::slo: inconclusive"], 10),
        (["tuned::slo: invalid"], 11),
        (["tuned::slo: inconclusive", "tuned::goodput: invalid"], 11),
        (["tuned::slo: inconclusive", "tuned::goodput: invalid", "baseline::slo: fail"], 1),
        (["tuned::slo: '-'"], 0),
    ],
)
def test_verdicts_set_the_exit_code(project: Project, verdicts: list[str], code: int) -> None:
    script(project, *verdicts)
    result = project.run("lab.yaml")
    assert result.ret == code
    result.assert_outcomes(failed=len(verdicts) if code else 0, passed=7 - len(verdicts) if code else 7)


@pytest.mark.parametrize(("setting", "outcome"), [("skip", "skipped"), ("xfail", "xfailed")])
def test_an_inconclusive_gate_may_be_excused(project: Project, setting: str, outcome: str) -> None:
    script(project, "tuned::slo: inconclusive", on_inconclusive=setting)
    result = project.run("lab.yaml", "-rxs")
    assert result.ret == 0
    result.assert_outcomes(passed=6, **{outcome: 1})
    result.stdout.fnmatch_lines(["*tuned slo: inconclusive: 12.4 req/s*scripted*"])
    if setting == "skip":
        result.stdout.fnmatch_lines(["SKIPPED [[]1[]] lab.yaml:6: tuned slo: inconclusive*"])


def test_an_informational_gate_that_was_not_measured_is_no_passed_test(project: Project) -> None:
    script(project, "tuned::slo: '- invalid'")
    result = project.run("lab.yaml", "-rs")
    assert result.ret == 0
    result.assert_outcomes(passed=6, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED [[]1[]] lab.yaml:6: tuned slo: -: 12.4 req/s*scripted*"])


def test_runxfail_does_not_turn_an_inconclusive_gate_green(project: Project) -> None:
    script(project, "tuned::slo: inconclusive", on_inconclusive="xfail")
    result = project.run("lab.yaml", "--runxfail")
    result.assert_outcomes(passed=6, failed=1)
    assert result.ret == 1


def test_a_failing_test_of_the_user_wins_over_invalid(project: Project) -> None:
    script(project, "tuned::slo: invalid")
    project.pytester.makepyfile("def test_broken(): raise RuntimeError('theirs')")
    assert project.run("lab.yaml", ".").ret == 1


def test_a_failing_fixture_of_the_user_wins_over_invalid(project: Project) -> None:
    script(project, "tuned::slo: invalid")
    project.pytester.makeconftest(
        "import pytest\n"
        "@pytest.fixture(autouse=True)\n"
        "def fragile(request):\n"
        "    yield\n"
        "    if 'contract' in request.node.name: raise RuntimeError('theirs')\n"
    )
    assert project.run("lab.yaml").ret == 1


@pytest.mark.parametrize("style", ["auto", "short", "long", "line", "native"])
def test_a_failed_gate_is_one_line_with_its_place_in_the_spec(project: Project, style: str) -> None:
    script(project, "tuned::slo: fail")
    out = project.run("lab.yaml", f"--tb={style}").stdout
    line = "lab.yaml:6: tuned slo: fail: 12.4 req/s, rule <= 100 ms; scripted: the script says so"
    assert out.str().count(line) == (2 if style == "line" and pytest.version_tuple >= (9,) else 1)
    out.fnmatch_lines(["FAILED lab.yaml::tuned::slo - tuned slo: fail: *"])
    assert "Error" not in out.str()
    assert "outcome.py" not in out.str()


def test_the_table_ends_the_run(project: Project) -> None:
    out = project.run("lab.yaml").stdout
    out.fnmatch_lines(
        ["*= tokenwatt: scripted =*", "gate *verdict*", "baseline *contract*pass*", "report: runs/lab/report.json"]
    )
    assert out.str().index("report: ") < out.str().index("7 passed")


def test_a_run_that_looked_at_nothing_fails(project: Project) -> None:
    project.pytester.makepyfile("def test_ok(): pass")
    result = project.run("lab.yaml", ".", "-k", "test_ok")
    assert result.ret == 1
    result.assert_outcomes(passed=1, deselected=7)
    result.stdout.fnmatch_lines(["tokenwatt: lab.yaml: nothing of this spec ran; *"])
    assert project.run("lab.yaml", "-k", "nonesuch").ret == 1
    assert project.run("lab.yaml", "-m", "not tokenwatt").ret == 1


def test_each_active_spec_must_run(project: Project) -> None:
    project.spec("next.yaml", extra="x-name: next\n")
    result = project.run("lab.yaml", "next.yaml", "-k", "lab.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["tokenwatt: next.yaml: nothing of this spec ran; *"])


def test_a_report_that_cannot_be_written_fails_the_run(project: Project) -> None:
    project.spec(extra="x-unwritable: true\n")
    result = project.run("lab.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["tokenwatt: lab.yaml: the report could not be written: *No space left on device"])
    assert project.calls[-1] == "close"


def test_ctrl_c_keeps_what_was_measured(project: Project) -> None:
    script(project, "tuned::slo: interrupt")
    result = project.run("lab.yaml")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert [call for call in project.calls if not call.startswith("measure")] == [
        "select 7",
        "leave baseline",
        "interrupted",
        "finish",
        "close",
        "close",
    ]
    result.stdout.fnmatch_lines(["baseline *contract*pass*", "tokenwatt: lab.yaml: interrupted; *"])


def test_an_interrupted_session_that_is_no_ctrl_c_is_not_called_so(project: Project) -> None:
    project.pytester.makepyfile("import nonesuch")
    result = project.run("lab.yaml", ".")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert project.calls == ["select 7", "close"]
    assert "tokenwatt:" not in result.stdout.str()
    script(project, "tuned::slo: invalid")
    assert project.run("lab.yaml", ".", "--continue-on-collection-errors").ret == 1


def test_junit_carries_the_verdicts(project: Project) -> None:
    script(project, "tuned::slo: fail", "tuned::goodput: inconclusive", on_inconclusive="skip")
    project.run("lab.yaml", "--junitxml=junit.xml")
    cases = {
        (case.get("classname"), case.get("name")): case
        for case in ET.parse(project.pytester.path / "junit.xml").iter("testcase")
    }
    failed = cases["lab.yaml.tuned", "slo"]
    properties = {each.get("name"): each.get("value") for each in failed.iter("property")}
    assert properties["tokenwatt_verdict"] == "fail"
    assert properties["tokenwatt_value"] == "12.4"
    failure = failed.find("failure")
    assert failure is not None
    assert (failure.get("message") or "").startswith("tuned slo: fail")
    assert cases["lab.yaml.tuned", "goodput"].find("skipped") is not None
    assert ("lab.yaml.tuned", "rule[fast]") in cases


def test_preflight_errors_end_the_run_before_it_starts(project: Project) -> None:
    project.spec(extra="x-problems: [{what: the port is taken}, {what: short, severity: warning}, {what: no disk}]\n")
    result = project.run("lab.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [line for line in result.errlines if line] == [
        "ERROR: lab.yaml: the port is taken",
        "ERROR: lab.yaml: no disk",
    ]
    result.stdout.fnmatch_lines(["tokenwatt: warning: lab.yaml: short"])
    assert not any(call.startswith("measure") for call in project.calls)


def test_preflight_warnings_do_not_stop_it(project: Project) -> None:
    project.spec(extra="x-problems: [{what: short, severity: warning}]\n")
    assert project.run("lab.yaml").ret == 0


def test_the_plan_starts_nothing(project: Project) -> None:
    project.pytester.makepyfile("def test_ok(): raise SystemExit")
    result = project.run("lab.yaml", ".", "--tokenwatt-plan", "-k", "tuned")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["PLAN of 4 gates"])
    assert project.calls == ["select 4", "close"]
    project.spec(extra="x-problems: [{what: the port is taken}]\n")
    result = project.run("lab.yaml", "--tokenwatt-plan")
    result.stdout.fnmatch_lines(["PLAN of 7 gates"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_a_report_that_cannot_be_written_does_not_cost_the_table(project: Project) -> None:
    project.spec(extra="x-unwritable: true\n")
    result = project.run("lab.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*tokenwatt: scripted*", "tuned*slo*pass*", "*the report could not be written*"])
    assert "report:" not in result.stdout.str()


def test_preflight_looks_at_what_tests_measure_without_a_gate(project: Project) -> None:
    project.pytester.makepyfile("def test_it(goodput): pass\ndef test_other(tokenwatt): pass")
    project.run("lab.yaml", ".", "-k", "test_it and tuned")
    assert project.looked_at == ["tuned"]

"""What the command line may ask for, and what it may not."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripted_lab import SPEC, Project

SINGLE = SPEC.replace(SPEC[SPEC.index("configs:") : SPEC.index("gates:")], "")


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(pytester, monkeypatch)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tokenwatt-replay=a.json"], "*a.json: *no such file*"),
        (
            ["--tokenwatt-replay=a.json", "--tokenwatt-quick", "--tokenwatt-endpoint=http://127.0.0.1:1/v1"],
            "--tokenwatt-endpoint, --tokenwatt-quick cannot be used with --tokenwatt-replay, which starts no engine",
        ),
        (
            ["lab.yaml", "--tokenwatt-resume=runs", "--tokenwatt-out=runs"],
            "--tokenwatt-resume names the run directory already; leave out --tokenwatt-out",
        ),
        (["lab.yaml", "--tokenwatt-save-baseline=b.txt"], "*a baseline is stored as JSON*"),
        (
            ["lab.yaml", "--tokenwatt-save-baseline=tune=b.json"],
            "*there is no configuration tune; did you mean tuned?*",
        ),
        (
            ["lab.yaml", "--tokenwatt-allow-diff=drivr"],
            "*cannot be allowed to differ in 'drivr'; did you mean driver?*",
        ),
        (["lab.yaml", "--tokenwatt-report=a.txt"], "*a.txt: unknown kind of report; use one of .json, .html, .md"),
        (["--tokenwatt-replay="], "--tokenwatt-replay is empty; write --tokenwatt-replay=FILE or leave it out"),
        (["--tokenwatt-spec", " "], "--tokenwatt-spec is empty; write --tokenwatt-spec=FILE or leave it out"),
        (
            ["lab.yaml", "--tokenwatt-out=a.json", "--tokenwatt-out", "b.json"],
            "--tokenwatt-out is given twice, as a.json and as b.json; one run has one place: leave one out",
        ),
        (
            ["lab.yaml", "--tokenwatt-out=a.json", "--tokenwatt-save-baseline=./a.json"],
            "*a.json is named by --tokenwatt-out and by --tokenwatt-save-baseline; name another file for one of them",
        ),
        (["--tokenwatt-plan"], "--tokenwatt-plan: there is no spec to plan; add --tokenwatt-spec=FILE"),
        (["lab.yaml", "--tokenwatt-max-minutes=soon"], "*'soon' is no number of minutes above 0"),
        (["lab.yaml", "--tokenwatt-max-minutes=0"], "*'0' is no number of minutes above 0"),
        (["lab.yaml", "--tokenwatt-role=best"], "*invalid choice: 'best'*"),
        (["lab.yaml", "-o", "tokenwatt_role=best"], "tokenwatt_role: 'best' is none of baseline, tuned, other"),
        (["lab.yaml", "-o", "tokenwatt_max_minutes=soon"], "tokenwatt_max_minutes: 'soon' is no number *"),
        (
            ["lab.yaml", "--tokenwatt-label=x"],
            "*--tokenwatt-role and --tokenwatt-label are for specs without*",
        ),
        (
            ["lab.yaml", "--tokenwatt-endpoint=http://h/v1"],
            "*does not say which of baseline, tuned it serves*",
        ),
        (
            ["lab.yaml", "--tokenwatt-endpoint=tuned=http://a/v1", "--tokenwatt-endpoint=tuned=http://b/v1"],
            "*tuned is given two endpoints; keep one of them",
        ),
        (["lab.yaml", "--tokenwatt-endpoint=tuned=http://u:pw@h/v1"], "*=tuned=http://[*][*][*]@h/v1: *password*"),
        (["lab.yaml", "--tokenwatt-endpoint=tuned=ftp:x"], "*--tokenwatt-endpoint=tuned=ftp:x: *"),
        (["lab.yaml", "--tokenwatt-endpoint=best=http://h/v1"], "*there is no configuration best; configurations: *"),
    ],
)
def test_usage_errors(project: Project, arguments: list[str], message: str) -> None:
    result = project.run(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.re_match_lines(["(ERROR: |pytest.*error: ).*"])
    result.stderr.fnmatch_lines([f"*{message}"])
    assert "Traceback" not in result.stderr.str()
    assert not any(call.startswith("measure") for call in project.calls)


def test_every_empty_value_is_one_line(project: Project) -> None:
    names = ("baseline", "out", "resume", "save-baseline", "report", "config", "endpoint", "allow-diff")
    result = project.run("lab.yaml", *(f"--tokenwatt-{name}=" for name in names))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    told = [line.split(" is empty; ")[0] for line in result.errlines if line.startswith("ERROR: ")]
    assert sorted(told) == sorted(f"ERROR: --tokenwatt-{name}" for name in names)
    assert project.calls == []


def configs_of(result: pytest.RunResult) -> set[str]:
    """The configurations of the gates that ran."""
    return {line.split("::")[1] for line in result.outlines if line.startswith("lab.yaml::") and " PASSED" in line}


def test_settings_reach_the_lab(project: Project) -> None:
    result = project.run(
        "-v",
        "lab.yaml",
        "--tokenwatt-config=tuned",
        "--tokenwatt-out=runs/x",
        "--tokenwatt-max-minutes=12.5",
        "--tokenwatt-title=Night run",
        "--tokenwatt-quick",
        "--tokenwatt-report=copy.json",
    )
    (options,) = project.options
    assert configs_of(result) == {"tuned"}
    assert options.out == project.pytester.path / "runs/x"
    assert options.deadline.minutes == 12.5
    assert options.title == "Night run"
    assert project.specs[0].is_quick
    assert options.reports == (project.pytester.path / "copy.json",)
    assert options.rootdir == project.pytester.path
    assert options.invocation[0] == "pytest"
    assert {"lab.yaml", "--tokenwatt-config=tuned", "--tokenwatt-quick"} <= set(options.invocation)


def test_ini_keys_mean_the_same(project: Project) -> None:
    project.pytester.makeini(
        "[pytest]\n"
        "tokenwatt_spec = lab.yaml\n"
        "tokenwatt_config = tuned\n"
        "tokenwatt_out = runs/x\n"
        "tokenwatt_max_minutes = 12.5\n"
        "tokenwatt_title = Night run\n"
        "tokenwatt_quick = true\n"
        "tokenwatt_report = copy.json\n"
    )
    result = project.run("--strict-config", "-v")
    assert result.ret == 0
    (options,) = project.options
    assert (options.deadline.minutes, options.title) == (12.5, "Night run")
    assert configs_of(result) == {"tuned"}
    assert project.specs[0].is_quick
    assert options.out == project.pytester.path / "runs/x"
    assert options.reports == (project.pytester.path / "copy.json",)


def test_role_and_label_for_a_spec_without_configs(project: Project) -> None:
    project.spec(text=SINGLE)
    assert project.collected("lab.yaml")[0] == "lab.yaml::baseline::contract"
    tuned = project.collected("lab.yaml", "--tokenwatt-role=tuned", "--tokenwatt-label=FP8")
    assert tuned[0] == "lab.yaml::tuned::contract"
    assert "lab.yaml::tuned::goodput" in tuned


def test_endpoints(project: Project) -> None:
    project.pytester.makepyfile(
        "def test_it(tokenwatt): print('AT', tokenwatt.config.key, tokenwatt.config.engine.endpoint)"
    )
    keyed = ("--tokenwatt-endpoint=tuned=http://h:1/v1", "--tokenwatt-endpoint=baseline=http://h:2/v1")
    out = project.run("lab.yaml", ".", "-s", *keyed).stdout.str()
    assert "AT tuned http://h:1/v1" in out
    assert "AT baseline http://h:2/v1" in out
    bare = project.run("lab.yaml", ".", "-s", "--tokenwatt-config=tuned", "--tokenwatt-endpoint=http://h:3/v1")
    assert "AT tuned http://h:3/v1" in bare.stdout.str()


def test_a_repeat_goes_where_the_repeated_one_is(project: Project) -> None:
    project.spec(text=SPEC.replace("gates:", "  - {key: again, like: baseline}\ngates:"))
    project.pytester.makepyfile(
        "def test_it(tokenwatt): print('AT', tokenwatt.config.key, tokenwatt.config.engine.endpoint)"
    )
    at_one, at_two = "--tokenwatt-endpoint=baseline=http://h:1/v1", "--tokenwatt-endpoint=again=http://h:2/v1"
    assert "AT again http://h:1/v1" in project.run("lab.yaml", ".", "-s", at_one).stdout.str()
    for arguments in ((at_one, at_two), (at_two, at_one)):
        assert "AT again http://h:2/v1" in project.run("lab.yaml", ".", "-s", *arguments).stdout.str()


def test_several_specs_share_one_time_budget(project: Project) -> None:
    project.spec(extra="x-minutes: 20\n")
    project.spec("next.yaml", text=SPEC.replace("name: lab", "name: next"), extra="x-minutes: 30\n")
    result = project.run("lab.yaml", "next.yaml", "--tokenwatt-max-minutes=45")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --tokenwatt-max-minutes: the run takes about 50 minutes where 45 are allowed;*"]
    )
    assert project.run("lab.yaml", "next.yaml", "--tokenwatt-max-minutes=50").ret == 0
    first, second = project.options[-2:]
    assert first.deadline is second.deadline


def test_several_specs_do_not_write_over_each_other(project: Project) -> None:
    project.spec("next.yaml", text=SPEC.replace("name: lab", "name: next"))
    project.run("lab.yaml", "next.yaml", "--tokenwatt-out=runs")
    assert [options.part for options in project.options] == ["lab", "next"]
    for argument in ("--tokenwatt-out=run.json", "--tokenwatt-report=report.json", "--tokenwatt-report=report.md"):
        result = project.run("lab.yaml", "next.yaml", argument)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["ERROR: *cannot hold the results of 2 specs; run the specs one by one"])
    Path("copy.yaml").write_text(SPEC, encoding="utf-8")
    project.run("lab.yaml", "copy.yaml", "--tokenwatt-out=runs")
    assert [options.part for options in project.options][-2:] == ["lab", "lab-2"]


@pytest.mark.parametrize("given", ["main.json", "tuned=main.json"])
def test_several_specs_do_not_store_into_one_file(project: Project, given: str) -> None:
    project.spec("next.yaml", text=SPEC.replace("name: lab", "name: next"))
    result = project.run("lab.yaml", "next.yaml", f"--tokenwatt-save-baseline={given}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    what = f"ERROR: --tokenwatt-save-baseline={given}: it fits 2 specs (lab.yaml, next.yaml); write *=KEY=FILE with a *"
    result.stderr.fnmatch_lines([what])


def test_of_several_specs_the_only_one_with_the_key_stores_its_record(project: Project) -> None:
    project.spec("next.yaml", text=SINGLE.replace("name: lab", "name: next"))
    project.run("lab.yaml", "next.yaml", "--tokenwatt-save-baseline=tuned=main.json")
    assert [call for call in project.calls if call.startswith("save")] == ["save tuned"]
    result = project.run("lab.yaml", "next.yaml", "--tokenwatt-save-baseline=tunned=main.json")
    result.stderr.fnmatch_lines(["ERROR: *there is no configuration tunned; did you mean tuned?*"])


def test_several_specs_share_one_run_directory(project: Project) -> None:
    project.spec("next.yaml", text=SPEC.replace("name: lab", "name: next"))
    project.run("lab.yaml", "next.yaml")
    first, second = project.options
    assert (first.part, second.part) == ("lab", "next")
    assert first.out == second.out
    assert first.out is not None
    assert first.out.parent == project.pytester.path / "tokenwatt-runs"
    assert first.out.name.endswith("-lab-and-1-more")


def test_an_idle_run_reads_and_says_nothing(project: Project) -> None:
    project.pytester.makepyfile("def test_ok(): pass")
    project.spec("lab.yaml", text="engine: [\nslo: {")
    result = project.run("-W", "error", "--tokenwatt-quick")
    assert result.ret == 0
    assert "tokenwatt" not in result.stdout.str()
    assert project.calls == []

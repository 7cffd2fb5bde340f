"""Gates as test items: what is collected, and under which ids."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripted_lab import ALL, SPEC, Project

YAML_TESTS = """
import pytest
class YamlFile(pytest.File):
    def collect(self):
        yield YamlItem.from_parent(self, name="theirs")
class YamlItem(pytest.Item):
    def runtest(self):
        pass
def pytest_collect_file(parent, file_path):
    if file_path.suffix == ".yaml" and file_path.name.startswith("test"):
        return YamlFile.from_parent(parent, path=file_path)
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(pytester, monkeypatch)


def test_a_spec_is_collected_without_any_test_file(project: Project) -> None:
    assert project.collected("--tokenwatt-spec=lab.yaml") == ALL
    assert project.calls == ["select 7", "close"]


def test_a_spec_as_argument_means_the_same(project: Project) -> None:
    assert project.collected("lab.yaml") == ALL
    assert project.collected("lab.yaml::tuned") == ALL[3:]
    assert project.collected("lab.yaml::tuned::goodput", "lab.yaml::baseline::slo") == [ALL[1], ALL[5]]
    assert project.collected("lab.yaml::tuned::rule") == ALL[6:]
    assert project.collected("lab.yaml::tuned::rule[fast]") == ALL[6:]


def test_what_was_not_asked_for_is_not_counted(project: Project) -> None:
    project.run("--collect-only", "-q", "lab.yaml::tuned::slo").stdout.fnmatch_lines(["1 test collected*"])


def test_a_spec_may_be_json_and_may_stand_in_the_ini_file(project: Project) -> None:
    project.spec("lab.json", text='{"engine": {"command": ["x", "{port}"], "model": "m"}, "slo": {"ttft_p99_ms": 1}}')
    assert project.collected("lab.json") == ["lab.json::baseline::contract", "lab.json::baseline::slo"]
    project.pytester.makeini("[pytest]\ntokenwatt_spec = lab.yaml\n")
    assert project.collected() == ALL


def test_without_arguments_only_the_specs_are_collected(project: Project) -> None:
    project.pytester.makepyfile(test_other="def test_other(): pass")
    project.pytester.makeini("[pytest]\ntestpaths = .\n")
    assert project.collected("--tokenwatt-spec=lab.yaml") == ALL
    assert "testpaths" not in project.run("--tokenwatt-spec=lab.yaml").stdout.str()


@pytest.mark.parametrize("folder", [".", "specs", "specs/test_near.py"])
@pytest.mark.parametrize("spec", ["specs/lab.yaml", "--tokenwatt-spec=specs/lab.yaml"])
def test_with_arguments_both_are_collected(project: Project, folder: str, spec: str) -> None:
    project.spec("specs/lab.yaml")
    project.pytester.path.joinpath("specs/test_near.py").write_text("def test_near(): pass", encoding="utf-8")
    gates = [f"specs/{gate}" for gate in ALL]
    assert project.collected(folder, spec) == ["specs/test_near.py::test_near", *gates]
    assert project.collected(spec, folder) == ["specs/test_near.py::test_near", *gates]


def test_a_directory_never_brings_in_a_spec(project: Project) -> None:
    project.spec("broken.yaml", text="engine: [\nslo: {")
    project.pytester.makepyfile(test_other="def test_other(): pass")
    assert project.collected(".") == ["test_other.py::test_other"]
    assert project.calls == []


def test_yaml_tests_of_others_stay_theirs(project: Project) -> None:
    project.pytester.makeconftest(YAML_TESTS)
    project.spec("test_simple.yaml", text="engine: petrol\ninput: [1, 2]\n")
    assert project.collected("test_simple.yaml") == ["test_simple.yaml::theirs"]
    assert project.collected("test_simple.yaml", "lab.yaml") == ["test_simple.yaml::theirs", *ALL]


def test_a_spec_given_twice_is_collected_once(project: Project) -> None:
    Path("alias.yaml").symlink_to("lab.yaml")
    assert project.collected("--tokenwatt-spec=lab.yaml", "--tokenwatt-spec=alias.yaml", "lab.yaml") == ALL
    assert project.collected("lab.yaml::tuned", "lab.yaml") == ALL
    assert project.collected("lab.yaml::tuned::slo", "lab.yaml::tuned") == ALL[3:]


def test_several_specs_come_one_after_the_other(project: Project) -> None:
    project.spec("more/next.yaml", text=SPEC.replace("name: lab", "name: next"))
    more = [gate.replace("lab.yaml", "more/next.yaml") for gate in ALL]
    assert project.collected("more/next.yaml", "lab.yaml") == [*more, *ALL]


def test_outside_of_rootdir_the_file_name_stays(project: Project) -> None:
    inner = project.pytester.mkdir("inner")
    inner.joinpath("pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    root = ("--rootdir", str(inner))
    assert project.collected(*root, "--tokenwatt-spec=lab.yaml") == ALL
    assert project.collected(*root, "lab.yaml::tuned::slo") == [ALL[4]]
    project.spec("other/lab.yaml")
    named = project.collected(*root, "lab.yaml", "other/lab.yaml")
    assert named == [f"../{gate}" for gate in ALL] + [f"../other/{gate}" for gate in ALL]


def test_a_node_narrows_what_the_option_names(project: Project) -> None:
    assert project.collected("--tokenwatt-spec=lab.yaml", "lab.yaml::tuned::slo") == ["lab.yaml::tuned::slo"]
    assert project.collected("lab.yaml", "lab.yaml::tuned::slo") == ALL
    assert project.run("--tokenwatt-spec=lab.yaml", "lab.yaml::tuned::nope").ret == pytest.ExitCode.USAGE_ERROR


def test_a_node_that_is_not_there_is_a_usage_error(project: Project) -> None:
    result = project.run("lab.yaml::tuned::goodputs", "lab.yaml::tune")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: not found: lab.yaml::tuned::goodputs; nearest: tuned::goodput*"])
    result.stderr.fnmatch_lines(["ERROR: not found: lab.yaml::tune; *"])


def test_selected_configurations(project: Project) -> None:
    assert project.collected("lab.yaml", "--tokenwatt-config=tuned") == ALL[3:]
    result = project.run("lab.yaml", "--tokenwatt-config=tunde")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --tokenwatt-config: there is no configuration tunde; did you mean tuned?"])


def test_the_baseline_comes_first_and_its_repeat_last(project: Project) -> None:
    text = SPEC.replace(
        "  - {key: baseline, role: baseline}\n  - {key: tuned, role: tuned}\n",
        "  - {key: again, like: baseline}\n  - {key: tuned, role: tuned}\n  - {key: base, role: baseline}\n",
    ).replace("like: baseline", "like: base")
    project.spec("mixed.yaml", text=text)
    keys = [gate.split("::")[1] for gate in project.collected("mixed.yaml")]
    assert list(dict.fromkeys(keys)) == ["base", "tuned", "again"]


@pytest.mark.parametrize("how", ["--tokenwatt-spec=specs/lab.yaml", "specs/lab.yaml"])
def test_conftest_files_around_the_spec_count(project: Project, how: str) -> None:
    project.spec("specs/lab.yaml")
    project.pytester.path.joinpath("specs/conftest.py").write_text(
        """
import pytest
def pytest_addoption(parser):
    parser.addoption("--near", action="store_true")
@pytest.fixture(autouse=True)
def around(request):
    print("AROUND", request.node.name)
""",
        encoding="utf-8",
    )
    result = project.run(how, "--near", "-s", "specs")
    assert result.ret == 0
    assert result.stdout.str().count("AROUND") == len(ALL)


def test_discovery_is_silent(project: Project) -> None:
    result = project.run("--collect-only", "-q", "lab.yaml")
    assert [line for line in result.outlines if line] == [*ALL, *result.outlines[-1:]]
    assert result.errlines == []
    assert result.outlines[-1].startswith("7 tests collected")
    assert result.ret == 0


def test_the_tree_shows_configurations_between_spec_and_gates(project: Project) -> None:
    result = project.run("--collect-only", "lab.yaml")
    result.stdout.fnmatch_lines(["*<SpecFile lab.yaml>", "*<ConfigCollector baseline>", "*<GateItem slo>"])


def test_bad_specs_end_with_all_problems_one_a_line(project: Project) -> None:
    project.spec("one.yaml", text="engine: {modle: x}\nslo: {ttft_p99_ms: -1}\n")
    project.spec("two.yaml", text="")
    result = project.run("--tokenwatt-spec=one.yaml", "--tokenwatt-spec=two.yaml", "--tokenwatt-spec=none.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    lines = [line for line in result.errlines if line]
    assert len(lines) >= 4
    assert all(line.startswith("ERROR: ") for line in lines)
    result.stderr.fnmatch_lines(
        ["ERROR: one.yaml:1: *model*", "ERROR: one.yaml:2: *", "ERROR: two.yaml*", "ERROR: none.yaml*"]
    )
    assert "Traceback" not in result.stderr.str()
    assert project.calls == []


def test_items_know_their_line_in_the_spec(project: Project) -> None:
    project.pytester.makeconftest(
        "def pytest_collection_finish(session):\n"
        "    for item in session.items:\n"
        "        print('AT', item.name, *item.location[:2])\n"
    )
    out = project.run("--collect-only", "-q", "lab.yaml").stdout
    out.fnmatch_lines(["AT slo lab.yaml 5", "AT rule[[]fast] lab.yaml 12"])

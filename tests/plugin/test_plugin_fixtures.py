"""Tests of the user's own: our fixtures in them, one run for each configuration, in the right order."""

from __future__ import annotations

import pytest
from scripted_lab import ALL, SPEC, Project


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(pytester, monkeypatch)


def user(project: Project, source: str) -> None:
    project.pytester.makepyfile(test_user=f"import pytest\n{source}")


def ids(project: Project, *args: str) -> list[str]:
    collected = project.collected("test_user.py", "lab.yaml", *args)
    return [each.removeprefix("test_user.py::") for each in collected if each.startswith("test_user.py")]


def test_only_what_depends_on_our_fixtures_runs_for_each_configuration(project: Project) -> None:
    user(
        project,
        "@pytest.fixture\n"
        "def rate(goodput): return goodput\n"
        "@pytest.mark.parametrize('n', [1, 2])\n"
        "def test_direct(tokenwatt, n): pass\n"
        "class TestGroup:\n"
        "    def test_through_their_own(self, rate): pass\n"
        "def test_plain(tmp_path): pass\n",
    )
    assert ids(project) == [
        "test_plain",
        "test_direct[baseline-1]",
        "test_direct[baseline-2]",
        "TestGroup::test_through_their_own[baseline]",
        "test_direct[tuned-1]",
        "test_direct[tuned-2]",
        "TestGroup::test_through_their_own[tuned]",
    ]
    assert ids(project, "-k", "tuned and direct") == ["test_direct[tuned-1]", "test_direct[tuned-2]"]
    assert ids(project, "--tokenwatt-config=tuned") == ids(project, "-k", "tuned or plain")


@pytest.mark.parametrize("name", ["baseline", "kl_drift", "speed", "length_shift", "audit"])
def test_comparisons_do_not_run_for_the_baseline(project: Project, name: str) -> None:
    user(project, f"def test_it({name}): pass")
    assert ids(project) == ["test_it[tuned]"]
    assert ids(project, "--tokenwatt-config=baseline") == ["test_it[none]"]


def test_a_comparison_without_a_candidate_skips_and_says_why(project: Project) -> None:
    user(project, "def test_it(baseline): pass")
    result = project.run("test_user.py", "lab.yaml", "--tokenwatt-config=baseline", "-rs")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["SKIPPED * no configuration is selected beside the baseline*"])


def test_fixtures_named_like_ours_stay_theirs(project: Project) -> None:
    project.pytester.makeconftest("import pytest\n@pytest.fixture\ndef engine(): return 'petrol'\n")
    user(
        project,
        "@pytest.fixture\n"
        "def accuracy(): return 'darts'\n"
        "def test_engine(engine): assert engine == 'petrol'\n"
        "def test_accuracy(accuracy): assert accuracy == 'darts'\n",
    )
    assert ids(project) == ["test_engine", "test_accuracy"]
    assert project.run("test_user.py").ret == 0
    assert project.run("test_user.py", "lab.yaml").ret == 0


def test_fixtures_of_other_plugins_stay_theirs(project: Project) -> None:
    project.pytester.makepyfile(
        theirs="import pytest\n"
        "@pytest.fixture(name='memory')\n"
        "def their_memory(): return 'elephant'\n"
        "class Plugin:\n"
        "    @pytest.fixture\n"
        "    def power(self): return 'horse'\n"
        "def pytest_configure(config): config.pluginmanager.register(Plugin(), 'their_plugin')\n"
    )
    project.pytester.syspathinsert()
    user(project, "def test_it(memory, power): assert (memory, power) == ('elephant', 'horse')")
    assert ids(project, "-p", "theirs") == ["test_it"]
    assert project.run("-p", "theirs", "test_user.py").ret == 0


def test_the_short_names_can_be_switched_off(project: Project) -> None:
    user(project, "def test_it(goodput): pass")
    result = project.run("-p", "no:tokenwatt_aliases", "test_user.py", "lab.yaml")
    result.stdout.fnmatch_lines(["*fixture 'goodput' not found*"])
    user(project, "def test_it(tokenwatt): assert tokenwatt.goodput() == f'goodput of {tokenwatt.config.key}'")
    assert project.run("-p", "no:tokenwatt_aliases", "test_user.py", "lab.yaml").ret == 0


def test_the_mark_narrows(project: Project) -> None:
    user(
        project,
        "@pytest.mark.tokenwatt(config='tuned')\n"
        "class TestTuned:\n"
        "    def test_inherits(self, goodput): pass\n"
        "    @pytest.mark.tokenwatt(config=['baseline', 'tuned'])\n"
        "    def test_own(self, goodput): pass\n",
    )
    assert ids(project) == [
        "TestTuned::test_own[baseline]",
        "TestTuned::test_inherits[tuned]",
        "TestTuned::test_own[tuned]",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("config='tund'", "there is no configuration 'tund'; did you mean 'tuned'?"),
        ("confg='tuned'", "has no argument 'confg'; did you mean 'config'?"),
        ("'tuned'", "takes config=KEY, not ('tuned',)"),
    ],
)
def test_a_wrong_mark_is_a_collection_error_of_one_line(project: Project, arguments: str, message: str) -> None:
    user(project, f"@pytest.mark.tokenwatt({arguments})\ndef test_it(goodput): pass")
    result = project.run("test_user.py", "lab.yaml")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "test_user.py::test_it: mark tokenwatt" in result.stdout.str()
    assert message in result.stdout.str()
    assert "usertests.py" not in result.stdout.str()


def test_without_a_spec_a_measuring_test_fails_with_the_remedy(project: Project) -> None:
    user(project, "def test_it(goodput): pass\ndef test_plain(): pass")
    result = project.run("test_user.py")
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines(
        ["*no spec is active; add --tokenwatt-spec=FILE, or leave it out with -m 'not tokenwatt'"]
    )
    assert project.collected("test_user.py", "-m", "not tokenwatt") == ["test_user.py::test_plain"]


def test_a_fixture_asked_for_too_late_fails_with_the_remedy(project: Project) -> None:
    user(project, "def test_it(request): request.getfixturevalue('goodput')")
    result = project.run("test_user.py", "lab.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*name it among the arguments of the test"])


def test_the_values_come_from_the_lab(project: Project) -> None:
    user(
        project,
        "def test_it(\n"
        "    tokenwatt, goodput, energy, power, accuracy, length_shift, kl_drift, perplexity, engine, baseline,\n"
        "    memory, speed, audit,\n"
        "):\n"
        "    assert (goodput, energy, power) == ('goodput of tuned', 'energy of tuned', 'power of tuned')\n"
        "    assert accuracy == 'accuracy of tuned'\n"
        "    assert length_shift == tokenwatt.length_shift() == 'length_shift of tuned'\n"
        "    assert kl_drift == tokenwatt.kl_drift() == 'kl_drift of tuned'\n"
        "    assert perplexity == tokenwatt.perplexity('wiki') == 'perplexity of tuned'\n"
        "    assert baseline.perplexity == 'perplexity of baseline'\n"
        "    assert (memory, speed, audit) == ('memory of tuned', 'speed of tuned', 'audit of tuned')\n"
        "    assert baseline.memory == 'memory of baseline'\n"
        "    assert baseline.accuracy == 'accuracy of baseline'\n"
        "    assert (baseline.energy, baseline.power) == ('energy of baseline', 'power of baseline')\n"
        "    assert engine == 'engine of tuned'\n"
        "    assert baseline.goodput == 'goodput of baseline'\n"
        "    assert baseline.config.key == tokenwatt.baseline.config.key == 'baseline'\n"
        "    assert tokenwatt.spec.title == 'A scripted lab'\n"
        "    assert tokenwatt.run_dir.name == 'lab'\n",
    )
    assert project.run("test_user.py", "lab.yaml", "-k", "test_it").ret == 0


def test_measurements_are_taken_once(project: Project) -> None:
    user(
        project,
        "@pytest.mark.parametrize('n', range(3))\ndef test_it(goodput, n): pass\ndef test_engine(engine): pass\n",
    )
    assert project.run("test_user.py", "lab.yaml").ret == 0
    assert project.calls.count("goodput tuned") == 1


def test_own_rules_become_gates(project: Project) -> None:
    user(
        project,
        "def test_good(tokenwatt):\n"
        "    assert tokenwatt.gate('own', 5.0, '>=', 4.0, unit='tok/s').verdict == 'pass'\n"
        "def test_bad(tokenwatt): tokenwatt.gate('own', 3.0, '>=', 4.0, unit='tok/s')\n",
    )
    result = project.run("test_user.py", "lab.yaml", "--junitxml=junit.xml", "-k", "tuned")
    assert result.ret == 1
    result.assert_outcomes(passed=5, failed=1, deselected=5)
    result.stdout.fnmatch_lines(
        ["E *.GateFailed: tuned own: fail: 3.0 tok/s, rule >= 4.0", "test_user.py:4: GateFailed"]
    )
    assert '"tokenwatt_gate" value="own"' in project.pytester.path.joinpath("junit.xml").read_text(encoding="utf-8")


def test_a_rule_that_fails_fails_its_test_even_if_the_test_looks_away(project: Project) -> None:
    user(
        project,
        "import contextlib\n"
        "def test_it(tokenwatt):\n"
        "    with contextlib.suppress(BaseException):\n"
        "        tokenwatt.gate('own', 3.0, '>=', 4.0)\n",
    )
    result = project.run("lab.yaml", "test_user.py", "-k", "test_it", "--tokenwatt-config=tuned")
    assert result.ret == 1
    result.assert_outcomes(failed=1, deselected=4)


@pytest.mark.parametrize("body", ["def test_it(): pass", "def test_it(tokenwatt): assert tokenwatt.spec"])
def test_a_marked_test_that_measures_nothing_fails(project: Project, body: str) -> None:
    user(project, f"@pytest.mark.tokenwatt\n{body}")
    result = project.run("test_user.py", "lab.yaml", "-k", "test_it")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*the test is marked tokenwatt and measured nothing; *"])
    user(project, body)
    assert project.run("test_user.py", "lab.yaml").ret == 0


def test_user_tests_alone_are_a_run_of_the_spec(project: Project) -> None:
    user(project, "def test_it(goodput): pass")
    assert project.run("test_user.py", "lab.yaml", "-k", "test_it").ret == 0


def test_items_are_grouped_by_phase_and_live_tests_come_last_in_it(project: Project) -> None:
    user(project, "def test_engine(engine): pass\ndef test_figure(goodput): pass\ndef test_plain(): pass")
    user_tests = ["test_figure", "test_engine"]
    expected = [
        "test_user.py::test_plain",
        *ALL[:3],
        *(f"test_user.py::{name}[baseline]" for name in user_tests),
        *ALL[3:],
        *(f"test_user.py::{name}[tuned]" for name in user_tests),
    ]
    assert project.collected("test_user.py", "lab.yaml") == expected
    project.run("test_user.py", "lab.yaml")
    assert project.calls[-17:] == [
        "select 7 baseline tuned",
        "measure baseline::contract",
        "measure baseline::slo",
        "measure baseline::rule[fast]",
        "goodput baseline",
        "engine baseline",
        "leave baseline",
        "measure tuned::contract",
        "measure tuned::slo",
        "measure tuned::goodput",
        "measure tuned::rule[fast]",
        "goodput tuned",
        "engine tuned",
        "leave tuned",
        "finish",
        "close",
        "close",
    ]


def test_a_gate_stands_in_the_phase_that_completes_it(project: Project) -> None:
    text = SPEC.replace("gates:", "  - {key: again, role: other, like: baseline}\ngates:")
    project.spec(text=text, extra="x-last-phase: {'tuned::goodput': again}\n")
    user(project, "def test_engine(engine): pass")
    order = [each.split("::", 1)[1] for each in project.collected("test_user.py", "lab.yaml")]
    assert order.index("test_engine[tuned]") < order.index("tuned::goodput") < order.index("test_engine[again]")


def test_figures_of_later_engine_starts_come_behind_all_phases(project: Project) -> None:
    project.spec(extra="x-after: true\nx-last-phase: {'tuned::slo': \"A'\"}\n")
    user(project, "def test_speed(speed): pass\ndef test_memory(memory): pass\ndef test_engine(engine): pass")
    order = [each.split("::", 1)[1] for each in project.collected("test_user.py", "lab.yaml")]
    late = order.index("test_engine[tuned]")
    assert {"test_speed[tuned]", "test_memory[baseline]", "test_memory[tuned]", "tuned::slo"} == set(order[late + 1 :])


def test_a_running_engine_and_a_figure_of_a_later_start_cannot_be_had_together(project: Project) -> None:
    project.spec(extra="x-after: true\n")
    user(project, "def test_it(engine, speed): pass")
    result = project.run("test_user.py", "lab.yaml")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*test_it?tuned? asks for engine and for speed, which is known only when*"])
    project.spec(extra="x-after: false\n")
    assert project.run("test_user.py", "lab.yaml").ret == 0


def test_several_specs_name_the_spec_in_the_parameter(project: Project) -> None:
    project.spec("next.yaml", text=SPEC.replace("name: lab", "name: next"))
    user(project, "def test_it(goodput): pass")
    assert ids(project, "next.yaml") == [
        "test_it[lab:baseline]",
        "test_it[lab:tuned]",
        "test_it[next:baseline]",
        "test_it[next:tuned]",
    ]


def test_a_spec_of_which_only_skipped_tests_remain_did_not_run(project: Project) -> None:
    user(project, "@pytest.mark.skip\ndef test_it(goodput): pass")
    result = project.run("test_user.py", "lab.yaml", "-k", "test_it")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["tokenwatt: lab.yaml: nothing of this spec ran; *"])


def test_the_lab_is_told_of_a_baseline_that_only_tests_compare_with(project: Project) -> None:
    user(project, "def test_it(baseline): pass")
    project.collected("test_user.py", "lab.yaml", "--tokenwatt-config=tuned")
    assert project.calls == ["select 4 baseline", "close"]


def test_with_several_scenarios_one_is_named(project: Project) -> None:
    text = SPEC.replace("configs:", "scenarios: [{name: chat}, {name: rag}]\nconfigs:")
    project.spec(text=text)
    assert "lab.yaml::tuned::slo[rag]" in project.collected("lab.yaml::tuned::slo")
    assert project.collected("lab.yaml::tuned::slo[rag]") == ["lab.yaml::tuned::slo[rag]"]
    user(
        project,
        "def test_named(tokenwatt): assert tokenwatt.goodput('rag') == 'goodput of tuned'\n"
        "def test_wrong(tokenwatt): tokenwatt.goodput('rags')\n"
        "def test_unnamed(goodput): pass\n",
    )
    result = project.run("test_user.py", "lab.yaml::tuned", "--tokenwatt-config=tuned")
    result.assert_outcomes(passed=7, failed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["*UsageError: there are several scenarios; use tokenwatt.goodput(scenario) *chat, rag"]
    )
    result.stdout.fnmatch_lines(["*UsageError: there is no scenario 'rags'; *"])


def test_a_comparison_in_a_spec_without_baseline_says_so(project: Project) -> None:
    project.spec(text=SPEC.replace("  - {key: baseline, role: baseline}\n", ""))
    user(project, "def test_it(baseline): pass")
    result = project.run("test_user.py", "lab.yaml", "-k", "test_it")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["*NotMeasured: baseline was not measured: lab.yaml has no configuration with role baseline"]
    )
    assert "handle.py" not in result.stdout.str()


@pytest.mark.parametrize(
    ("test", "kinds"),
    [
        ("def test_it(): pass", []),
        ("def test_it(engine): pass", []),
        ("def test_it(energy): pass", ["goodput"]),
        ("def test_it(accuracy): pass", ["accuracy"]),
        ("def test_it(length_shift): pass", ["length"]),
        ("def test_it(kl_drift): pass", ["drift"]),
        ("def test_it(perplexity): pass", ["drift"]),
        ("def test_it(tokenwatt): pass", ["accuracy", "audit", "drift", "goodput", "profiles"]),
        ("def test_it(speed): pass", ["again", "profiles"]),
        ("def test_it(memory): pass", ["profiles"]),
        ("def test_it(audit): pass", ["audit"]),
        ("import pytest\n@pytest.fixture\ndef mine(goodput): pass\ndef test_it(mine): pass", ["goodput"]),
    ],
)
def test_only_what_tests_name_is_measured_for_them(project: Project, test: str, kinds: list[str]) -> None:
    user(project, test)
    project.run("test_user.py", "lab.yaml", "-k", "test_it")
    assert project.kinds == [kinds]


REGISTERED = """
class Parity:
    name = "parity"
    def check_gold(self, item): return None
    def score(self, item, text, *, cut): return None
"""


@pytest.mark.parametrize(
    ("conftest", "message"),
    [
        (f"{REGISTERED}\ndef pytest_tokenwatt_register(registry): registry.add_scorer(Parity())", None),
        ("def pytest_tokenwatt_register(registry): registry.add_scorer(3)", "*int is no scorer: it lacks check_gold*"),
        (
            f"{REGISTERED}\ndef pytest_tokenwatt_register(registry):\n    Parity.name = 'numeric'\n"
            "    registry.add_scorer(Parity())",
            "*there is a scorer 'numeric' already; give Parity another name",
        ),
    ],
)
def test_a_conftest_brings_scorers(project: Project, conftest: str, message: str | None) -> None:
    project.pytester.makeconftest(conftest)
    result = project.run("lab.yaml")
    if message is None:
        assert result.ret == 0
        assert list(project.options[0].scorers) == ["parity"]
    else:
        assert result.ret == 4
        result.stderr.fnmatch_lines([message])

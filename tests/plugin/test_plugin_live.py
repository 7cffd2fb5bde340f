"""Progress on the terminal while the lab works."""

from __future__ import annotations

import pytest
from scripted_lab import Project


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    project = Project(pytester, monkeypatch)
    pytester.makepyfile(test_user="def test_plain(): print('captured')")
    return project


@pytest.mark.parametrize("capture", ["fd", "sys", "tee-sys"])
def test_lines_survive_capture(project: Project, capture: str) -> None:
    out = project.run("lab.yaml::tuned", "test_user.py", f"--capture={capture}").stdout
    out.fnmatch_lines(
        [
            "test_user.py *",
            "  measuring tuned::contract",
            "lab.yaml .",
            "  measuring tuned::slo",
            "lab.yaml .",
            "  measuring tuned::rule[[]fast]",
            "lab.yaml .*",
        ]
    )


def test_lines_come_through_without_capture(project: Project) -> None:
    project.run("lab.yaml", "-s").stdout.fnmatch_lines(["  measuring baseline::contract", "lab.yaml .", "*7 passed*"])


def test_the_verbose_display_keeps_one_line_for_each_item(project: Project) -> None:
    out = project.run("lab.yaml::tuned", "-v").stdout
    out.fnmatch_lines(
        [
            "lab.yaml::tuned::contract ",
            "  measuring tuned::contract",
            "lab.yaml::tuned::contract PASSED * 25%]",
            "lab.yaml::tuned::slo ",
            "  measuring tuned::slo",
            "lab.yaml::tuned::slo PASSED * 50%]",
        ],
        consecutive=True,
    )


def test_quiet_is_quiet(project: Project) -> None:
    out = project.run("lab.yaml::tuned", "-q").stdout.str()
    assert out.startswith("....  ")
    assert "measuring" not in out
    assert "report: " in out


def test_text_is_kept_on_one_line_and_nothing_leaks_into_captured_output(project: Project) -> None:
    project.spec(extra="x-verdicts: {'tuned::slo': fail}\n")
    out = project.run("lab.yaml::tuned", "-rA").stdout.str()
    assert "Captured stdout" not in out


def test_classic_and_count_styles_work(project: Project) -> None:
    for style in ("classic", "count"):
        assert project.run("lab.yaml", "-o", f"console_output_style={style}").ret == 0

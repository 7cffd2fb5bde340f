"""The step summary is appended to, stays below what GitHub takes, and never raises."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_tokenwatt.report.step_summary import LEFT_OUT, MARGIN_BYTES, MOST_BYTES, append

REPORT = "## ❌ 1 fail\n\n**title**\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\n<details>\n\nlong\n\n</details>\n"


def test_a_new_file_holds_the_report(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    assert append(str(path), REPORT) is None
    assert path.read_text(encoding="utf-8").rstrip("\n") == REPORT.rstrip("\n")


def test_what_others_wrote_stays_and_a_heading_stays_a_heading(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    path.write_bytes(b"theirs, without a line break")
    assert append(str(path), "## first\n") is None
    assert append(str(path), "## second\n") is None
    ours = path.read_text(encoding="utf-8")
    assert ours.split("\n\n") == ["theirs, without a line break", "## first", "", "## second", ""]


def test_a_nearly_full_file_gets_the_head_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    theirs = b"x" * (MOST_BYTES - MARGIN_BYTES - 250)
    path.write_bytes(theirs)
    assert append(str(path), REPORT.replace("long", "long " * 1_000)) is None
    ours = path.read_bytes().removeprefix(theirs).decode()
    assert ours.split() == [*REPORT.split("<details>")[0].split(), *LEFT_OUT.split()]


def test_a_full_file_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    path.write_bytes(b"x" * (MOST_BYTES - MARGIN_BYTES))
    complaint = append(str(path), REPORT)
    assert complaint is not None
    assert "full" in complaint
    assert path.stat().st_size == MOST_BYTES - MARGIN_BYTES


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    theirs=st.integers(0, MOST_BYTES + 10), ours=st.text("aé😀\n#|<\ud800", max_size=300), times=st.integers(1, 5_000)
)
def test_the_file_never_passes_what_github_takes(tmp_path: Path, theirs: int, ours: str, times: int) -> None:
    path = tmp_path / "summary.md"
    path.write_bytes(b"x" * theirs)
    complaint = append(str(path), ours * times)
    assert path.stat().st_size <= max(theirs, MOST_BYTES - MARGIN_BYTES)
    assert complaint is None or path.stat().st_size == theirs
    path.read_bytes().decode()


@pytest.mark.parametrize("name", ["", ".", "absent/summary.md", "nul\x00inside"])
def test_a_place_that_takes_nothing_gives_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    complaint = append(name, REPORT)
    assert complaint is not None
    assert complaint.startswith("step summary")
    assert "\n" not in complaint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes in the file system")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert "not a regular file" in str(append(str(path), REPORT))

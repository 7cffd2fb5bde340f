"""Where a run writes, and that nothing exists before it does."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.store.rundir import RunDirectory, file_obstacle, file_part

NOON = datetime(2026, 11, 30, 12, 0, 0)


def choose(root: Path, out: str | None = None, name: str = "quickstart") -> RunDirectory:
    return RunDirectory.choose(None if out is None else Path(out), name, NOON, root)


def test_nothing_exists_until_a_file_is_asked_for(tmp_path: Path) -> None:
    run = choose(tmp_path)
    child = run.child("h100.yaml")
    assert list(tmp_path.iterdir()) == []
    assert (
        child.file("journal.jsonl")
        == tmp_path / "tokenwatt-runs/2026-11-30T12-00-00-quickstart/h100.yaml/journal.jsonl"
    )
    assert child.path.is_dir()
    assert (run.path / ".gitignore").read_text(encoding="utf-8") == "*\n"
    assert run.created


def test_two_runs_of_one_second_do_not_share_a_directory(tmp_path: Path) -> None:
    first, second, third = choose(tmp_path), choose(tmp_path), choose(tmp_path)
    names = [run.create().name for run in (first, second, third)]
    stamp = "2026-11-30T12-00-00-quickstart"
    assert names == [stamp, f"{stamp}-2", f"{stamp}-3"]
    assert second.child("a").create().parent == second.path


def test_creating_twice_is_creating_once(tmp_path: Path) -> None:
    run = choose(tmp_path)
    assert run.create() == run.create() == run.file("x").parent


def test_a_json_out_is_the_record_with_its_directory_beside(tmp_path: Path) -> None:
    run = choose(tmp_path, "out/a.json")
    assert run.record_file == tmp_path / "out/a.json"
    assert run.create() == tmp_path / "out/a"


def test_one_record_file_cannot_hold_several_specs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a\.json: one record file was named for several specs; name a directory"):
        choose(tmp_path, "a.json").child("h100.yaml")


def test_an_out_directory_is_used_as_it_is(tmp_path: Path) -> None:
    run = choose(tmp_path, "out/here")
    assert run.record_file is None
    assert run.create() == choose(tmp_path, "out/here").create() == tmp_path / "out/here"
    assert choose(tmp_path, str(tmp_path / "absolute")).create() == tmp_path / "absolute"


def test_a_directory_with_content_gets_no_gitignore(tmp_path: Path) -> None:
    (tmp_path / "setup.py").touch()
    choose(tmp_path, ".").create()
    assert not (tmp_path / ".gitignore").exists()


@pytest.mark.parametrize("out", ["file/below", "file"])
def test_a_place_that_cannot_be_written_is_one_line_with_the_remedy(tmp_path: Path, out: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError) as caught:
        choose(tmp_path, out).create()
    line = str(caught.value)
    assert line.startswith(f"{tmp_path / out}: the run directory cannot be written: ")
    assert line.endswith("choose a writable place with --tokenwatt-out=PATH")
    assert "\n" not in line


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text())
def test_any_text_becomes_a_plain_visible_file_name(text: str) -> None:
    part = file_part(text)
    assert part == Path(part).name
    assert part
    assert not part.startswith(".")
    assert part.isascii()


def test_file_names_keep_what_is_safe() -> None:
    assert file_part("h100-qwen3.fp8_kv") == "h100-qwen3.fp8_kv"
    assert file_part("fp8/kv, again") == "fp8-kv-again"


def test_a_place_that_cannot_be_written_is_known_before(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.touch()
    assert choose(tmp_path).obstacle() is None
    assert choose(tmp_path, "deep/er/run.json").obstacle() is None
    assert choose(tmp_path, "notes/run").obstacle() == f"{file} is a file, not a directory"
    (tmp_path / "run.json").mkdir()
    assert choose(tmp_path, "run.json").obstacle() == f"{tmp_path / 'run.json'} is a directory"
    assert file_obstacle(tmp_path / "new/report.json") is None
    assert file_obstacle(file / "report.json") == f"{file} is a file, not a directory"
    assert {path.name for path in tmp_path.iterdir()} == {"notes", "run.json"}

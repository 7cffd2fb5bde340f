"""The journal survives a killed run."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_tokenwatt.errors import TokenwattError, UsageError
from pytest_tokenwatt.store.journal import Event, Journal, read_journal


def test_events_come_back_in_order_with_both_clocks(tmp_path: Path) -> None:
    before = time.time(), time.monotonic()
    with Journal(tmp_path / "journal.jsonl") as journal:
        journal.write(Event.RUN_STARTED, spec="h100.yaml")
        journal.write(Event.WINDOW_FINISHED, config="tuned", rate_rps=12.4, passes=True)
    first, second = read_journal(journal.path).entries
    assert (first.event, first.data) == ("run_started", {"spec": "h100.yaml"})
    assert second.data == {"config": "tuned", "rate_rps": 12.4, "passes": True}
    assert before[0] <= first.wall_s <= second.wall_s
    assert before[1] <= first.monotonic_s <= second.monotonic_s


def test_each_event_is_on_disk_before_the_next_step(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    code = (
        "import os, sys; from pathlib import Path\n"
        "from pytest_tokenwatt.store.journal import Event, Journal\n"
        "Journal(Path(sys.argv[1])).write(Event.PHASE_STARTED, config='tuned')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], cwd=Path(__file__).parents[2], timeout=60)
    assert done.returncode == -9
    assert [entry.event for entry in read_journal(path).entries] == ["phase_started"]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50)
@given(cut=st.integers(min_value=0))
def test_a_torn_line_is_left_out_and_does_not_spoil_the_next(
    cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    with Journal(path) as journal:
        journal.write(Event.RUN_STARTED, text="line\nbreak · ünï")
        journal.write(Event.PHASE_STARTED)
    whole = path.read_bytes()
    length = cut % len(whole)
    path.write_bytes(whole[:length])
    with Journal(path) as journal:
        journal.write(Event.RUN_FINISHED)
    log = read_journal(path)
    kept = whole[: length + 1].count(b"\n")
    assert [entry.event for entry in log.entries] == [*["run_started", "phase_started"][:kept], "run_finished"]
    assert log.torn <= 1


def test_lines_that_are_no_entries_count_as_torn(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(
        b'[1]\n{"event": "x"}\n\xff\xfe\n\n{"event": "later", "wall_s": 1, "monotonic_s": 2, "k": 3}\n{"ev'
    )
    log = read_journal(path)
    assert [(entry.event, entry.data) for entry in log.entries] == [("later", {"k": 3})]
    assert log.torn == 4


def test_nan_is_refused(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl") as journal:
        with pytest.raises(ValueError, match=r"journal\.jsonl window_finished: rate_rps is not a finite number"):
            journal.write(Event.WINDOW_FINISHED, rate_rps=float("nan"))
        journal.write(Event.RUN_FINISHED)
    assert len(read_journal(journal.path).entries) == 1


def test_places_that_cannot_be_used_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the journal cannot be opened: Is a directory"):
        Journal(tmp_path)
    with pytest.raises(UsageError, match="absent: the journal cannot be read: No such file"):
        read_journal(tmp_path / "absent")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line_with_the_remedy() -> None:
    with Journal(Path("/dev/full")) as journal, pytest.raises(TokenwattError, match=r"No space left.*free space"):
        journal.write(Event.RUN_STARTED)


def test_two_runs_cannot_write_into_one_directory_at_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path), pytest.raises(UsageError, match="another run writes into this directory now; name another"):
        Journal(path)
    Journal(path).close()

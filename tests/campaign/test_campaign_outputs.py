"""Which timed outputs are kept for the audit, and what stands in their place when they cannot be had."""

from __future__ import annotations

import itertools
from array import array
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.campaign.outputs import (
    OutputShelf,
    file_name,
    kept_of_windows,
    recall,
    run_name,
    served_by,
    spread,
)
from pytest_tokenwatt.records import ErrorClass, LoadPlan, Reason, RequestRecord, Schedule
from pytest_tokenwatt.store.served_npz import write_served


def record(index: int, *, ids: bool = True, error: ErrorClass | None = None, output: int = 3) -> RequestRecord:
    return RequestRecord(
        phase="measured",
        index=index,
        scheduled_s=0.0,
        planned_input_tokens=2,
        planned_output_tokens=8,
        first_token_s=1.0,
        end_s=2.0,
        error=error,
        prompt_ids=array("q", [index, 7]) if ids else None,
        output_ids=array("q", range(output)) if ids else None,
    )


def plan(offsets: list[float], window_s: float, windows: int) -> LoadPlan:
    lengths = array("q", [1] * len(offsets))
    schedule = Schedule(array("d", offsets), lengths, lengths, 1)
    return LoadPlan("confirm-01", 1.0, schedule, schedule, 0.0, 0.0, window_s, windows, 10.0, 8)


@given(st.integers(0, 500), st.integers(1, 50))
def test_picks_are_spread_over_all_requests(count: int, wanted: int) -> None:
    picked = sorted(spread(count, wanted))
    assert len(picked) == min(count, wanted)
    assert all(0 <= place < count for place in picked)
    gaps = [later - place for place, later in itertools.pairwise(picked)]
    assert not gaps or max(gaps) - min(gaps) <= 1


def test_only_requests_of_windows_are_kept_and_twice_as_many_as_are_looked_at() -> None:
    offsets = [0.1 * place for place in range(100)]
    kept = kept_of_windows(plan(offsets, window_s=2.0, windows=2), 4)
    assert len(kept) == 8
    assert max(kept) < 40
    assert kept_of_windows(plan(offsets, window_s=2.0, windows=2), 0) == frozenset()


def test_what_was_served_is_taken_from_requests_that_came_to_their_end() -> None:
    requests = [record(0), record(1, error=ErrorClass.ABORTED), record(2), record(3), record(9)]
    served = served_by(requests, frozenset({0, 1, 2, 3}), 2, ignore_eos=True)
    assert not isinstance(served, Reason)
    assert [each.name for each in served] == ["0", "2"]
    assert served[1].prompt == (2, 7)
    assert served[1].output == (0, 1, 2)
    assert (served[1].max_tokens, served[1].ignore_eos) == (8, True)


def test_an_empty_answer_is_looked_at_too() -> None:
    empty = replace(record(0, error=ErrorClass.NO_TOKENS), output_ids=None)
    served = served_by([empty, record(1)], frozenset({0, 1}), 2, ignore_eos=False)
    assert not isinstance(served, Reason)
    assert served[0].output == ()


@pytest.mark.parametrize(
    ("requests", "code"),
    [
        ([], "no_outputs"),
        ([record(0, error=ErrorClass.TIMEOUT)], "no_outputs"),
        ([record(0, ids=False)], "no_token_ids"),
        ([record(0), record(1, ids=False)], "no_token_ids"),
    ],
)
def test_outputs_that_cannot_be_had_are_a_reason(requests: list[RequestRecord], code: str) -> None:
    found = served_by(requests, frozenset({0, 1}), 2, ignore_eos=True)
    assert isinstance(found, Reason)
    assert found.code == code


@pytest.mark.parametrize(("ended", "enough"), [(2, False), (3, True)])
def test_few_outputs_do_not_speak_for_those_that_never_ended(ended: int, enough: bool) -> None:
    requests = [record(index, error=None if index < ended else ErrorClass.TIMEOUT) for index in range(6)]
    served = served_by(requests, frozenset(range(6)), 6, ignore_eos=True)
    if isinstance(served, Reason):
        text = "2 of the 6 requests that were to be looked at came to their end"
        assert served == Reason("no_outputs", text)
    assert isinstance(served, tuple) is enough


def test_an_interrupted_run_finds_its_outputs_again(tmp_path: Path) -> None:
    shelf = OutputShelf(2)
    path = tmp_path / file_name("tuned", run_name("rag"))
    served = served_by([record(0)], frozenset({0}), 2, ignore_eos=True)
    assert not isinstance(served, Reason)
    write_served(path, served)
    recall(shelf, path, "tuned", "goodput[rag]")
    recall(shelf, tmp_path / "gone.npz", "tuned", "serve")
    assert shelf.of("tuned")["goodput[rag]"] == served
    gone = shelf.of("tuned")["serve"]
    assert isinstance(gone, Reason)
    assert gone.code == "no_outputs"
    assert shelf.of("baseline") == {}

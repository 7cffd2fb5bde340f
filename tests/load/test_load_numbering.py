"""Numbers of a closed loop: each belongs to one worker, in proportion to its slots."""

from __future__ import annotations

from itertools import islice, takewhile

import pytest
from closed_loads import closed
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.load.numbering import own_numbers, phase_of, slots

small = st.integers(1, 20)


@given(small, small, st.integers(0, 300))
def test_every_number_belongs_to_exactly_one_worker(concurrency: int, workers: int, end: int) -> None:
    numbers = [
        list(takewhile(lambda number: number < end, own_numbers(concurrency, workers, worker)))
        for worker in range(workers)
    ]
    assert sorted(number for own in numbers for number in own) == list(range(end))
    assert all(own == sorted(own) for own in numbers)


@given(small, small)
def test_slots_are_shared_out_evenly_and_numbers_in_proportion(concurrency: int, workers: int) -> None:
    held = [slots(concurrency, workers, worker) for worker in range(workers)]
    assert sum(held) == concurrency
    assert max(held) - min(held) <= 1
    assert sum(count > 0 for count in held) == min(concurrency, workers)
    for worker, count in enumerate(held):
        first_rounds = list(islice(own_numbers(concurrency, workers, worker), 3 * count))
        assert all(number < 3 * concurrency for number in first_rounds)


@pytest.mark.parametrize(
    ("number", "phase"),
    [(0, ("warmup", 0)), (4, ("warmup", 4)), (5, ("measured", 0)), (14, ("measured", 9)), (15, ("tail", 0))],
)
def test_phases_follow_each_other(number: int, phase: tuple[str, int]) -> None:
    assert phase_of(closed(3, 5, 10), number) == phase

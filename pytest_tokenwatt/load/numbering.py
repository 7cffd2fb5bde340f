"""Numbers of a closed loop's requests: which are a worker's own, and what phase each belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from pytest_tokenwatt.load.exchange import MEASURED, TAIL, WARMUP
from pytest_tokenwatt.records import ClosedPlan


def slots(concurrency: int, workers: int, worker: int) -> int:
    """How many of ``concurrency`` requests in flight are this worker's: as even a split as integers allow."""
    return len(range(worker, concurrency, workers))


def own_numbers(concurrency: int, workers: int, worker: int) -> Iterator[int]:
    """The numbers that a worker sends, ascending and without end; none when it has no slot.

    Number n goes with slot n mod ``concurrency`` and slot s with worker s mod ``workers``: workers send in proportion
    to what they hold in flight, and so come to the end of the measured requests at about the same time.
    """
    own = range(worker, concurrency, workers)
    if not own:
        return iter(())
    return (block * concurrency + slot for block in count() for slot in own)


def phase_of(plan: ClosedPlan, number: int) -> tuple[str, int]:
    """The phase of a number and its index there: warm-up first, measured ones directly behind, then the tail."""
    if number < plan.warmup:
        return WARMUP, number
    if number < plan.warmup + plan.requests:
        return MEASURED, number - plan.warmup
    return TAIL, number - plan.warmup - plan.requests

"""Continuous batching: who takes part in which step, and what the KV pool allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.sim.profile import Limits
from pytest_tokenwatt.sim.scheduler import Scheduler, Sequence

ROOMY = Limits(max_num_seqs=64, max_num_batched_tokens=1000, blocks=1000, block_size=4)


def run_out(scheduler: Scheduler) -> None:
    while scheduler.plan().tokens:
        scheduler.commit()


def given_tokens(sequence: Sequence) -> int:
    return sum(end - first for first, end in sequence.runs)


def test_a_prompt_gives_the_first_token_and_each_later_step_one_more() -> None:
    scheduler = Scheduler(ROOMY)
    sequence = Sequence(prompt_tokens=10, max_tokens=3)
    scheduler.add(sequence)

    batches = []
    while (batch := scheduler.plan()).tokens:
        batches.append((batch.prefill, batch.decodes, batch.context, batch.pairs))
        scheduler.commit()

    assert batches == [(10, 0, 0, 55), (0, 1, 11, 0), (0, 1, 12, 0)]
    assert sequence.runs == [(0, 3)]


def test_a_long_prompt_is_computed_in_chunks_behind_the_decodes() -> None:
    scheduler = Scheduler(Limits(64, max_num_batched_tokens=8, blocks=1000, block_size=4))
    scheduler.add(Sequence(prompt_tokens=4, max_tokens=10))
    scheduler.plan()
    scheduler.commit()
    long = Sequence(prompt_tokens=20, max_tokens=1)
    scheduler.add(long)

    chunks = []
    while not long.runs:
        batch = scheduler.plan()
        chunks.append((batch.decodes, batch.prefill))
        scheduler.commit()

    assert chunks == [(1, 7), (1, 7), (1, 6)]


def test_prompts_are_served_in_order_of_arrival_and_share_a_step() -> None:
    scheduler = Scheduler(Limits(64, max_num_batched_tokens=10, blocks=1000, block_size=4))
    first, second, third = (Sequence(prompt_tokens=6, max_tokens=1) for _ in range(3))
    for sequence in (first, second, third):
        scheduler.add(sequence)

    scheduler.plan()
    assert scheduler.commit().finished == (first,)
    scheduler.plan()
    assert scheduler.commit().finished == (second, third)
    assert not scheduler.plan().tokens


def test_no_more_sequences_run_than_allowed() -> None:
    scheduler = Scheduler(Limits(max_num_seqs=2, max_num_batched_tokens=100, blocks=1000, block_size=4))
    for _ in range(5):
        scheduler.add(Sequence(prompt_tokens=4, max_tokens=4))

    scheduler.plan()

    assert (scheduler.running, scheduler.waiting) == (2, 3)


def test_a_prompt_waits_until_all_of_it_fits_into_the_pool() -> None:
    scheduler = Scheduler(Limits(64, 1000, blocks=10, block_size=4))
    scheduler.add(Sequence(prompt_tokens=24, max_tokens=2))
    waiting = Sequence(prompt_tokens=20, max_tokens=2)
    scheduler.add(waiting)

    scheduler.plan()
    scheduler.commit()
    assert scheduler.kv_usage == pytest.approx(0.6)
    assert scheduler.waiting == 1
    run_out(scheduler)
    assert waiting.runs == [(2, 4)]


def test_a_full_pool_preempts_the_youngest_which_is_computed_anew() -> None:
    scheduler = Scheduler(Limits(64, 1000, blocks=10, block_size=4))
    old, young = Sequence(prompt_tokens=16, max_tokens=16), Sequence(prompt_tokens=16, max_tokens=16)
    scheduler.add(old)
    scheduler.add(young)

    run_out(scheduler)

    assert scheduler.preemptions == 1
    assert old.runs == [(0, 16)]
    assert len(young.runs) == 2
    assert given_tokens(young) == 16
    assert scheduler.kv_usage == 0


def test_what_the_pool_can_never_hold_is_refused() -> None:
    scheduler = Scheduler(Limits(64, 1000, blocks=10, block_size=4))

    with pytest.raises(ValueError, match="exceeds the KV pool of 40"):
        scheduler.add(Sequence(prompt_tokens=30, max_tokens=11))


def test_removed_sequences_leave_nothing_behind() -> None:
    scheduler = Scheduler(Limits(2, 8, blocks=100, block_size=4))
    decoding, prefilling, waiting = (Sequence(prompt_tokens=n, max_tokens=9) for n in (4, 30, 4))
    for sequence in (decoding, prefilling, waiting):
        scheduler.add(sequence)
    for _ in range(2):
        scheduler.plan()
        scheduler.commit()

    for sequence in (decoding, prefilling, waiting):
        scheduler.remove(sequence)

    assert scheduler.held == 0
    assert scheduler.kv_usage == 0
    assert not scheduler.plan().tokens
    assert decoding.runs == [(0, 2)]


class Books:
    """What the scheduler should report, counted sequence by sequence in every step."""

    def __init__(self, scheduler: Scheduler, limits: Limits, sequences: list[Sequence]) -> None:
        self.scheduler = scheduler
        self.limits = limits
        self.sequences = sequences

    def check(self) -> None:
        scheduler, size = self.scheduler, self.limits.block_size
        batch = scheduler.plan()
        decoding = scheduler.decoding
        lengths = [sequence.prompt_tokens + scheduler.emitted(sequence) for sequence in decoding]
        prompts = [s.to_compute for s in self.sequences if s.admitted and s not in decoding]
        used = sum(-(-tokens // size) for tokens in (*lengths, *prompts))
        assert batch.decodes == len(decoding)
        assert batch.context == sum(lengths)
        assert batch.tokens <= self.limits.max_num_batched_tokens
        assert scheduler.running <= self.limits.max_num_seqs
        assert scheduler.kv_usage == pytest.approx(used / self.limits.blocks)


@given(
    lengths=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=12),
    arrivals=st.lists(st.integers(0, 5), min_size=12, max_size=12),
    blocks=st.integers(15, 40),
    budget=st.integers(8, 40),
    seqs=st.integers(1, 6),
)
def test_books_balance_and_everybody_gets_all_tokens(
    lengths: list[tuple[int, int]], arrivals: list[int], blocks: int, budget: int, seqs: int
) -> None:
    limits = Limits(seqs, budget, blocks, block_size=4)
    scheduler = Scheduler(limits)
    sequences = [Sequence(prompt, output) for prompt, output in lengths]
    books = Books(scheduler, limits, sequences)
    coming = [sequence for sequence, _ in zip(sequences, arrivals, strict=False)]

    for gap in arrivals:
        if coming:
            scheduler.add(coming.pop(0))
        for _ in range(gap):
            books.check()
            scheduler.commit()
    while scheduler.held:
        books.check()
        scheduler.commit()

    assert [given_tokens(sequence) for sequence in sequences] == [output for _, output in lengths]
    assert all(first < end for sequence in sequences for first, end in sequence.runs)
    assert scheduler.kv_usage == 0

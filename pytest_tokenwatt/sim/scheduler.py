"""Continuous batching as vLLM does it, without clocks, sockets or tokens: which sequence takes part in which step.

Decoding sequences come first; what they leave of the token budget goes to prompts in order of arrival, in chunks. A
waiting sequence is admitted when the blocks for all of its prompt are free. When a decoding sequence needs a block and
none is free, the youngest running sequence is preempted: its blocks are freed and it is computed anew, at the head of
the queue. Only what changes is touched, so a step costs the same for ten sequences and for a thousand.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from pytest_tokenwatt.sim.profile import Limits
from pytest_tokenwatt.sim.steptime import Batch


@dataclass(slots=True, eq=False)
class Sequence:
    """One request inside the engine.

    ``runs`` are half-open ranges of step numbers in which it got one token each; there is more than one only after
    preemptions. ``base`` is how many tokens were in the KV cache before the first decode step of the current run.
    """

    prompt_tokens: int
    max_tokens: int
    runs: list[tuple[int, int]] = field(default_factory=list)
    emitted: int = 0
    computed: int = 0
    base: int = 0
    first_step: int | None = None
    admitted: bool = False

    @property
    def to_compute(self) -> int:
        """Tokens whose keys and values are needed before the next token: the prompt and, when resumed, the output."""
        return self.prompt_tokens + self.emitted


@dataclass(frozen=True, slots=True)
class Outcome:
    """Sequences that got the first token of a run in the step, and those that got their last one."""

    started: tuple[Sequence, ...]
    finished: tuple[Sequence, ...]


_NOTHING = Outcome((), ())


class Scheduler:
    """Holds all sequences; ``plan`` says what the next step does, ``commit`` applies it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: deque[Sequence] = deque()
        self._prefilling: dict[Sequence, None] = {}
        self._decoding: dict[Sequence, None] = {}
        self._chunks: list[tuple[Sequence, int]] = []
        self._due: dict[int, list[Sequence]] = {}
        # Decoding sequences by (base - first step) modulo the block size: one class of them needs a block in a step.
        self._phases = [0] * limits.block_size
        self._context = 0
        self._free = limits.blocks
        self.steps = 0
        self.preemptions = 0

    @property
    def running(self) -> int:
        """Sequences that hold blocks."""
        return len(self._prefilling) + len(self._decoding)

    @property
    def waiting(self) -> int:
        """Sequences in the queue, preempted ones included."""
        return len(self._waiting)

    @property
    def held(self) -> int:
        """All sequences, running or waiting."""
        return self.running + self.waiting

    @property
    def kv_usage(self) -> float:
        """Share of the blocks in use, 0 to 1."""
        return 1 - self._free / self._limits.blocks

    @property
    def decoding(self) -> tuple[Sequence, ...]:
        """Sequences between their first and last token, oldest first."""
        return tuple(self._decoding)

    def emitted(self, sequence: Sequence) -> int:
        """Tokens that the sequence has got so far."""
        return sequence.emitted if sequence.first_step is None else sequence.emitted + self.steps - sequence.first_step

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence. Raises ``ValueError`` when the pool could never hold it."""
        longest = self._limits.blocks * self._limits.block_size
        if sequence.prompt_tokens + sequence.max_tokens > longest:
            asked = f"{sequence.prompt_tokens} + {sequence.max_tokens}"
            raise ValueError(f"a sequence of {asked} tokens exceeds the KV pool of {longest}")
        self._waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take out a sequence that is not finished, wherever it stands."""
        if sequence.admitted:
            self._release(sequence)
        else:
            self._waiting.remove(sequence)

    def clear(self) -> None:
        """Take out all sequences."""
        for sequence in (*self._decoding, *self._prefilling):
            self._release(sequence)
        self._waiting.clear()

    def plan(self) -> Batch:
        """Decide the next step; an empty batch means that there is nothing to do."""
        preempted = self._make_room()
        budget = self._limits.max_num_batched_tokens - len(self._decoding)
        self._chunks = []
        for sequence in self._prefilling:
            budget -= self._take_chunk(sequence, budget)
        if not preempted:
            self._admit(budget)
        prefill = sum(count for _, count in self._chunks)
        pairs = sum(_pairs(sequence.computed, count) for sequence, count in self._chunks)
        return Batch(len(self._decoding), self._context, prefill, pairs)

    def commit(self) -> Outcome:
        """The planned step is over: every decoding sequence and every finished prompt has got a token."""
        step = self.steps
        self.steps += 1
        self._context += len(self._decoding)
        started = self._finish_prompts(step) if self._chunks else ()
        finished = self._due.pop(step, None)
        if finished is not None:
            for sequence in finished:
                self._release(sequence)
        elif not started:
            return _NOTHING
        return Outcome(tuple(started), tuple(finished or ()))

    def _make_room(self) -> bool:
        """Reserve the blocks that decoding sequences grow into, at the cost of the youngest ones."""
        size = self._limits.block_size
        preempted = False
        while (needed := self._phases[(1 - self.steps) % size]) > self._free:
            self._preempt(next(reversed(self._prefilling or self._decoding)))
            preempted = True
        self._free -= needed
        return preempted

    def _take_chunk(self, sequence: Sequence, budget: int) -> int:
        count = min(sequence.to_compute - sequence.computed, budget)
        if count > 0:
            self._chunks.append((sequence, count))
        return max(count, 0)

    def _admit(self, budget: int) -> None:
        while self._waiting and budget > 0 and self.running < self._limits.max_num_seqs:
            sequence = self._waiting[0]
            blocks = self._blocks(sequence.to_compute)
            if blocks > self._free:
                return
            self._waiting.popleft()
            self._free -= blocks
            sequence.admitted = True
            self._prefilling[sequence] = None
            budget -= self._take_chunk(sequence, budget)

    def _finish_prompts(self, step: int) -> list[Sequence]:
        started = []
        for sequence, count in self._chunks:
            sequence.computed += count
            if sequence.computed == sequence.to_compute:
                self._start_decoding(sequence, step)
                started.append(sequence)
        return started

    def _start_decoding(self, sequence: Sequence, step: int) -> None:
        del self._prefilling[sequence]
        self._decoding[sequence] = None
        sequence.base = sequence.to_compute
        sequence.first_step = step
        self._phases[(sequence.base - step) % self._limits.block_size] += 1
        self._context += sequence.base + 1
        self._due.setdefault(self._last_step(sequence), []).append(sequence)

    def _last_step(self, sequence: Sequence) -> int:
        return (sequence.first_step or 0) + sequence.max_tokens - sequence.emitted - 1

    def _preempt(self, sequence: Sequence) -> None:
        self._release(sequence)
        sequence.computed = 0
        self._waiting.appendleft(sequence)
        self.preemptions += 1

    def _release(self, sequence: Sequence) -> None:
        """Free the blocks and close the run of an admitted sequence; only between ``commit`` and the next chunk."""
        sequence.admitted = False
        if sequence.first_step is None:
            del self._prefilling[sequence]
            self._free += self._blocks(sequence.to_compute)
            return
        del self._decoding[sequence]
        grown = self.steps - sequence.first_step
        self._free += self._blocks(sequence.base + grown - 1)
        self._phases[(sequence.base - sequence.first_step) % self._limits.block_size] -= 1
        self._context -= sequence.base + grown
        self._forget_due(sequence)
        sequence.runs.append((sequence.first_step, self.steps))
        sequence.emitted += grown
        sequence.first_step = None

    def _forget_due(self, sequence: Sequence) -> None:
        last = self._last_step(sequence)
        due = self._due.get(last)
        if due is not None:
            due.remove(sequence)
            if not due:
                del self._due[last]

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self._limits.block_size)


def _pairs(start: int, count: int) -> int:
    """Query-key pairs of ``count`` causal queries behind ``start`` tokens."""
    return count * start + count * (count + 1) // 2

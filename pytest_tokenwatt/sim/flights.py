"""The requests of one stepped run on their way through the engine."""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass

from pytest_tokenwatt.records import ErrorClass, RequestProgress, RequestRecord, Schedule
from pytest_tokenwatt.sim.scheduler import Outcome, Sequence
from pytest_tokenwatt.sim.virtual import VirtualEngine


@dataclass(slots=True, eq=False)
class _Flight:
    """One request. ``first_step`` is the step that gave its first token."""

    phase: str
    index: int
    scheduled_s: float
    sequence: Sequence
    sent_s: float | None = None
    first_step: int | None = None
    end_s: float | None = None
    error: ErrorClass | None = None


class Flights:
    """Sends requests at their instants on the engine's clock, follows them, and puts them on record.

    ``waiting`` counts those scheduled that have neither a first token nor ended, ``capped`` those that
    ``max_concurrency`` delayed.
    """

    def __init__(self, engine: VirtualEngine, max_concurrency: int, timeout_s: float) -> None:
        self._engine = engine
        self._max_concurrency = max_concurrency
        self._timeout_s = timeout_s
        self._all: list[_Flight] = []
        self._live: dict[Sequence, _Flight] = {}
        self._held: deque[_Flight] = deque()
        self._progress: list[RequestProgress] = []
        self._followed: list[_Flight] = []
        self.next_s = float("inf")
        self.waiting = 0
        self.capped = 0

    def open(self, schedule: Schedule, phase: str) -> None:
        """Send this schedule from now on, in place of the one before."""
        self._schedule = schedule
        self._phase = phase
        self._next = 0
        self._origin_s = self._engine.now_s
        self._look_ahead()

    def _look_ahead(self) -> None:
        over = self._next >= len(self._schedule)
        self.next_s = float("inf") if over else self._origin_s + self._schedule.offset_s[self._next]

    def arrive(self) -> None:
        """Send everything whose instant has come."""
        while self.next_s <= self._engine.now_s:
            index = self._next
            sequence = Sequence(self._schedule.input_tokens[index], self._schedule.output_tokens[index])
            flight = _Flight(self._phase, index, self.next_s, sequence)
            self._all.append(flight)
            self.waiting += 1
            if self._phase == "measured":
                self._followed.append(flight)
                self._progress.append(self._progress_of(flight))
            if len(self._live) < self._max_concurrency:
                self._send(flight, flight.scheduled_s)
            else:
                self._held.append(flight)
                self.capped += 1
            self._next += 1
            self._look_ahead()

    def _send(self, flight: _Flight, at_s: float) -> None:
        flight.sent_s = at_s
        self._live[flight.sequence] = flight
        self._engine.scheduler.add(flight.sequence)

    def note(self, outcome: Outcome) -> None:
        """Take in what a step gave; sequences that earlier runs left in the engine are none of ours."""
        for sequence in outcome.started:
            flight = self._live.get(sequence)
            if flight is not None and flight.first_step is None:
                flight.first_step = len(self._engine.stamps) - 1
                self.waiting -= 1
        for sequence in outcome.finished:
            if sequence in self._live:
                self._end(self._live.pop(sequence), None)
                self._send_held()

    def _send_held(self) -> None:
        if self._held:
            self._send(self._held.popleft(), self._engine.now_s)

    def _end(self, flight: _Flight, error: ErrorClass | None) -> None:
        flight.end_s = self._engine.now_s
        flight.error = error
        if flight.first_step is None:
            self.waiting -= 1

    def expire(self) -> None:
        """Give up the requests that are older than the timeout."""
        oldest_s = self._engine.now_s - self._timeout_s
        while self._live:
            sequence, flight = next(iter(self._live.items()))
            if flight.scheduled_s > oldest_s:
                return
            del self._live[sequence]
            self._engine.scheduler.remove(sequence)
            self._end(flight, ErrorClass.TIMEOUT)
            self._send_held()

    def close(self, *, abort: bool) -> None:
        """Put what is in flight down as aborted; with ``abort`` the engine drops it, and all that it still holds."""
        for flight in (*self._live.values(), *self._held):
            self._end(flight, ErrorClass.ABORTED)
        if abort:
            self._engine.scheduler.clear()

    def progress(self) -> list[RequestProgress]:
        """The state of all measured requests scheduled so far, in index order; valid until the next call."""
        for flight in self._followed:
            self._progress[flight.index] = self._progress_of(flight)
        self._followed = [flight for flight in self._followed if flight.end_s is None]
        return self._progress

    def _progress_of(self, flight: _Flight) -> RequestProgress:
        stamps, sequence = self._engine.stamps, flight.sequence
        first_s = last_s = None
        if flight.first_step is not None:
            first_s = stamps[flight.first_step]
            last_s = stamps[-1] if sequence.first_step is not None else stamps[sequence.runs[-1][1] - 1]
        return RequestProgress(
            index=flight.index,
            scheduled_s=flight.scheduled_s,
            sent_s=flight.sent_s,
            first_token_s=first_s,
            first_tokens=0 if first_s is None else 1,
            last_token_s=last_s,
            tokens=self._engine.scheduler.emitted(sequence),
            ended=flight.end_s is not None,
            error=flight.error,
        )

    def records(self) -> tuple[RequestRecord, ...]:
        """Every request that was scheduled, in order."""
        return tuple(self._record(flight) for flight in self._all)

    def _record(self, flight: _Flight) -> RequestRecord:
        sequence = flight.sequence
        stamps = self._engine.token_stamps(sequence)
        finished = flight.error is None
        return RequestRecord(
            phase=flight.phase,
            index=flight.index,
            scheduled_s=flight.scheduled_s,
            planned_input_tokens=sequence.prompt_tokens,
            planned_output_tokens=sequence.max_tokens,
            sent_s=flight.sent_s,
            first_token_s=stamps[0] if stamps else None,
            last_token_s=stamps[-1] if stamps else None,
            end_s=flight.end_s,
            chunk_s=stamps,
            chunk_tokens=array("q", [1]) * len(stamps),
            prompt_tokens=sequence.prompt_tokens if finished else None,
            cached_tokens=0 if finished else None,
            output_tokens=len(stamps) if finished else None,
            finish_reason="length" if finished else None,
            status=None if flight.sent_s is None else 200,
            error=flight.error,
        )

"""The coordinator's picture of a running load, put together from the workers' reports."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_tokenwatt.load.wire import Tick
from pytest_tokenwatt.records import InFlight, RequestProgress, Schedule, WorkerTrace


class ProgressBoard:
    """Readings of the measured requests in index order, kept up to an instant; updated in place, never copied."""

    def __init__(self, schedule: Schedule, start_s: float) -> None:
        self._schedule = schedule
        self._start_s = start_s
        self._early: dict[int, RequestProgress] = {}
        self.readings: list[RequestProgress] = []

    def update(self, readings: Iterable[RequestProgress]) -> None:
        """Take new readings; those scheduled after the last ``advance`` wait for their instant."""
        known = len(self.readings)
        for reading in readings:
            if reading.index < known:
                self.readings[reading.index] = reading
            else:
                self._early[reading.index] = reading

    def advance(self, now_s: float) -> None:
        """Let ``readings`` hold every request scheduled up to ``now_s``."""
        offsets = self._schedule.offset_s
        index = len(self.readings)
        while index < len(offsets) and self._start_s + offsets[index] <= now_s:
            due_s = self._start_s + offsets[index]
            self.readings.append(self._early.pop(index) if index in self._early else _unsent(index, due_s))
            index += 1


def _unsent(index: int, due_s: float) -> RequestProgress:
    return RequestProgress(index, due_s, None, None, 0, None, 0, ended=False, error=None)


class TickBoard:
    """The workers' ticks: in-flight readings of all of them together, CPU traces, capped sends."""

    def __init__(self, workers: int) -> None:
        self._ticks: list[list[Tick]] = [[] for _ in range(workers)]
        self._fresh: set[int] = set()
        self.in_flight: list[InFlight] = []

    def add(self, worker: int, tick: Tick) -> None:
        """Take a tick; ``in_flight`` grows when all workers have ticked since its last reading."""
        self._ticks[worker].append(tick)
        self._fresh.add(worker)
        if len(self._fresh) == len(self._ticks):
            self._fresh.clear()
            now = [ticks[-1] for ticks in self._ticks]
            self.in_flight.append(
                InFlight(max(tick.at_s for tick in now), sum(t.running for t in now), sum(t.waiting for t in now))
            )

    @property
    def known_s(self) -> float:
        """All that happened before this instant has been reported; −inf before the first round."""
        return min((ticks[-1].at_s if ticks else float("-inf")) for ticks in self._ticks)

    def traces(self) -> tuple[WorkerTrace, ...]:
        """CPU seconds over time of each worker."""
        return tuple(
            WorkerTrace(number, tuple(tick.now_s for tick in ticks), tuple(tick.cpu_s for tick in ticks))
            for number, ticks in enumerate(self._ticks)
        )

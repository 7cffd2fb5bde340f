"""One stretch of load as its coordinator sees it: what every kind of load hears from the workers, and how it stops."""

from __future__ import annotations

import time
from collections.abc import Callable

from pytest_tokenwatt.load.board import TickBoard
from pytest_tokenwatt.load.crew import Crew
from pytest_tokenwatt.load.wire import Kind, frame, pack_instant, unpack_notice, unpack_tick

START_LEAD_S = 0.2
POLL_S = 0.1
ALIVE_S = 1.0


class Stretch:
    """The coordinator's end of one run. ``alive`` returns ``None`` or how the engine died."""

    def __init__(self, crew: Crew, alive: Callable[[], str | None]) -> None:
        self._crew = crew
        self._alive = alive
        self._ticks = TickBoard(len(crew))
        self._start_s = 0.0
        self._alive_asked_s = 0.0
        self._capped = 0

    def _start(self) -> None:
        """Start what was handed out."""
        self._crew.await_all(Kind.READY)
        self._start_s = time.monotonic() + START_LEAD_S
        self._crew.send_all(frame(Kind.START, pack_instant(self._start_s)))

    def _hear(self, timeout_s: float) -> None:
        for worker, kind, payload in self._crew.poll(timeout_s):
            self._take(worker, kind, payload)
        self._crew.check_silence()

    def _take(self, worker: int, kind: Kind, payload: bytes) -> bool:
        """Take a worker's frame; whether it was its last of this run."""
        if kind == Kind.TICK:
            self._ticks.add(worker, unpack_tick(payload))
        elif kind == Kind.END:
            self._capped += unpack_notice(payload)["capped"]
            return True
        return False

    def _dead(self) -> bool:
        """Whether the engine is dead, asked once in a while."""
        now_s = time.monotonic()
        if now_s < self._alive_asked_s + ALIVE_S:
            return False
        self._alive_asked_s = now_s
        return self._alive() is not None

    def _stop(self, *, abort: bool) -> float:
        """Stop the workers and hear what they still have to say; the instant of the stop."""
        stop_s = time.monotonic()
        self._crew.send_all(frame(Kind.STOP, pack_instant(stop_s, abort)))
        ended: set[int] = set()
        while len(ended) < len(self._crew):
            for worker, kind, payload in self._crew.poll(POLL_S):
                if self._take(worker, kind, payload):
                    ended.add(worker)
            self._crew.check_silence()
        return stop_s

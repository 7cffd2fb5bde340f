"""One stretch of closed-loop load: goes on until the last measured request has ended, or a reason stops it."""

from __future__ import annotations

import time
from collections.abc import Callable

from pytest_tokenwatt.load.crew import Crew
from pytest_tokenwatt.load.exchange import MEASURED, PHASES, WARMUP
from pytest_tokenwatt.load.plan import DEADLINE_MARGIN_S, SWITCH_LEAD_S
from pytest_tokenwatt.load.stretch import POLL_S, Stretch
from pytest_tokenwatt.load.wire import ClosedShare, Kind, frame, pack_closed_share, pack_instant
from pytest_tokenwatt.load.wire_records import unpack_records
from pytest_tokenwatt.records import ClockAnchor, ClosedPlan, ClosedRun, ClosedWatch, RequestRecord, WindowSpan

WATCH_S = 0.25


class ClosedStretch(Stretch):
    """One run of a closed-loop plan."""

    def __init__(self, crew: Crew, alive: Callable[[], str | None], plan: ClosedPlan, watch: ClosedWatch) -> None:
        super().__init__(crew, alive)
        self._plan = plan
        self._watch = watch
        self._watched_s = 0.0
        self._records: list[RequestRecord] = []
        self._ended = dict.fromkeys(PHASES, 0)
        self._failed = 0
        self._last_end_s = 0.0

    def carry_out(self) -> ClosedRun:
        """Run the plan to its end, or until the watch, the failures or the engine's death stop it."""
        anchor = ClockAnchor(time.monotonic(), time.time())
        self._hand_out()
        self._start()
        self._last_end_s = self._start_s
        stop = self._warm_up() if self._plan.at_once else None
        stop = stop or self._hold(lambda: self._ended[MEASURED] >= self._plan.requests) or "done"
        span = self._span()  # before the abort ends measured requests too
        stop_s = self._stop(abort=True)
        self._records.sort(key=lambda record: (PHASES.index(record.phase), record.index))
        return ClosedRun(
            plan=self._plan,
            span=span,
            requests=tuple(self._records),
            workers=self._ticks.traces(),
            stop=stop,
            anchor=anchor,
            started_s=self._start_s,
            ended_s=stop_s,
        )

    def _hand_out(self) -> None:
        count = len(self._crew)
        for worker in range(count):
            share = ClosedShare(worker, count, self._plan)
            self._crew.send(worker, frame(Kind.CLOSED_SHARE, pack_closed_share(share)))

    def _warm_up(self) -> str | None:
        """Wait for the warm-up's end, then have all measured requests sent at once; the reason of an early stop."""
        stop = self._hold(lambda: self._ended[WARMUP] >= self._plan.warmup)
        if stop is None:
            start_s = max(time.monotonic(), self._start_s) + SWITCH_LEAD_S
            self._last_end_s = start_s
            self._crew.send_all(frame(Kind.MEASURE, pack_instant(start_s)))
        return stop

    def _hold(self, over: Callable[[], bool]) -> str | None:
        """Listen until it is ``over``, or return the reason to stop before."""
        while True:
            self._hear(POLL_S)
            if self._failed > self._plan.max_failures:
                return "too_many_failures"
            if over():
                return None
            stop = self._reason()
            if stop is not None:
                return stop

    def _reason(self) -> str | None:
        if self._dead():
            return "engine_died"
        now_s = time.monotonic()
        if now_s > self._last_end_s + self._plan.request_timeout_s + DEADLINE_MARGIN_S:
            return "deadline"  # a request in flight would have timed out by now
        if now_s < self._watched_s + WATCH_S:
            return None
        self._watched_s = now_s
        readings = self._ticks.in_flight
        return self._watch(now_s, self._ended[MEASURED], readings[-1].running if readings else 0)

    def _take(self, worker: int, kind: Kind, payload: bytes) -> bool:
        if kind == Kind.RECORDS:
            for record in unpack_records(payload):
                self._note(record)
        return super()._take(worker, kind, payload)

    def _note(self, record: RequestRecord) -> None:
        self._records.append(record)
        self._ended[record.phase] += 1
        self._failed += record.error is not None
        self._last_end_s = max(self._last_end_s, record.end_s or 0.0)

    def _span(self) -> WindowSpan | None:
        """From the first measured request's sending to the last one's end; ``None`` while any is out."""
        measured = [record for record in self._records if record.phase == MEASURED]
        sent = [record.sent_s for record in measured if record.sent_s is not None]
        ended = [record.end_s for record in measured if record.end_s is not None]
        if not sent or len(ended) < self._plan.requests:
            return None
        return WindowSpan(min(sent), max(ended))

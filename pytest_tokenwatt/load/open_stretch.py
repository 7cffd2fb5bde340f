"""One stretch of open-loop load: hands out the schedules, watches the windows, stops when the watch says so."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from pytest_tokenwatt.load.board import ProgressBoard
from pytest_tokenwatt.load.crew import Crew
from pytest_tokenwatt.load.plan import DEADLINE_MARGIN_S, SWITCH_LEAD_S, split
from pytest_tokenwatt.load.stretch import POLL_S, Stretch
from pytest_tokenwatt.load.wire import Kind, Share, frame, pack_instant, pack_share
from pytest_tokenwatt.load.wire_records import unpack_progress, unpack_records
from pytest_tokenwatt.records import ClockAnchor, Decision, LoadPlan, LoadRun, LoadWatch, RequestRecord, WindowSpan

LEVEL_S = 0.5
DECIDE_S = 1.0

ENGINE_DIED = Decision(stop=True, why="engine_died", abort=True)


class OpenStretch(Stretch):
    """One run of an open-loop plan."""

    def __init__(self, crew: Crew, alive: Callable[[], str | None], plan: LoadPlan, watch: LoadWatch) -> None:
        super().__init__(crew, alive)
        self._plan = plan
        self._watch = watch
        self._progress: ProgressBoard | None = None
        self._packed: list[bytes] = []

    def carry_out(self) -> LoadRun:
        """Run the plan until the watch stops it, the engine dies or the deadline passes."""
        anchor = ClockAnchor(time.monotonic(), time.time())
        self._hand_out()
        self._start()
        level = self._warm_up()
        spans: tuple[WindowSpan, ...] = ()
        if isinstance(level, Decision):
            decision, warm_level = level, False
        else:
            spans, decision, warm_level = *self._measure(), level
        stop_s = self._stop(abort=decision.abort)
        return LoadRun(
            plan=self._plan,
            spans=spans,
            requests=self._requests(),
            in_flight=tuple(self._ticks.in_flight),
            workers=self._ticks.traces(),
            stop=decision.why,
            warm_level=warm_level,
            capped=self._capped,
            anchor=anchor,
            started_s=self._start_s,
            ended_s=stop_s,
        )

    def _hand_out(self) -> None:
        count = len(self._crew)
        for worker in range(count):
            share = Share(
                worker=worker,
                workers=count,
                warmup=split(self._plan.warmup, count, worker),
                measured=split(self._plan.measured, count, worker),
                request_timeout_s=self._plan.request_timeout_s,
                max_in_flight=max(1, math.ceil(self._plan.max_concurrency / count)),
                kept=self._plan.kept,
            )
            self._crew.send(worker, frame(Kind.SHARE, pack_share(share)))

    def _warm_up(self) -> bool | Decision:
        """Wait until the load is level (true) or the warm-up is over (false); a ``Decision`` when the engine died."""
        asked_s = self._start_s + self._plan.warmup_s
        last_s = self._start_s + self._plan.warmup_max_s
        while True:
            self._hear(min(POLL_S, last_s - time.monotonic()))
            if self._dead():
                return ENGINE_DIED
            now_s = time.monotonic()
            if now_s >= min(asked_s, last_s):
                asked_s = now_s + LEVEL_S
                level = self._watch.level(now_s, self._ticks.in_flight)
                if level or now_s >= last_s:
                    return level

    def _measure(self) -> tuple[tuple[WindowSpan, ...], Decision]:
        start_s = max(time.monotonic(), self._start_s) + SWITCH_LEAD_S
        self._progress = ProgressBoard(self._plan.measured, start_s)
        self._crew.send_all(frame(Kind.MEASURE, pack_instant(start_s)))
        width_s = self._plan.window_s
        spans = tuple(WindowSpan(start_s + k * width_s, start_s + (k + 1) * width_s) for k in range(self._plan.windows))
        return spans, self._watch_windows(spans, self._progress)

    def _watch_windows(self, spans: tuple[WindowSpan, ...], progress: ProgressBoard) -> Decision:
        deadline_s = spans[-1].end_s + self._plan.request_timeout_s + DEADLINE_MARGIN_S / 2
        asked_s = spans[0].start_s
        while time.monotonic() < deadline_s:
            self._hear(POLL_S)
            if self._dead():
                return ENGINE_DIED
            known_s = self._ticks.known_s
            if known_s >= asked_s + DECIDE_S:
                asked_s = known_s
                progress.advance(known_s)
                decision = self._watch.decide(known_s, spans, progress.readings)
                if decision.stop:
                    return decision
        return Decision(stop=True, why="deadline", abort=True)

    def _take(self, worker: int, kind: Kind, payload: bytes) -> bool:
        if kind == Kind.RECORDS:
            self._packed.append(payload)
        elif kind == Kind.PROGRESS and self._progress is not None:
            self._progress.update(unpack_progress(payload))
        return super()._take(worker, kind, payload)

    def _requests(self) -> tuple[RequestRecord, ...]:
        records = [record for packed in self._packed for record in unpack_records(packed)]
        records.sort(key=lambda record: (record.phase != "warmup", record.index))
        return tuple(records)

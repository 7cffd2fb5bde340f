"""The load generator: coordinates worker processes through one plan after another."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from pytest_tokenwatt.load.board import ProgressBoard, TickBoard
from pytest_tokenwatt.load.crew import Crew, auto_workers
from pytest_tokenwatt.load.plan import DEADLINE_MARGIN_S, SWITCH_LEAD_S, split
from pytest_tokenwatt.load.wire import (
    Kind,
    Share,
    frame,
    pack_instant,
    pack_share,
    unpack_notice,
    unpack_progress,
    unpack_records,
    unpack_tick,
)
from pytest_tokenwatt.records import (
    ClockAnchor,
    Decision,
    LoadPlan,
    LoadRun,
    LoadWatch,
    RequestRecord,
    Target,
    WindowSpan,
)

START_LEAD_S = 0.2
POLL_S = 0.1
ALIVE_S = 1.0
LEVEL_S = 0.5
DECIDE_S = 1.0


class LoadGenerator:
    """Offers load to ``target``; implements ``records.Loader``. A context manager; the workers live as long as it.

    ``workers``: ``None`` chooses by the number of CPUs. ``alive`` returns ``None`` or how the engine died, and is asked
    once a second. What workers print goes to ``run_log``. POSIX only.
    """

    def __init__(self, target: Target, workers: int | None, alive: Callable[[], str | None], run_log: Path) -> None:
        self._target = target
        self._workers = workers if workers is not None else auto_workers()
        self._alive = alive
        self._run_log = run_log
        self._crew: Crew | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers and every connection; a later ``run`` starts new ones."""
        if self._crew is not None:
            self._crew.close()
            self._crew = None

    def run(self, plan: LoadPlan, watch: LoadWatch) -> LoadRun:
        """Run the plan until the watch stops it, the engine dies or the deadline passes.

        Raises ``LoadError`` when a worker dies, hangs or fails (``load_worker_died``, ``load_worker_hung``,
        ``load_worker_failed``) or cannot work with the target (``bad_endpoint``, ``bad_ca_file``, ``bad_target``).
        On any exception, ``KeyboardInterrupt`` included, the workers are ended, so that no load goes on.
        """
        try:
            if self._crew is None:
                self._crew = Crew(self._target, self._workers, self._run_log)
            return _Run(self._crew, plan, watch, self._alive).carry_out()
        except BaseException:
            self.close()
            raise


class _Run:
    """One run of a plan."""

    def __init__(self, crew: Crew, plan: LoadPlan, watch: LoadWatch, alive: Callable[[], str | None]) -> None:
        self._crew = crew
        self._plan = plan
        self._watch = watch
        self._alive = alive
        self._ticks = TickBoard(len(crew))
        self._progress: ProgressBoard | None = None
        self._packed: list[bytes] = []
        self._start_s = 0.0
        self._alive_asked_s = 0.0
        self._capped = 0

    def carry_out(self) -> LoadRun:
        anchor = ClockAnchor(time.monotonic(), time.time())
        self._hand_out()
        self._start_s = time.monotonic() + START_LEAD_S
        self._crew.send_all(frame(Kind.START, pack_instant(self._start_s)))
        level = self._warm_up()
        spans: tuple[WindowSpan, ...] = ()
        if isinstance(level, Decision):
            decision, warm_level = level, False
        else:
            spans, decision, warm_level = *self._measure(), level
        stop_s = self._stop(decision)
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
            )
            self._crew.send(worker, frame(Kind.SHARE, pack_share(share)))
        self._crew.await_all(Kind.READY)

    def _warm_up(self) -> bool | Decision:
        """Wait until the load is level (true) or the warm-up is over (false); a ``Decision`` when the engine died."""
        asked_s = self._start_s + self._plan.warmup_s
        last_s = self._start_s + self._plan.warmup_max_s
        while True:
            self._hear(min(POLL_S, last_s - time.monotonic()))
            if (death := self._death()) is not None:
                return death
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
            if (death := self._death()) is not None:
                return death
            known_s = self._ticks.known_s
            if known_s >= asked_s + DECIDE_S:
                asked_s = known_s
                progress.advance(known_s)
                decision = self._watch.decide(known_s, spans, progress.readings)
                if decision.stop:
                    return decision
        return Decision(stop=True, why="deadline", abort=True)

    def _death(self) -> Decision | None:
        now_s = time.monotonic()
        if now_s < self._alive_asked_s + ALIVE_S:
            return None
        self._alive_asked_s = now_s
        return None if self._alive() is None else Decision(stop=True, why="engine_died", abort=True)

    def _hear(self, timeout_s: float) -> None:
        for worker, kind, payload in self._crew.poll(timeout_s):
            self._take(worker, kind, payload)
        self._crew.check_silence()

    def _take(self, worker: int, kind: Kind, payload: bytes) -> bool:
        """Take a worker's frame; whether it was its last of this run."""
        if kind == Kind.RECORDS:
            self._packed.append(payload)
        elif kind == Kind.PROGRESS and self._progress is not None:
            self._progress.update(unpack_progress(payload))
        elif kind == Kind.TICK:
            self._ticks.add(worker, unpack_tick(payload))
        elif kind == Kind.END:
            self._capped += unpack_notice(payload)["capped"]
            return True
        return False

    def _stop(self, decision: Decision) -> float:
        stop_s = time.monotonic()
        self._crew.send_all(frame(Kind.STOP, pack_instant(stop_s, decision.abort)))
        ended: set[int] = set()
        while len(ended) < len(self._crew):
            for worker, kind, payload in self._crew.poll(POLL_S):
                if self._take(worker, kind, payload):
                    ended.add(worker)
            self._crew.check_silence()
        return stop_s

    def _requests(self) -> tuple[RequestRecord, ...]:
        records = [record for packed in self._packed for record in unpack_records(packed)]
        records.sort(key=lambda record: (record.phase != "warmup", record.index))
        return tuple(records)

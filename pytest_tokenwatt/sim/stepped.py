"""Load on the embedded engine without sockets or waiting: minutes of requests in a fraction of a second."""

from __future__ import annotations

import random
from bisect import bisect_right
from itertools import pairwise

from pytest_tokenwatt.records import (
    ClockAnchor,
    Decision,
    InFlight,
    LoadPlan,
    LoadRun,
    LoadWatch,
    PowerTrace,
    WindowSpan,
)
from pytest_tokenwatt.sim.board import board_info
from pytest_tokenwatt.sim.energy import EnergyMeter
from pytest_tokenwatt.sim.flights import Flights
from pytest_tokenwatt.sim.power import StepPower
from pytest_tokenwatt.sim.profile import Profile
from pytest_tokenwatt.sim.sampled import sample
from pytest_tokenwatt.sim.steptime import StepTime
from pytest_tokenwatt.sim.virtual import VirtualEngine

_READING_S = 0.25
_LEVEL_S = 0.5
_DECIDE_S = 1.0
_DEADLINE_MARGIN_S = 5.0


class SteppedLoad:
    """A ``records.Loader`` over the engine's model on virtual time.

    ``kv_dtype`` is the KV cache type, ``slowdown`` stretches every step, ``noise`` is the relative standard deviation
    of a step's time, drawn from ``seed``. Requests are sent exactly when scheduled and each chunk carries one token.
    The engine lives on from one run to the next: what a run leaves in it goes on, unless the watch asked to abort it.
    """

    def __init__(
        self, profile: Profile, *, kv_dtype: str = "auto", seed: int = 0, slowdown: float = 1.0, noise: float = 0.015
    ) -> None:
        step_time = StepTime(profile, kv_dtype, slowdown)
        self._engine = VirtualEngine(profile.limits(kv_dtype), step_time, random.Random(seed), noise)

        self._profile = profile
        self._step_power = StepPower(profile, kv_dtype)
        self._meter = EnergyMeter(profile.board.power, self._engine.now_s)

    def run(self, plan: LoadPlan, watch: LoadWatch) -> LoadRun:
        """Run the plan until the watch stops it or its deadline passes. Instants are on the engine's virtual clock."""
        return _Run(plan, watch, self._engine).carry_out()

    def power(self, hz: float) -> PowerTrace:
        """The board's sensor at ``hz``, and its energy counter beside, over everything that has run so far."""
        for start_s, end_s, batch in self._engine.history:
            self._meter.add(start_s, end_s, self._step_power(batch))
        self._engine.history.clear()
        return sample(self._meter, board_info(self._profile), self._engine.now_s, hz)

    def steps(self, start_s: float, end_s: float) -> int:
        """Number of engine steps that ended after ``start_s`` and not after ``end_s``."""
        stamps = self._engine.stamps
        return bisect_right(stamps, end_s) - bisect_right(stamps, start_s)


class _Run:
    """One plan on the engine, from its warm-up to its stop."""

    def __init__(self, plan: LoadPlan, watch: LoadWatch, engine: VirtualEngine) -> None:
        self._plan = plan
        self._watch = watch
        self._engine = engine
        self._flights = Flights(engine, plan.max_concurrency, plan.request_timeout_s)
        self._readings: list[InFlight] = []
        self._start_s = engine.now_s

    def carry_out(self) -> LoadRun:
        """Run everything and put it on record."""
        warm_level = self._warm_up()
        spans = self._open_windows()
        decision = self._measure(spans)
        self._flights.close(abort=decision.abort)
        return LoadRun(
            plan=self._plan,
            spans=spans,
            requests=self._flights.records(),
            in_flight=tuple(self._readings),
            workers=(),
            stop=decision.why,
            warm_level=warm_level,
            capped=self._flights.capped,
            anchor=ClockAnchor(self._start_s, self._start_s),
            started_s=self._start_s,
            ended_s=self._engine.now_s,
        )

    def _warm_up(self) -> bool:
        """Whether the load was level before the warm-up's maximum was over."""
        self._flights.open(self._plan.warmup, "warmup")
        last_s = self._start_s + self._plan.warmup_max_s
        asked_s = self._start_s + self._plan.warmup_s
        while self._engine.now_s < last_s:
            self._advance(min(self._engine.now_s + _READING_S, last_s))
            if self._engine.now_s >= asked_s:
                asked_s = self._engine.now_s + _LEVEL_S
                if self._watch.level(self._engine.now_s, self._readings):
                    return True
        return False

    def _open_windows(self) -> tuple[WindowSpan, ...]:
        start_s = self._engine.now_s
        self._flights.open(self._plan.measured, "measured")
        edges = [start_s + k * self._plan.window_s for k in range(self._plan.windows + 1)]
        return tuple(WindowSpan(*edge) for edge in pairwise(edges))

    def _measure(self, spans: tuple[WindowSpan, ...]) -> Decision:
        deadline_s = spans[-1].end_s + self._plan.request_timeout_s + _DEADLINE_MARGIN_S
        asked_s = spans[0].start_s
        while self._engine.now_s < deadline_s:
            self._advance(self._engine.now_s + _READING_S)
            if self._engine.now_s >= asked_s + _DECIDE_S:
                asked_s = self._engine.now_s
                decision = self._watch.decide(asked_s, spans, self._flights.progress())
                if decision.stop:
                    return decision
        return Decision(stop=True, why="deadline", abort=True)

    def _advance(self, until_s: float) -> None:
        """Let the engine work up to the end of the step that crosses ``until_s``, then take a reading."""
        engine, flights = self._engine, self._flights
        while engine.now_s < until_s:
            flights.arrive()
            outcome = engine.step()
            if outcome is None:
                engine.now_s = min(flights.next_s, until_s)
            elif outcome.started or outcome.finished:
                flights.note(outcome)
        flights.arrive()
        flights.expire()
        self._readings.append(InFlight(engine.now_s, engine.scheduler.held, flights.waiting))

"""Decides about once a second whether the verdict of a running load is certain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pytest_tokenwatt.metrics.certainty import Standing, standing
from pytest_tokenwatt.metrics.percentiles import Floats, allowed_misses
from pytest_tokenwatt.metrics.stability import BLOCKS, MIN_GROWTH, MIN_GROWTH_SHARE, fit_trend, is_level, population
from pytest_tokenwatt.metrics.window import window_indices
from pytest_tokenwatt.records import CONTINUE, Decision, InFlight, LoadPlan, RequestProgress, SloBound, WindowSpan

EARLY_P_LIMIT = 0.001
EARLY_GROWTH_SHARE = 0.15
"""The share of all arrivals that the queue must have taken in before a window is called unstable early."""
EARLY_SKIP = 0.1
"""The beginning of the first window whose requests must all have a token before the early look begins."""


@dataclass(slots=True)
class _Window:
    """Of the ``planned`` requests of one window, how many missed each bound, have no such latency, are open."""

    planned: range
    missed: list[int]
    absent: list[int]
    open: list[int]

    def total(self, number: int) -> int:
        """How many requests the bound at that position is about."""
        return len(self.planned) - self.absent[number]

    def allowed(self, number: int, bound: SloBound) -> int:
        """How many of them may miss it."""
        return allowed_misses(bound.percentile, self.total(number))


@dataclass(slots=True)
class _Running:
    """A measured request that has not ended; ``unmissed`` are the bounds (by position) it has not missed yet."""

    index: int
    window: int
    unmissed: list[int]


class SloWatch:
    """A ``records.LoadWatch`` for the SLO of one plan.

    Stops and aborts when a window has certainly failed: more misses than a percentile allows of all requests planned in
    it, or an unstable queue. Stops without abort when, behind the last window, every request scheduled in a window has
    finished or its part in the verdict is certain; a search (``kind`` "search") also as soon as passing is certain.
    """

    def __init__(self, plan: LoadPlan, bounds: Sequence[SloBound], kind: str) -> None:
        self._bounds = tuple(bounds)
        self._kind = kind
        self._tokens = plan.measured.output_tokens
        none = [0] * len(bounds)
        self._windows = [
            _Window(window_indices(plan, number), none.copy(), none.copy(), none.copy())
            for number in range(plan.windows)
        ]
        self._running: list[_Running] = []
        self._queue = _Queue()
        self._taken = 0

    def level(self, now_s: float, in_flight: Sequence[InFlight]) -> bool:
        """Whether requests in flight no longer rise."""
        return is_level(now_s, in_flight)

    def decide(self, now_s: float, spans: Sequence[WindowSpan], requests: Sequence[RequestProgress]) -> Decision:
        """Stop when the verdict is certain. Positions in ``requests`` are indices of the measured schedule."""
        self._take_in(requests)
        self._look(now_s, requests)
        failure = self._missed(self._windows) or self._queue.unstable(now_s, spans)
        if failure:
            return Decision(stop=True, why=failure, abort=True)
        if now_s < spans[-1].end_s:
            return CONTINUE
        return self._settle(now_s, requests)

    def _take_in(self, requests: Sequence[RequestProgress]) -> None:
        """Start to follow the requests scheduled since the last look; the tail's are of no interest."""
        end = min(len(requests), self._windows[-1].planned.stop)
        everything = list(range(len(self._bounds)))
        for index in range(self._taken, end):
            number = next(n for n, window in enumerate(self._windows) if index < window.planned.stop)
            self._running.append(_Running(index, number, everything.copy()))
            self._queue.add(requests[index].scheduled_s)
        self._taken = max(self._taken, end)

    def _look(self, now_s: float, requests: Sequence[RequestProgress]) -> None:
        """Count what has become certain, and go on following what has not ended."""
        following = []
        for running in self._running:
            seen = requests[running.index]
            self._queue.update(running.index, seen, now_s)
            self._count(running, seen, now_s)
            if not seen.ended:
                following.append(running)
        self._running = following

    def _count(self, running: _Running, seen: RequestProgress, now_s: float) -> None:
        window = self._windows[running.window]
        unmissed = []
        for number in running.unmissed:
            stands = standing(seen, self._bounds[number], self._tokens[running.index], now_s, settle=False)
            if stands is Standing.MISSED:
                window.missed[number] += 1
            elif stands is Standing.ABSENT:
                window.absent[number] += 1
            else:
                unmissed.append(number)
        running.unmissed = unmissed

    def _settle(self, now_s: float, requests: Sequence[RequestProgress]) -> Decision:
        """Behind the last window: judge what is running by what it has done so far, if it has done enough."""
        settled = [_Window(w.planned, w.missed.copy(), w.absent.copy(), w.open.copy()) for w in self._windows]
        for running in self._running:
            window, tokens = settled[running.window], self._tokens[running.index]
            for number in running.unmissed:
                stands = standing(requests[running.index], self._bounds[number], tokens, now_s, settle=True)
                window.missed[number] += stands is Standing.MISSED
                window.absent[number] += stands is Standing.ABSENT
                window.open[number] += stands is Standing.OPEN
        if any(any(window.open) for window in settled):
            return Decision(stop=True, why="passes") if self._passing(settled) else CONTINUE
        failure = self._missed(settled)
        return Decision(stop=True, why=failure or "decided", abort=bool(failure))

    def _missed(self, windows: Sequence[_Window]) -> str:
        """Why a window has certainly failed; empty when none has."""
        for window in windows:
            for number, bound in enumerate(self._bounds):
                # One request with a late token is not one late token: only the gaps themselves can tell for ITL.
                if bound.metric != "itl" and window.missed[number] > window.allowed(number, bound):
                    total = window.total(number)
                    return f"{window.missed[number]} of {total} planned requests miss {bound.name} {bound.bound_ms:g}"
        return ""

    def _passing(self, windows: Sequence[_Window]) -> bool:
        """Whether a search may stop although requests are open, since they cannot change its verdict."""
        return self._kind == "search" and all(
            bound.metric != "itl" and window.missed[number] + window.open[number] <= window.allowed(number, bound)
            for window in windows
            for number, bound in enumerate(self._bounds)
        )


@dataclass(slots=True)
class _Queue:
    """The measured requests' waiting times, for an early look at stability that is stricter than the window's test.

    The test proper is made once, by ``judge_run``. A look every second, at ever shorter blocks, would raise its false
    alarms many times: near its capacity a healthy queue wanders. So the early look only speaks of a queue that took in
    a good part of all arrivals. Requests of the warm-up are not seen here; the span starts when all requests of the
    window's beginning have a token, for by then those scheduled before it had theirs.
    """

    arrived_s: list[float] = field(default_factory=list)
    answered_s: list[float] = field(default_factory=list)
    ended_s: list[float] = field(default_factory=list)

    def add(self, scheduled_s: float) -> None:
        """Follow one more request."""
        self.arrived_s.append(scheduled_s)
        self.answered_s.append(math.inf)
        self.ended_s.append(math.inf)

    def update(self, index: int, seen: RequestProgress, now_s: float) -> None:
        """Note a first token or an end; an end is dated by the last token, else by this look."""
        if seen.first_token_s is not None:
            self.answered_s[index] = seen.first_token_s
        if seen.ended:
            self.ended_s[index] = now_s if seen.last_token_s is None else seen.last_token_s
            self.answered_s[index] = min(self.answered_s[index], self.ended_s[index])

    def unstable(self, now_s: float, spans: Sequence[WindowSpan]) -> str:
        """Why the running (or last) window is unstable beyond doubt; empty when it is not, or not yet."""
        span = next((span for span in reversed(spans) if span.start_s <= now_s), None)
        if span is None or now_s - span.start_s < span.length_s / 2:
            return ""
        arrived, answered = _array(self.arrived_s), _array(self.answered_s)
        beginning = arrived < spans[0].start_s + EARLY_SKIP * span.length_s
        settled_s = max(answered[beginning], default=math.inf)
        seen = WindowSpan(max(span.start_s, settled_s), min(span.end_s, now_s))
        return self._grows(seen, arrived, answered) if seen.length_s >= span.length_s / 3 else ""

    def _grows(self, span: WindowSpan, arrived: Floats, answered: Floats) -> str:
        trend = fit_trend(population(arrived, answered, span, BLOCKS))
        in_flight = float(population(arrived, _array(self.ended_s), span, 1)[0])
        arrivals = int(((arrived >= span.start_s) & (arrived < span.end_s)).sum())
        limit = max(2 * MIN_GROWTH, 2 * MIN_GROWTH_SHARE * in_flight, EARLY_GROWTH_SHARE * arrivals)
        if not trend.exceeds(limit, EARLY_P_LIMIT):
            return ""
        return f"unstable: requests without a first token grew by {trend.growth:.0f} in {span.length_s:.0f} s"


def _array(values: Sequence[float]) -> Floats:
    return np.array(values, dtype=np.float64)

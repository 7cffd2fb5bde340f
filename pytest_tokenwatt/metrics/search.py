"""The search for the highest rate that meets the SLO, as a generator: it yields probes and is sent their outcomes.

Pure: what carries a probe out, and how a window is judged, is up to the caller.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from pytest_tokenwatt.metrics.client import CLIENT_CODES
from pytest_tokenwatt.metrics.settings import MeasurementSettings, SweepSettings
from pytest_tokenwatt.records import Reason, WindowResult

MAX_LENGTHENING = 5.0
MAX_STEPS_DOWN = 6
TOO_FEW = "too_few_requests"
FINAL_CODES = frozenset({TOO_FEW, "engine_died", "usage_missing", "time_budget"})
"""Reasons that the same probe, taken again, would meet again."""


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """One stretch of load to carry out: ``windows`` windows of ``window_s`` at ``rate_rps``.

    ``kind`` is ``search``, ``confirm`` or ``fixed``. The windows may be lengthened up to ``max_window_s`` to hold the
    requests that their percentile needs. ``attempt`` is 1 when an invalid probe is taken again, with another draw.
    """

    kind: str
    rate_rps: float
    windows: int
    window_s: float
    max_window_s: float
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """The windows of a probe that had begun when it stopped; ``invalid`` when it could not be carried out at all."""

    windows: tuple[WindowResult, ...]
    invalid: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Where the search ended.

    ``rate_rps`` is the highest rate of which every confirming (or fixed) window passed, and ``windows`` are those
    windows; ``None`` when there is none, and ``windows`` are then the last ones that failed. ``bracket`` is ``closed``,
    ``open`` (``max_rps`` passed), ``none`` (nothing passed) or ``fixed``.
    """

    rate_rps: float | None
    highest_passing_rps: float | None
    lowest_failing_rps: float | None
    bracket: str
    backoffs: int
    windows: tuple[WindowResult, ...]
    misses: tuple[str, ...]
    invalid: tuple[Reason, ...]
    notes: tuple[str, ...]


Search: TypeAlias = Generator[ProbePlan, ProbeOutcome, SearchResult]


@dataclass(frozen=True, slots=True)
class _Verdict:
    """A probe's verdict: ``passes`` means nothing when ``invalid``."""

    passes: bool
    invalid: tuple[Reason, ...]
    windows: tuple[WindowResult, ...]

    @property
    def misses(self) -> tuple[str, ...]:
        """What broke, without repetition."""
        return tuple(dict.fromkeys(miss for window in self.windows if not window.passes for miss in window.misses))


class _Invalid(Exception):
    """The probe stayed invalid: a jump out of the search."""

    def __init__(self, verdict: _Verdict) -> None:
        self.verdict = verdict


def search(sweep: SweepSettings, measurement: MeasurementSettings, at_rps: float | None = None) -> Search:
    """Find the highest passing rate by growing, bisecting and confirming; or measure the fixed rates that are listed.

    A probe that is invalid is yielded once more; if it stays invalid the search ends with its reasons and without a
    rate. A rate is only ever returned when each of its ``repeats`` windows passed and is valid.
    """
    rates = fixed_rates(sweep, at_rps)
    return _Fixed(measurement).run(rates) if rates else _Bracket(sweep, measurement).run()


def fixed_rates(sweep: SweepSettings, at_rps: float | None) -> tuple[float, ...]:
    """The rates that are measured instead of a search, ascending; empty when the rate is searched."""
    listed = () if sweep.rates is None else tuple(sweep.rates)
    return tuple(sorted({*listed, *(() if at_rps is None else (at_rps,))}))


def judge_probe(probe: ProbePlan, outcome: ProbeOutcome) -> _Verdict:
    """All windows valid and passing: passes. A valid failing window: fails. Otherwise invalid."""
    windows = outcome.windows
    valid = [window for window in windows if not window.invalid]
    passes = len(valid) == probe.windows and all(window.passes for window in valid)
    fails = any(not window.passes and window.misses for window in valid)
    reasons = (*outcome.invalid, *(reason for window in windows for reason in window.invalid))
    if not (passes or fails) and not reasons:
        reasons = (Reason("cut_short", f"{len(windows)} of {probe.windows} windows were measured"),)
    if outcome.invalid or not (passes or fails):
        return _Verdict(False, tuple(dict.fromkeys(reasons)), windows)
    return _Verdict(passes, (), windows)


def _probe(plan: ProbePlan) -> Generator[ProbePlan, ProbeOutcome, _Verdict]:
    """Carry out a probe, once more if it is invalid. Raises ``_Invalid`` when it stays so."""
    verdict = judge_probe(plan, (yield plan))
    if verdict.invalid and verdict.windows and not any(reason.code in FINAL_CODES for reason in verdict.invalid):
        again = replace(plan, attempt=1)
        verdict = judge_probe(again, (yield again))
    if verdict.invalid:
        raise _Invalid(verdict)
    return verdict


def _plan(kind: str, rate_rps: float, measurement: MeasurementSettings) -> ProbePlan:
    searching = kind == "search"
    window_s = measurement.search_window_s if searching else measurement.window_s
    windows = 1 if searching else measurement.repeats
    return ProbePlan(kind, rate_rps, windows, window_s, MAX_LENGTHENING * window_s)


@dataclass(slots=True)
class _Bracket:
    """The plain search: a bracket [highest passing, lowest failing] that narrows, then a confirmation."""

    sweep: SweepSettings
    measurement: MeasurementSettings
    passing: float | None = None
    failing: float | None = None
    backoffs: int = 0
    failed: _Verdict | None = None
    notes: list[str] = field(default_factory=list)

    def run(self) -> Search:
        """Grow (or step down), bisect, confirm."""
        try:
            yield from self._grow()
            if self.passing is None:
                yield from self._step_down()
            if self.passing is None:
                return self._result(None)
            yield from self._bisect()
            return (yield from self._confirm())
        except _Invalid as stop:
            return self._result(None, stop.verdict)

    def _probe(self, rate_rps: float) -> Generator[ProbePlan, ProbeOutcome, bool]:
        verdict = yield from _probe(_plan("search", rate_rps, self.measurement))
        if verdict.passes:
            self.passing = rate_rps
        else:
            self.failing, self.failed = rate_rps, verdict
        return verdict.passes

    def _grow(self) -> Generator[ProbePlan, ProbeOutcome, None]:
        rate_rps = min(self.sweep.start_rps, self.sweep.max_rps)
        while (yield from self._probe(rate_rps)):
            if rate_rps >= self.sweep.max_rps:
                return
            rate_rps = min(rate_rps * self.sweep.growth, self.sweep.max_rps)

    def _step_down(self) -> Generator[ProbePlan, ProbeOutcome, None]:
        rate_rps = min(self.sweep.start_rps, self.sweep.max_rps)
        for _ in range(MAX_STEPS_DOWN):
            rate_rps /= self.sweep.growth
            try:
                if (yield from self._probe(rate_rps)):
                    return
            except _Invalid as stop:
                if stop.verdict.invalid[0].code != TOO_FEW:
                    raise
                self.notes.append(f"rates from {rate_rps:g} req/s down cannot be measured: {stop.verdict.invalid[0]}")
                return

    def _bisect(self) -> Generator[ProbePlan, ProbeOutcome, None]:
        steps = 0
        while self.passing is not None and self.failing is not None:
            resolution = self.sweep.resolution
            done = steps >= self.sweep.bisect_steps if resolution is None else self.failing / self.passing <= resolution
            if done:
                return
            geometric = (self.passing * self.failing) ** 0.5
            middle = (self.passing + self.failing) / 2 if resolution is None else geometric
            if not self.passing < middle < self.failing:
                return
            yield from self._probe(middle)
            steps += 1

    def _confirm(self) -> Search:
        rate_rps = self.passing or 0.0
        while True:
            verdict = yield from _probe(_plan("confirm", rate_rps, self.measurement))
            if verdict.passes:
                self.passing = rate_rps
                return self._result(verdict)
            self.failing, self.failed, self.passing = rate_rps, verdict, None
            if self.backoffs >= self.sweep.max_backoffs:
                return self._result(None)
            self.backoffs += 1
            rate_rps *= self.sweep.backoff

    def _result(self, confirmed: _Verdict | None, invalid: _Verdict | None = None) -> SearchResult:
        shown = confirmed or invalid or self.failed
        bracket = "none" if self.passing is None else "open" if self.failing is None else "closed"
        if bracket == "open" and confirmed:
            self.notes.append(f"the capacity is above max_rps ({self.sweep.max_rps:g}), which passes")
        return SearchResult(
            rate_rps=None if confirmed is None else self.passing,
            highest_passing_rps=self.passing,
            lowest_failing_rps=self.failing,
            bracket=bracket,
            backoffs=self.backoffs,
            windows=shown.windows if shown else (),
            misses=self.failed.misses if self.failed is not None and confirmed is None and invalid is None else (),
            invalid=invalid.invalid if invalid else (),
            notes=tuple(self.notes),
        )


@dataclass(slots=True)
class _Fixed:
    """Listed rates, each measured with all repeats; none is searched."""

    measurement: MeasurementSettings
    passed: _Verdict | None = None
    rate_rps: float | None = None
    failed: _Verdict | None = None
    invalid: _Verdict | None = None
    notes: list[str] = field(default_factory=list)

    def run(self, rates: tuple[float, ...]) -> Search:
        """Measure the rates upwards; an invalid one only counts if no higher rate passes."""
        for rate_rps in rates:
            try:
                verdict = yield from _probe(_plan("fixed", rate_rps, self.measurement))
            except _Invalid as stop:
                self.invalid = stop.verdict
                self.notes.append(f"{rate_rps:g} req/s could not be measured: {stop.verdict.invalid[0]}")
                if any(reason.code in CLIENT_CODES | {"engine_died"} for reason in stop.verdict.invalid):
                    break
                continue
            if verdict.passes:
                self.passed, self.rate_rps, self.invalid = verdict, rate_rps, None
            else:
                self.failed = verdict
        return self._result()

    def _result(self) -> SearchResult:
        rate_rps = None if self.invalid else self.rate_rps
        shown = (self.invalid or self.passed or self.failed) if rate_rps is None else self.passed
        return SearchResult(
            rate_rps=rate_rps,
            highest_passing_rps=self.rate_rps,
            lowest_failing_rps=None,
            bracket="fixed",
            backoffs=0,
            windows=shown.windows if shown else (),
            misses=self.failed.misses if self.failed is not None and rate_rps is None and not self.invalid else (),
            invalid=self.invalid.invalid if self.invalid else (),
            notes=tuple(self.notes),
        )

"""Drives the search with a loader: plans probes, carries them out, judges their windows, keeps the record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from pytest_tokenwatt.errors import LoadError
from pytest_tokenwatt.metrics.client import PrefixTokens, WindowRules
from pytest_tokenwatt.metrics.goodput import aggregate
from pytest_tokenwatt.metrics.percentiles import needed_requests
from pytest_tokenwatt.metrics.samples import LatencySamples
from pytest_tokenwatt.metrics.search import ProbeOutcome, ProbePlan, Search, SearchResult, search
from pytest_tokenwatt.metrics.settings import MeasurementSettings, SweepSettings
from pytest_tokenwatt.metrics.stability import is_level
from pytest_tokenwatt.metrics.watch import SloWatch
from pytest_tokenwatt.metrics.window import judge_run, stop_reason, too_few, window_indices
from pytest_tokenwatt.records import GoodputRecord, Loader, LoadPlan, LoadRun, Reason, WindowResult

MakePlan: TypeAlias = Callable[[ProbePlan, int], LoadPlan]
OnRun: TypeAlias = Callable[[ProbePlan, LoadRun, Sequence[WindowResult]], Sequence[WindowResult]]

ESTIMATED = (
    "the server tells neither token ids nor a running count: tokens of a chunk are equal shares of the final usage, "
    "which nothing else confirms"
)

_SPARE = 1.02
_FIT_TRIES = 12


def measure_goodput(
    loader: Loader,
    make_plan: MakePlan,
    *,
    scenario: str,
    sweep: SweepSettings,
    measurement: MeasurementSettings,
    rules: WindowRules,
    at_rps: float | None = None,
    observe: Callable[[WindowResult], None] | None = None,
    on_run: OnRun | None = None,
    prefix_tokens: Callable[[], PrefixTokens | None] | None = None,
) -> GoodputRecord:
    """Find and confirm the highest rate that meets ``rules.bounds``, or measure the fixed rates.

    ``make_plan(probe, number)`` lays out a probe; ``number`` counts probes from 0 and makes labels unique. It may be
    called several times with a growing ``probe.window_s`` until the windows hold the requests that their percentile
    needs. All windows of a plan replay one schedule, which the intervals of pooled percentiles take into account.

    ``on_run`` is told of every run and returns its judged windows with what it knows of them besides (the raw file,
    power); ``observe`` is shown every judged window; ``prefix_tokens`` is asked behind each run how the server's
    prefix-cache counters grew during it.
    A ``LoadError`` ends the measurement as invalid, with what is known; any other exception passes through.
    """
    conduct = _Conduct(loader, make_plan, rules, observe, on_run, prefix_tokens)
    result = conduct.follow(search(sweep, measurement, at_rps))
    return aggregate(
        scenario=scenario,
        mode="fixed" if result.bracket == "fixed" else "search",
        bounds=rules.bounds,
        repeats=measurement.repeats,
        result=result,
        samples=[conduct.samples[window.label] for window in result.windows],
        windows=conduct.windows,
        notes=conduct.notes,
    )


def fit_plan(make_plan: MakePlan, probe: ProbePlan, number: int, needed: int) -> LoadPlan | Reason:
    """The probe's plan, its windows lengthened until each holds ``needed`` planned requests.

    A ``Reason`` (``too_few_requests``) when ``probe.max_window_s`` does not suffice.
    """
    planned = 0
    for _ in range(_FIT_TRIES):
        plan = make_plan(probe, number)
        planned = min(len(window_indices(plan, window)) for window in range(plan.windows))
        if planned >= needed:
            return plan
        if probe.window_s >= probe.max_window_s:
            break
        longer_s = probe.window_s * _SPARE * needed / max(planned, 1)
        probe = replace(probe, window_s=min(longer_s, probe.max_window_s))
    return too_few(planned, needed)


@dataclass(slots=True)
class _Conduct:
    """Carries out probes and remembers what they gave."""

    loader: Loader
    make_plan: MakePlan
    rules: WindowRules
    observe: Callable[[WindowResult], None] | None
    on_run: OnRun | None
    prefix_tokens: Callable[[], PrefixTokens | None] | None
    windows: list[WindowResult] = field(default_factory=list)
    samples: dict[str, LatencySamples] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    number: int = 0

    def follow(self, steps: Search) -> SearchResult:
        """Carry out what the search asks for until it ends."""
        probe = next(steps)
        while True:
            outcome = self._carry_out(probe)
            try:
                probe = steps.send(outcome)
            except StopIteration as stop:
                result: SearchResult = stop.value
                return result

    def _carry_out(self, probe: ProbePlan) -> ProbeOutcome:
        bounds = self.rules.bounds
        needed = max((needed_requests(bound.percentile) for bound in bounds), default=1)
        plan = fit_plan(self.make_plan, probe, self.number, needed)
        self.number += 1
        if isinstance(plan, Reason):
            return ProbeOutcome((), (plan,))
        try:
            run = self.loader.run(plan, SloWatch(plan, bounds, probe.kind))
        except LoadError as error:
            return ProbeOutcome((), (Reason(error.reason, str(error)),))
        if probe.kind != "search" and run.spans and not _was_level(run):
            self.notes.append(f"{plan.label}: requests in flight still rose at the end of the warm-up")
        return self._judge(probe, run)

    def _judge(self, probe: ProbePlan, run: LoadRun) -> ProbeOutcome:
        prefix = self.prefix_tokens() if self.prefix_tokens is not None else None
        judged = judge_run(run, probe.kind, self.rules, prefix)
        results: Sequence[WindowResult] = [window.result for window in judged]
        if self.on_run is not None:
            results = self.on_run(probe, run, results)
        for window, result in zip(judged, results, strict=True):
            self.samples[result.label] = window.samples
            self.windows.append(result)
            if self.observe is not None:
                self.observe(result)
        self._note_estimates(run)
        unmeasured = () if judged else (stop_reason(run.stop),)
        return ProbeOutcome(tuple(results), unmeasured)

    def _note_estimates(self, run: LoadRun) -> None:
        """Say once that the tokens of chunks are shares of a count that only the end of a stream told."""
        if any(record.tokens_estimated for record in run.requests) and ESTIMATED not in self.notes:
            self.notes.append(ESTIMATED)


def _was_level(run: LoadRun) -> bool:
    """Whether the load was level when its windows began, also where the warm-up was too short to be asked."""
    start_s = run.spans[0].start_s
    return run.warm_level or is_level(start_s, [reading for reading in run.in_flight if reading.at_s <= start_s])

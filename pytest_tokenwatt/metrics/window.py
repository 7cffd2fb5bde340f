"""Judges the windows of one stretch of load: latencies of requests scheduled in them, tokens delivered in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pytest_tokenwatt.metrics.bounds import Outcome, Tally, describe_miss, tally
from pytest_tokenwatt.metrics.client import PrefixTokens, WindowRules, broken_workers, client_health, client_reasons
from pytest_tokenwatt.metrics.delivery import Delivery
from pytest_tokenwatt.metrics.latency import failed, unfinished
from pytest_tokenwatt.metrics.percentiles import Floats, needed_requests
from pytest_tokenwatt.metrics.samples import LatencySamples, percentiles, take_samples
from pytest_tokenwatt.metrics.stability import Stability, judge_stability
from pytest_tokenwatt.records import LoadPlan, LoadRun, Reason, RequestRecord, WindowResult, WindowSpan

MEASURED = "measured"
_CUT = {
    "engine_died": "the engine died during this load",
    "deadline": "the load ran into its deadline before the verdict was certain",
}


@dataclass(frozen=True, slots=True, eq=False)
class JudgedWindow:
    """A window's result and the samples it came from, for pooling over repeats."""

    result: WindowResult
    samples: LatencySamples


def window_indices(plan: LoadPlan, window: int) -> range:
    """The indices of the measured schedule whose requests are scheduled in a window (from 0)."""
    edges = np.array([window, window + 1]) * plan.window_s
    first, end = np.searchsorted(np.asarray(plan.measured.offset_s), edges)
    return range(int(first), int(end))


def judge_run(
    run: LoadRun, kind: str, rules: WindowRules, prefix: PrefixTokens | None = None
) -> tuple[JudgedWindow, ...]:
    """Judge every window that had begun when the load ended.

    A window that neither passed nor failed, with no other failure to explain why the load stopped, is invalid
    (``cut_short``, or ``engine_died``).
    """
    scene = _Scene(run, kind, rules, prefix)
    begun = [number for number, span in enumerate(run.spans) if span.start_s < run.ended_s]
    judged = [scene.judge(number) for number in begun]
    explained = any(window.result.misses for window in judged) and run.stop not in _CUT
    return tuple(window if explained else _undecided(window, run.stop) for window in judged)


def _undecided(window: JudgedWindow, stop: str) -> JudgedWindow:
    """The window, invalid unless it passes or is invalid for a better reason."""
    result = window.result
    if result.passes or (result.invalid and stop not in _CUT):
        return window
    return replace(window, result=replace(result, invalid=(*result.invalid, stop_reason(stop))))


def stop_reason(stop: str) -> Reason:
    """Why a load that ended by ``stop`` decided nothing."""
    if stop in _CUT:
        return Reason(stop, _CUT[stop])
    return Reason("cut_short", f"the load ended ({stop or 'no reason given'}) before the verdict was certain")


@dataclass(frozen=True, slots=True, eq=False)
class _View:
    """One window: what was planned of it, the part that was seen, the requests scheduled in it and their samples."""

    span: WindowSpan
    seen: WindowSpan
    planned: range
    records: Sequence[RequestRecord]
    samples: LatencySamples

    @property
    def complete(self) -> bool:
        """Whether the load lasted to the window's end."""
        return self.seen.end_s >= self.span.end_s

    @property
    def offered(self) -> int:
        """How many requests were due; of a window that was cut short, those that are on record."""
        return len(self.planned) if self.complete else len(self.records)


class _Scene:
    """What all windows of one run share."""

    def __init__(self, run: LoadRun, kind: str, rules: WindowRules, prefix: PrefixTokens | None) -> None:
        self._run = run
        self._kind = kind
        self._rules = rules
        self._prefix = prefix
        self._measured = {record.index: record for record in run.requests if record.phase == MEASURED}
        self._delivery = Delivery(run.requests, rules.bounds)
        self._arrived, self._answered, self._ended = _presence(run.requests)

    def judge(self, number: int) -> JudgedWindow:
        """Judge one window, up to the end of the load if that came first."""
        view = self._view(number)
        run, seen, records = self._run, view.seen, view.records
        tallies = self._tallies(view)
        stability = self._stability(view)
        client = client_health(run, seen, records, view.offered, self._rules, self._prefix)
        tokens, good = self._delivery.between(seen)
        counted = not client.usage_missing
        misses = _misses(tallies, view.samples, records, stability)
        met = all(count.outcome is Outcome.MET for count in tallies)
        result = WindowResult(
            kind=self._kind,
            label=run.plan.label if run.plan.windows == 1 else f"{run.plan.label}-{number + 1}",
            rate_rps=run.plan.rate_rps,
            start_s=seen.start_s,
            end_s=seen.end_s,
            planned=len(view.planned),
            ok=sum(record.ok for record in records),
            failures=_failures(records),
            failure_example=_example(records),
            percentiles=percentiles(view.samples, self._rules.bounds),
            stable=stability is None or stability.stable,
            waiting_growth=None if stability is None else stability.trend.growth,
            output_tokens=tokens,
            good_tokens=good,
            output_tok_s=tokens / seen.length_s if counted else None,
            goodput_tok_s=good / seen.length_s if counted else None,
            passes=met and not misses and view.complete and any(record.ok for record in records),
            misses=misses,
            decided="" if view.complete else run.stop,
            invalid=(
                *client_reasons(client, self._rules),
                *self._size(len(view.planned), tallies),
                *broken_workers(run.workers),
            ),
            client=client,
        )
        return JudgedWindow(result, view.samples)

    def _view(self, number: int) -> _View:
        run = self._run
        span, planned = run.spans[number], window_indices(run.plan, number)
        records = [record for index in planned if (record := self._measured.get(index)) is not None]
        return _View(
            span=span,
            seen=WindowSpan(span.start_s, min(span.end_s, run.ended_s)),
            planned=planned,
            records=records,
            samples=take_samples(records, self._rules.bounds, run.ended_s),
        )

    def _tallies(self, view: _View) -> tuple[Tally, ...]:
        missing = [index for index in view.planned if index not in self._measured]
        unscheduled = [self._run.plan.measured.output_tokens[index] for index in missing]
        ended_s = self._run.ended_s
        return tuple(tally(bound, view.records, view.samples, unscheduled, ended_s) for bound in self._rules.bounds)

    def _stability(self, view: _View) -> Stability | None:
        """``None`` when less than half of the window was seen: short stretches drift by themselves."""
        if view.seen.length_s < view.span.length_s / 2:
            return None
        return judge_stability(self._arrived, self._answered, self._ended, view.seen)

    def _size(self, planned: int, tallies: Sequence[Tally]) -> tuple[Reason, ...]:
        needed = max((needed_requests(bound.percentile) for bound in self._rules.bounds), default=1)
        void = [count.bound.metric.upper() for count in tallies if count.outcome is Outcome.VOID]
        if planned < needed:
            return (too_few(planned, needed),)
        return (Reason("too_few_requests", f"no request of the window has a {void[0]}"),) if void else ()


def too_few(planned: int, needed: int) -> Reason:
    """The reason of a window that cannot hold its percentile."""
    text = f"the window holds {planned} planned requests, its SLO percentile needs {needed}"
    return Reason("too_few_requests", f"{text}; lengthen the window or ask for a lower percentile")


def _presence(requests: Sequence[RequestRecord]) -> tuple[Floats, Floats, Floats]:
    """Scheduled, answered (first token, or the end without one) and ended instants; ``inf`` where there is none."""
    ended = np.array([np.inf if unfinished(r) or r.end_s is None else r.end_s for r in requests], dtype=np.float64)
    first = np.array([np.inf if r.first_token_s is None else r.first_token_s for r in requests], dtype=np.float64)
    arrived = np.array([r.scheduled_s for r in requests], dtype=np.float64)
    return arrived, np.minimum(first, ended), ended


def _failures(records: Sequence[RequestRecord]) -> dict[str, int]:
    counts = Counter(_class(record) for record in records if failed(record))
    return dict(sorted(counts.items()))


def _class(record: RequestRecord) -> str:
    return "no_tokens" if record.error is None else record.error.value


def _example(records: Sequence[RequestRecord]) -> str | None:
    return next((r.error_message for r in records if failed(r) and r.error_message), None)


def _misses(
    tallies: Sequence[Tally],
    samples: LatencySamples,
    records: Sequence[RequestRecord],
    stability: Stability | None,
) -> tuple[str, ...]:
    lines = [describe_miss(count, samples) for count in tallies if count.outcome is Outcome.MISSED]
    failures = _failures(records)
    if lines and failures:
        classes = ", ".join(f"{name} {count}" for name, count in failures.items())
        example = _example(records)
        lines.append(f"{sum(failures.values())} requests failed: {classes}" + (f" ({example})" if example else ""))
    if stability is not None and not stability.stable:
        growth = f"requests without a first token grew by {stability.trend.growth:.0f}"
        lines.append(f"unstable: {growth}, {stability.limit:.0f} allowed")
    return tuple(lines)

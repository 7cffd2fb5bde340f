"""What one closed-loop run of a profile gave: its rate, its latencies, and whether it is to be believed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from pytest_tokenwatt.metrics.client import (
    PrefixTokens,
    WindowRules,
    broken_workers,
    client_reasons,
    closed_health,
)
from pytest_tokenwatt.metrics.delivery import delivered_tokens
from pytest_tokenwatt.metrics.held import held_share
from pytest_tokenwatt.metrics.latency import e2e_from_send_s, failed, tpot_s, ttft_from_send_s
from pytest_tokenwatt.metrics.percentiles import Sample
from pytest_tokenwatt.metrics.window import MEASURED
from pytest_tokenwatt.records import (
    ClientHealth,
    ClosedPlan,
    ClosedRun,
    ErrorClass,
    Reason,
    RequestRecord,
    WindowSpan,
)
from pytest_tokenwatt.records.profiles import EnginePeaks, ProfileRun

MAX_FAILED_SHARE = 0.01
MIN_HELD_SHARE = 0.99
HELD_FROM_MS = 1000.0
"""Median length of a request from which on a lower held share makes a run invalid.

The gap between an answer's end and the next sending is the client's, whatever the length: of shorter requests it is a
larger share, and a note.
"""

_DONE, _GIVEN_UP = "done", "too_many_failures"
_STOPS = {
    "engine_died": "the engine died during this run",
    "deadline": "the run met its deadline before its last request had ended",
}


def profile_run(
    run: ClosedRun, peaks: EnginePeaks, *, ignore_eos: bool, label: str, prefix: PrefixTokens | None = None
) -> ProfileRun:
    """The figures of one repeat over ``run.span``.

    Tokens count by the instant they were delivered, whichever request they belong to; latencies start at the sending,
    since a closed loop has no schedule, and a median that falls on a failed request is ``None``. ``prefix`` is the
    growth of the server's prefix-cache counters for servers whose usage does not tell. A run that was stopped has
    neither window nor rate; one with a request without usage has no rate.
    """
    measured = [record for record in run.requests if record.phase == MEASURED]
    span = run.span if run.span is not None and run.span.length_s > 0 else None
    rules = WindowRules((), ignore_eos)
    client = None if span is None else closed_health(run.workers, span, _within(run, span), rules, prefix)
    tokens = 0 if span is None else delivered_tokens(run.requests, span)
    held = None if span is None else held_share(run.requests, run.plan.concurrency, span)
    e2e_ms = _median_ms(measured, e2e_from_send_s)
    loose = None if run.plan.at_once else _concurrency_not_held(run.plan, held)
    long = e2e_ms is not None and e2e_ms >= HELD_FROM_MS
    return ProfileRun(
        label=label,
        window_s=None if span is None else span.length_s,
        output_tokens=tokens,
        output_tok_s=None if span is None or client is None or client.usage_missing else tokens / span.length_s,
        requests=len(measured),
        failed=sum(failed(record) for record in measured),
        held_share=held,
        client_cpu_share=None if client is None else client.cpu_share_max,
        ttft_p50_ms=_median_ms(measured, ttft_from_send_s),
        tpot_p50_ms=_median_ms(measured, tpot_s),
        e2e_p50_ms=e2e_ms,
        peaks=peaks,
        invalid=(
            *_stopped(run, span),
            *broken_workers(run.workers),
            *(client_reasons(client, rules) if client is not None else ()),
            *_failures(measured),
            *((loose,) if loose is not None and long else ()),
        ),
        notes=(*((loose.text,) if loose is not None and not long else ()), *_unknown_cost(client)),
    )


def profile_rate(runs: Sequence[ProfileRun]) -> float | None:
    """Output tokens over seconds, both summed over repeats; ``None`` without one, or when any is invalid."""
    if not runs or any(run.invalid or run.output_tok_s is None for run in runs):
        return None
    return sum(run.output_tokens for run in runs) / sum(run.window_s or 0.0 for run in runs)


def _within(run: ClosedRun, span: WindowSpan) -> list[RequestRecord]:
    """All requests that were in flight at some moment of the window, those around the measured ones included."""
    return [
        record
        for record in run.requests
        if record.sent_s is not None
        and record.sent_s <= span.end_s
        and (record.end_s is None or record.end_s >= span.start_s)
    ]


def _median_ms(records: Sequence[RequestRecord], latency: Callable[[RequestRecord], float | None]) -> float | None:
    values = [value for record in records if (value := latency(record)) is not None]
    median_s = Sample.of(values).percentile(50)
    return None if median_s is None or math.isinf(median_s) else median_s * 1e3


def _stopped(run: ClosedRun, span: WindowSpan | None) -> Iterator[Reason]:
    if run.stop == _DONE and span is not None:
        return
    ended = "the run was stopped before its last request had ended"
    if run.stop == _DONE:
        yield Reason("cut_short", "no measured request was seen from its sending to its end")
    elif run.stop == _GIVEN_UP:
        broken = [record for record in run.requests if failed(record) and record.error is not ErrorClass.ABORTED]
        told = f": {_told(broken)}" if broken else ""
        yield Reason(run.stop, f"too many requests failed, so that the run was given up{told}")
    elif run.stop.isidentifier():
        yield Reason(run.stop, _STOPS.get(run.stop, ended))
    else:
        yield Reason("cut_short", f"{ended} ({run.stop or 'no reason given'})")


def _failures(measured: Sequence[RequestRecord]) -> Iterator[Reason]:
    broken = [record for record in measured if failed(record)]
    if len(broken) <= MAX_FAILED_SHARE * len(measured):
        return
    text = f"{len(broken)} of {len(measured)} requests failed, {MAX_FAILED_SHARE:.0%} is allowed"
    yield Reason("requests_failed", f"{text}: {_told(broken)}")


def _told(broken: Sequence[RequestRecord]) -> str:
    """The kinds of failures, and what one server said."""
    kinds = ", ".join(sorted({record.error.value if record.error else "no_tokens" for record in broken}))
    return kinds + next((f" ({record.error_message})" for record in broken if record.error_message), "")


def _concurrency_not_held(plan: ClosedPlan, held: float | None) -> Reason | None:
    if held is None or held >= MIN_HELD_SHARE:
        return None
    text = f"{plan.concurrency} requests were in flight during {held:.1%} of the window"
    return Reason("concurrency_not_held", f"{text}, {MIN_HELD_SHARE:.0%} are expected of requests of a second or more")


def _unknown_cost(client: ClientHealth | None) -> Iterator[str]:
    if client is not None and client.cpu_share_max is None:
        yield "what the load workers cost is not known: their traces cover less than half of the window"

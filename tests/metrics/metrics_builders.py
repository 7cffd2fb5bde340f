"""Requests, runs and a toy engine for the tests of metrics: no clock, no sockets, all instants by hand."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pytest_tokenwatt.metrics.latency import progress
from pytest_tokenwatt.metrics.search import ProbePlan
from pytest_tokenwatt.records import (
    CONTINUE,
    ClockAnchor,
    Decision,
    ErrorClass,
    InFlight,
    LoadPlan,
    LoadRun,
    LoadWatch,
    RequestRecord,
    Schedule,
    WindowSpan,
)


def request(
    scheduled_s: float = 0.0,
    *,
    index: int = 0,
    ttft_s: float = 0.1,
    tpot_s: float = 0.02,
    tokens: int = 11,
    phase: str = "measured",
) -> RequestRecord:
    """A request that went well, one token a chunk."""
    first_s = scheduled_s + ttft_s
    stamps = [first_s + number * tpot_s for number in range(tokens)]
    return RequestRecord(
        phase=phase,
        index=index,
        scheduled_s=scheduled_s,
        planned_input_tokens=100,
        planned_output_tokens=tokens,
        sent_s=scheduled_s,
        first_token_s=first_s,
        last_token_s=stamps[-1],
        end_s=stamps[-1],
        chunk_s=array("d", stamps),
        chunk_tokens=array("q", [1] * tokens),
        prompt_tokens=100,
        output_tokens=tokens,
        finish_reason="length",
        status=200,
    )


def chunked(scheduled_s: float, chunks: Sequence[tuple[float, int]]) -> RequestRecord:
    """A request whose chunks came at ``scheduled_s`` + offset with that many tokens."""
    stamps = [scheduled_s + offset for offset, _ in chunks]
    tokens = [count for _, count in chunks]
    return replace(
        request(scheduled_s),
        first_token_s=stamps[0],
        last_token_s=stamps[-1],
        end_s=stamps[-1],
        chunk_s=array("d", stamps),
        chunk_tokens=array("q", tokens),
        planned_output_tokens=sum(tokens),
        output_tokens=sum(tokens),
    )


def broken(record: RequestRecord, error: ErrorClass = ErrorClass.HTTP, message: str = "HTTP 500") -> RequestRecord:
    """The same request, failed before its first token."""
    return replace(
        record,
        first_token_s=None,
        last_token_s=None,
        chunk_s=array("d"),
        chunk_tokens=array("q"),
        output_tokens=None,
        prompt_tokens=None,
        error=error,
        error_message=message,
    )


def cut(record: RequestRecord, at_s: float) -> RequestRecord:
    """The record as our own abort at ``at_s`` leaves it; one that had ended stays as it is."""
    if record.end_s is not None and record.end_s <= at_s:
        return record
    kept = bisect_right(record.chunk_s, at_s)
    stamps = record.chunk_s[:kept]
    return replace(
        record,
        sent_s=record.sent_s if record.sent_s is not None and record.sent_s <= at_s else None,
        first_token_s=stamps[0] if stamps else None,
        last_token_s=stamps[-1] if stamps else None,
        end_s=at_s,
        chunk_s=stamps,
        chunk_tokens=record.chunk_tokens[:kept],
        output_tokens=None,
        finish_reason=None,
        error=ErrorClass.ABORTED,
        error_message=None,
    )


def schedule(offsets: Sequence[float], tokens: int | Sequence[int] = 11) -> Schedule:
    """A schedule with equal or given output lengths."""
    outputs = [tokens] * len(offsets) if isinstance(tokens, int) else list(tokens)
    return Schedule(array("d", offsets), array("q", [100] * len(offsets)), array("q", outputs), 1)


def plan(
    offsets: Sequence[float],
    *,
    window_s: float,
    windows: int = 1,
    rate_rps: float = 1.0,
    tokens: int | Sequence[int] = 11,
    label: str = "probe",
    warmup: Schedule | None = None,
) -> LoadPlan:
    """A plan with this measured schedule."""
    return LoadPlan(
        label=label,
        rate_rps=rate_rps,
        warmup=warmup or schedule([]),
        measured=schedule(offsets, tokens),
        warmup_s=0.0,
        warmup_max_s=0.0,
        window_s=window_s,
        windows=windows,
        request_timeout_s=60.0,
        max_concurrency=1000,
    )


def run_of(
    load: LoadPlan,
    requests: Sequence[RequestRecord],
    *,
    start_s: float = 0.0,
    ended_s: float | None = None,
    stop: str = "decided",
    capped: int = 0,
) -> LoadRun:
    """A run whose first window begins at ``start_s``."""
    spans = tuple(
        WindowSpan(start_s + k * load.window_s, start_s + (k + 1) * load.window_s) for k in range(load.windows)
    )
    return LoadRun(
        plan=load,
        spans=spans,
        requests=tuple(requests),
        in_flight=(),
        workers=(),
        stop=stop,
        warm_level=True,
        capped=capped,
        anchor=ClockAnchor(0.0, 0.0),
        started_s=start_s,
        ended_s=spans[-1].end_s + 30.0 if ended_s is None else ended_s,
    )


def poisson(rate_rps: float, span_s: float, seed: int) -> list[float]:
    """Arrivals in [0, ``span_s``): the i-th gap is the i-th of the seed, scaled."""
    gaps = np.random.default_rng(seed).standard_exponential(int(rate_rps * span_s * 2) + 100) / rate_rps
    arrivals = np.cumsum(gaps)
    return [float(arrival) for arrival in arrivals[arrivals < span_s]]


def toy_plan(probe: ProbePlan, number: int, *, tail_s: float = 40.0, tokens: int = 40) -> LoadPlan:
    """A plan whose windows replay one draw."""
    window = poisson(probe.rate_rps, probe.window_s, 7 + probe.attempt)
    tail = poisson(probe.rate_rps, tail_s, 99)
    offsets = [k * probe.window_s + offset for k in range(probe.windows) for offset in window]
    offsets += [probe.windows * probe.window_s + offset for offset in tail]
    return plan(
        offsets,
        window_s=probe.window_s,
        windows=probe.windows,
        rate_rps=probe.rate_rps,
        tokens=tokens,
        label=f"{probe.kind}-{number}",
    )


@dataclass(slots=True)
class ToyLoader:
    """An engine of one formula: TPOT grows with the rate and reaches ``tpot_at_capacity_s`` at ``capacity_rps``.

    Asks the watch every second of its own time, aborts when told to, and remembers its plans.
    """

    capacity_rps: float
    tpot_at_capacity_s: float = 0.05
    ttft_s: float = 0.1
    lag_above_rps: float = math.inf
    dies: bool = False
    plans: list[LoadPlan] = field(default_factory=list)

    def run(self, load: LoadPlan, watch: LoadWatch) -> LoadRun:
        """Serve the whole schedule, then replay it to the watch second by second."""
        self.plans.append(load)
        tpot_s = self.tpot_at_capacity_s * load.rate_rps / self.capacity_rps
        late_s = 0.05 if load.rate_rps > self.lag_above_rps else 0.0
        served = []
        for index, offset in enumerate(load.measured.offset_s):
            tokens = load.measured.output_tokens[index]
            whole = request(offset, index=index, ttft_s=self.ttft_s, tpot_s=tpot_s, tokens=tokens)
            served.append(replace(whole, sent_s=offset + late_s))
        end_s = load.windows * load.window_s
        run = run_of(load, served, ended_s=end_s)
        decision, now_s = CONTINUE, 0.0
        while not decision.stop:
            now_s += 1.0
            seen = [progress(cut(record, now_s)) for record in served if record.scheduled_s <= now_s]
            decision = watch.decide(now_s, run.spans, seen)
            if self.dies and now_s > end_s / 2:
                decision = Decision(stop=True, why="engine_died", abort=True)
            assert now_s < end_s + 60.0, "the watch never stopped"
        known = [record for record in served if record.scheduled_s <= now_s]
        if decision.abort:
            known = [cut(record, now_s) for record in known]
        return replace(run, requests=tuple(known), ended_s=now_s, stop=decision.why)


def readings(counts: Sequence[float], every_s: float = 1.0) -> list[InFlight]:
    """In-flight readings at a fixed distance."""
    return [InFlight(number * every_s, round(count), 0) for number, count in enumerate(counts)]

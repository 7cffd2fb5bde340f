"""Closed loops by hand, and records of profiles with given rates."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace

from metrics_builders import request

from pytest_tokenwatt.metrics.profile import profile_rate
from pytest_tokenwatt.records import ClockAnchor, ClosedPlan, ClosedRun, Reason, RequestRecord, WindowSpan, WorkerTrace
from pytest_tokenwatt.records.profiles import EnginePeaks, PeakMemory, ProfileRecord, ProfileRun

WINDOW_S = 100.0
NO_PEAKS = EnginePeaks()
NO_MEMORY = PeakMemory()


def closed_plan(concurrency: int, requests: int, tokens: int = 100, *, at_once: bool = False) -> ClosedPlan:
    return ClosedPlan("serve-r0", concurrency, concurrency, requests, 100, tokens, 1, 60.0, 3, at_once=at_once)


def closed_loop(
    concurrency: int = 2,
    rounds: int = 10,
    *,
    lasts_s: float = 2.0,
    gap_s: float = 0.0,
    tokens: int = 100,
    workers: Sequence[WorkerTrace] = (),
) -> ClosedRun:
    """Slots that answer one after the other, each request ``lasts_s`` long and ``gap_s`` before the next.

    The first round warms up, the last one is the tail, cut by our own abort when the last measured one ends. Slot k
    starts k / ``concurrency`` of a request later, so that the slots do not end together.
    """
    found: list[RequestRecord] = []
    for round_ in range(rounds + 2):
        phase = "warmup" if round_ == 0 else "tail" if round_ == rounds + 1 else "measured"
        for slot in range(concurrency):
            sent_s = slot * lasts_s / concurrency + round_ * (lasts_s + gap_s)
            index = (round_ - (phase == "measured")) * concurrency + slot if phase != "tail" else slot
            step_s = lasts_s / tokens
            found.append(request(sent_s, index=index, ttft_s=step_s, tpot_s=step_s, tokens=tokens, phase=phase))
    measured = [record for record in found if record.phase == "measured"]
    span = WindowSpan(min(r.sent_s or 0.0 for r in measured), max(r.end_s or 0.0 for r in measured))
    return ClosedRun(
        plan=closed_plan(concurrency, rounds * concurrency, tokens),
        span=span,
        requests=tuple(record if record.phase != "tail" else cut_at(record, span.end_s) for record in found),
        workers=tuple(workers),
        stop="done",
        anchor=ClockAnchor(0.0, 0.0),
        started_s=0.0,
        ended_s=span.end_s,
    )


def cut_at(record: RequestRecord, at_s: float) -> RequestRecord:
    """The record of a request that still runs at ``at_s``."""
    kept = sum(stamp <= at_s for stamp in record.chunk_s)
    return replace(
        record,
        first_token_s=record.chunk_s[0] if kept else None,
        last_token_s=record.chunk_s[kept - 1] if kept else None,
        end_s=None,
        chunk_s=record.chunk_s[:kept],
        chunk_tokens=array("q", record.chunk_tokens[:kept]),
        output_tokens=None,
    )


def repeat(
    rate: float | None = 100.0,
    peaks: EnginePeaks = NO_PEAKS,
    *,
    window_s: float = WINDOW_S,
    invalid: tuple[Reason, ...] = (),
) -> ProfileRun:
    """A repeat with this output rate."""
    return ProfileRun(
        label="serve-r0",
        window_s=window_s,
        output_tokens=0 if rate is None else round(rate * window_s),
        output_tok_s=rate,
        requests=8,
        failed=0,
        held_share=1.0,
        client_cpu_share=0.1,
        peaks=peaks,
        invalid=invalid,
    )


def profile(
    rates: Sequence[float | None] | Sequence[ProfileRun],
    paired: Sequence[float] = (),
    *,
    memory: PeakMemory = NO_MEMORY,
    name: str = "serve",
    invalid: tuple[Reason, ...] = (),
) -> ProfileRecord:
    """A profile whose repeats had these output rates, or are these."""
    runs = tuple(each if isinstance(each, ProfileRun) else repeat(each) for each in rates)
    rate = profile_rate(runs)
    return ProfileRecord(
        name=name,
        concurrency=2,
        input_tokens=100,
        output_tokens=100,
        requests=8,
        runs=runs,
        output_tok_s=rate,
        memory=memory,
        load_sha256="ab",
        paired=tuple(repeat(each) for each in paired),
        invalid=invalid,
    )

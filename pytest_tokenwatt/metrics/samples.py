"""The latency samples of a window, and the percentiles that reports and gates see of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_tokenwatt.metrics.certainty import Standing, standing
from pytest_tokenwatt.metrics.latency import (
    JUDGED_TOKENS,
    e2e_s,
    itl_samples,
    progress,
    tokens_received,
    tpot_s,
    ttft_from_send_s,
    ttft_s,
    unfinished,
)
from pytest_tokenwatt.metrics.percentiles import Sample, needed_requests
from pytest_tokenwatt.records import Percentile, RequestRecord, SloBound

METRICS = ("ttft", "tpot", "itl", "e2e")
REPORTED = (50.0, 90.0, 95.0, 99.0)


@dataclass(frozen=True, slots=True, eq=False)
class LatencySamples:
    """Samples in seconds of the requests scheduled in a window, by metric; what is open is left out.

    ``open_e2e`` holds the ages of unfinished requests, which their end-to-end latency will exceed.
    """

    ttft: Sample
    tpot: Sample
    itl: Sample
    e2e: Sample
    ttft_from_send: Sample
    open_e2e: Sample

    def of(self, metric: str) -> Sample:
        """The sample of ``ttft``, ``tpot``, ``itl`` or ``e2e``."""
        by_name = {"ttft": self.ttft, "tpot": self.tpot, "itl": self.itl, "e2e": self.e2e}
        return by_name[metric]

    @classmethod
    def pooled(cls, parts: Sequence[LatencySamples], replicas: int) -> LatencySamples:
        """One sample of all windows; ``replicas`` of them replay one schedule."""

        def pool(pick: Callable[[LatencySamples], Sample]) -> Sample:
            return Sample.pooled([pick(part) for part in parts], replicas)

        return cls(
            ttft=pool(lambda part: part.ttft),
            tpot=pool(lambda part: part.tpot),
            itl=pool(lambda part: part.itl),
            e2e=pool(lambda part: part.e2e),
            ttft_from_send=pool(lambda part: part.ttft_from_send),
            open_e2e=pool(lambda part: part.open_e2e),
        )


def take_samples(records: Sequence[RequestRecord], bounds: Sequence[SloBound], now_s: float) -> LatencySamples:
    """The samples of a window's requests as known at ``now_s``, the end of the load."""

    def known(metric: str, latency: Callable[[RequestRecord], float | None]) -> Sample:
        asked = [bound for bound in bounds if bound.metric == metric]
        values = [_value(record, latency(record), asked, now_s) for record in records]
        return Sample.of([value for value in values if value is not None])

    ages = [horizon_s(record, now_s) - record.scheduled_s for record in records if unfinished(record)]
    return LatencySamples(
        ttft=known("ttft", ttft_s),
        tpot=known("tpot", tpot_s),
        itl=_itl(records),
        e2e=known("e2e", e2e_s),
        ttft_from_send=known("", ttft_from_send_s),
        open_e2e=Sample.of(ages),
    )


def horizon_s(record: RequestRecord, now_s: float) -> float:
    """Until when an unfinished request was watched."""
    return now_s if record.end_s is None else record.end_s


def stands(record: RequestRecord, bound: SloBound, now_s: float) -> Standing:
    """The request against a bound, a running one settled by its TPOT so far."""
    return standing(progress(record), bound, record.planned_output_tokens, horizon_s(record, now_s), settle=True)


def _value(record: RequestRecord, value: float | None, asked: Sequence[SloBound], now_s: float) -> float | None:
    """The latency, or +inf of a running request that cannot meet the loosest bound any more."""
    if not unfinished(record) or not asked:
        return value
    loosest = max(asked, key=lambda bound: bound.bound_ms)
    missed = stands(record, loosest, now_s) is Standing.MISSED
    return math.inf if missed and (value is None or value * 1e3 <= loosest.bound_ms) else value


def itl_judged(record: RequestRecord) -> bool:
    """Whether the request's gaps so far are its part in the verdict."""
    return not unfinished(record) or tokens_received(record) >= JUDGED_TOKENS


def _itl(records: Sequence[RequestRecord]) -> Sample:
    parts = [itl_samples(record) for record in records if itl_judged(record)]
    parts = [part for part in parts if len(part[0])]
    if not parts:
        return Sample.of([])
    values = np.concatenate([part[0] for part in parts])
    return Sample.weighted(values, np.concatenate([part[1] for part in parts]), len(parts))


def percentiles(samples: LatencySamples, bounds: Sequence[SloBound]) -> tuple[Percentile, ...]:
    """Every percentile of the SLO, then p50 p90 p95 p99 of each metric.

    One that no SLO asks for has no value when the sample is smaller than 1 / (1 − p), or when requests that are still
    running could change it.
    """
    asked = [_percentile(samples, bound.metric, bound.percentile, bound.bound_ms) for bound in bounds]
    named = {percentile.name for percentile in asked}
    rest = [_percentile(samples, metric, percentile, None) for metric in METRICS for percentile in REPORTED]
    return (*asked, *(percentile for percentile in rest if percentile.name not in named))


def _percentile(samples: LatencySamples, metric: str, percentile: float, bound_ms: float | None) -> Percentile:
    sample = samples.of(metric)
    value = sample.percentile(percentile)
    if bound_ms is None:
        if metric == "e2e" and samples.open_e2e.n:
            value = _unchanged(sample, samples.open_e2e, percentile)
        if sample.n < needed_requests(percentile):
            value = None
    low, high = (None, None) if value is None else sample.interval(percentile)
    finite = value is not None and math.isfinite(value)
    return Percentile(
        metric=metric,
        percentile=percentile,
        value_ms=value * 1e3 if value is not None and finite else None,
        infinite=value is not None and not finite,
        n=sample.n,
        low_ms=None if low is None else low * 1e3,
        high_ms=None if high is None else high * 1e3,
        bound_ms=bound_ms,
    )


def _unchanged(known: Sample, ages: Sample, percentile: float) -> float | None:
    """The percentile if it is the same whether running requests end now or never."""
    never = Sample.of(np.full(ages.n, math.inf, dtype=np.float64))
    soonest = Sample.pooled([known, ages]).percentile(percentile)
    latest = Sample.pooled([known, never]).percentile(percentile)
    return latest if soonest == latest else None


def own_percentile_s(record: RequestRecord, percentile: float) -> float | None:
    """The request's own ITL percentile in seconds; ``None`` without a gap."""
    values, counts = itl_samples(record)
    return Sample.weighted(values, counts, 1).percentile(percentile)

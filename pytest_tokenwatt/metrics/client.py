"""What the client did to the measurement of one window, and whether that makes it invalid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import chdtri

from pytest_tokenwatt.metrics.percentiles import Floats, Sample
from pytest_tokenwatt.records import (
    ClientHealth,
    ErrorClass,
    LoadRun,
    Reason,
    RequestRecord,
    SloBound,
    WindowSpan,
    WorkerTrace,
)

MAX_CPU_SHARE = 0.9
MIN_SENT_SHARE = 0.98
MAX_LENGTH_OFF_SHARE = 0.001
MAX_CACHED_SHARE = 0.01
DISPERSION_TAIL = 0.0005
CLIENT_CODES = frozenset({"schedule_lag", "client_cpu", "offered_shortfall", "concurrency_capped"})
"""Reasons whose cause is the client: a higher rate can only be worse."""


@dataclass(frozen=True, slots=True)
class PrefixTokens:
    """Growth of a server's prefix-cache counters over a run: prompt tokens looked up and found."""

    hits: float
    queries: float


@dataclass(frozen=True, slots=True)
class WindowRules:
    """What a window is judged by: the SLO, whether output lengths are exact, whether the trace shares prefixes."""

    bounds: tuple[SloBound, ...]
    ignore_eos: bool = True
    shared_prefixes: bool = False


def lag_limit_s(bounds: Sequence[SloBound]) -> float:
    """How late sends may be at p99: max(5 ms, 1 % of the TTFT bound), of the lowest one if there are several."""
    return max(0.005, 0.01 * min((bound.bound_ms / 1e3 for bound in bounds if bound.metric == "ttft"), default=0.0))


def dispersion_blocks(n: int) -> int | None:
    """Into how many equal parts ``n`` arrivals are counted, ten to a part on average; ``None`` below 20 arrivals."""
    return None if n < 20 else min(1000, max(5, n // 10))


def dispersion(instants_s: Floats, span: WindowSpan) -> float | None:
    """The Fano factor (variance / mean) of arrival counts in equal parts of a span; 1 for a Poisson process."""
    blocks = dispersion_blocks(len(instants_s))
    if blocks is None:
        return None
    counts, _ = np.histogram(instants_s, bins=blocks, range=(span.start_s, span.end_s))
    return float(counts.var(ddof=1) / counts.mean()) if counts.any() else None


def dispersion_band(blocks: int) -> tuple[float, float]:
    """The 99.9 % band of a Poisson process' Fano factor: chi-square over its ``blocks`` − 1 degrees of freedom."""
    freedom = blocks - 1
    low, high = chdtri(freedom, 1 - DISPERSION_TAIL), chdtri(freedom, DISPERSION_TAIL)
    return float(low / freedom), float(high / freedom)


def cpu_share(trace: WorkerTrace, span: WindowSpan) -> float | None:
    """The CPU share of a worker over a span, ``None`` when its trace covers less than half of it."""
    if len(trace.at_s) < 2:
        return None
    start_s, end_s = max(span.start_s, trace.at_s[0]), min(span.end_s, trace.at_s[-1])
    if end_s - start_s < span.length_s / 2 or end_s <= start_s:
        return None
    used_s = np.interp([start_s, end_s], trace.at_s, trace.cpu_s)
    return float((used_s[1] - used_s[0]) / (end_s - start_s))


def client_health(
    run: LoadRun,
    span: WindowSpan,
    records: Sequence[RequestRecord],
    offered: int,
    rules: WindowRules,
    prefix: PrefixTokens | None,
) -> ClientHealth:
    """The client's figures of a window whose requests are ``records``, out of ``offered`` that were due in it."""
    # A refused connection was tried in time: that is the server's failure, not the client's.
    sent = [record for record in records if record.sent_s is not None or record.error is ErrorClass.CONNECT]
    lag_s = Sample.of([_lag_s(record) for record in sent]).percentile(99)
    return replace(
        closed_health(run.workers, span, records, rules, prefix),
        lag_p99_ms=None if lag_s is None else lag_s * 1e3,
        lag_limit_ms=lag_limit_s(rules.bounds) * 1e3,
        sent=len(sent),
        offered=offered,
        dispersion=dispersion(np.array([record.scheduled_s + _lag_s(record) for record in sent]), span),
        capped=run.capped,
    )


def closed_health(
    workers: Sequence[WorkerTrace],
    span: WindowSpan,
    records: Sequence[RequestRecord],
    rules: WindowRules,
    prefix: PrefixTokens | None,
) -> ClientHealth:
    """The client's figures of a closed loop: no request is due at an instant, so that none is late or missing."""
    finished = [record for record in records if record.ok]
    counted = [record for record in finished if record.output_tokens is not None]
    shares = [share for trace in workers if (share := cpu_share(trace, span)) is not None]
    prompt_tokens, cached_tokens = _cached(finished, prefix)
    return ClientHealth(
        lag_p99_ms=None,
        lag_limit_ms=lag_limit_s(rules.bounds) * 1e3,
        cpu_share_max=max(shares, default=None),
        sent=len(records),
        offered=len(records),
        length_off=sum(_length_off(record, rules.ignore_eos) for record in counted),
        finished=len(finished),
        usage_missing=len(finished) - len(counted),
        prompt_tokens=prompt_tokens,
        cached_tokens=cached_tokens,
        dispersion=None,
        capped=0,
    )


def _lag_s(record: RequestRecord) -> float:
    return (record.sent_s or record.scheduled_s) - record.scheduled_s


def _length_off(record: RequestRecord, exact: bool) -> bool:
    """Whether the server counts another length than it was asked for; above ``max_tokens`` no length is possible."""
    tokens, asked = record.output_tokens or 0, record.planned_output_tokens
    return tokens != asked if exact else tokens > asked


def _cached(finished: Sequence[RequestRecord], prefix: PrefixTokens | None) -> tuple[int, int | None]:
    """Prompt tokens and the cached ones among them: from usage details, else from the server's counters."""
    told = [record for record in finished if record.cached_tokens is not None and record.prompt_tokens is not None]
    if told:
        return sum(record.prompt_tokens or 0 for record in told), sum(record.cached_tokens or 0 for record in told)
    if prefix is not None:
        return round(prefix.queries), round(prefix.hits)
    return sum(record.prompt_tokens or 0 for record in finished), None


def broken_workers(workers: Sequence[WorkerTrace]) -> tuple[Reason, ...]:
    """A reason for each load worker that failed."""
    broken = [trace for trace in workers if trace.error is not None]
    return tuple(Reason("load_worker_failed", f"load worker {trace.worker}: {trace.error}") for trace in broken)


def client_reasons(health: ClientHealth, rules: WindowRules) -> tuple[Reason, ...]:
    """Why the window is not to be believed; empty when the client is sound."""
    found = (
        _lag(health),
        _cpu(health),
        _shortfall(health),
        _length(health, rules.ignore_eos),
        None if rules.shared_prefixes else _prefix(health),
        _usage(health),
        _dispersion(health),
        _capped(health),
    )
    return tuple(reason for reason in found if reason is not None)


def _lag(health: ClientHealth) -> Reason | None:
    if health.lag_p99_ms is None or health.lag_p99_ms <= health.lag_limit_ms:
        return None
    text = f"requests were sent {health.lag_p99_ms:.1f} ms late at p99, {health.lag_limit_ms:g} ms are allowed"
    return Reason("schedule_lag", f"{text}; the client cannot hold this rate, or its machine is too busy")


def _cpu(health: ClientHealth) -> Reason | None:
    if health.cpu_share_max is None or health.cpu_share_max <= MAX_CPU_SHARE:
        return None
    text = f"a load worker used {health.cpu_share_max:.0%} of a core, {MAX_CPU_SHARE:.0%} are allowed"
    return Reason("client_cpu", f"{text}; give the client more workers or cores")


def _shortfall(health: ClientHealth) -> Reason | None:
    if health.sent >= MIN_SENT_SHARE * health.offered:
        return None
    return Reason("offered_shortfall", f"{health.sent} of {health.offered} requests that were due were sent")


def _length(health: ClientHealth, exact: bool) -> Reason | None:
    if health.length_off <= MAX_LENGTH_OFF_SHARE * health.finished:
        return None
    share = f"{health.length_off} of {health.finished} finished requests have"
    if not exact:
        return Reason("output_length", f"{share} more output tokens than max_tokens; the server's usage is wrong")
    text = f"{share} another output length than requested"
    return Reason("output_length", f"{text}; does the engine honour ignore_eos?")


def _prefix(health: ClientHealth) -> Reason | None:
    if health.cached_tokens is None or health.cached_tokens <= MAX_CACHED_SHARE * health.prompt_tokens:
        return None
    text = f"{health.cached_tokens} of {health.prompt_tokens} prompt tokens came from the prefix cache"
    return Reason("prefix_cache_hits", f"{text}, 1 % is allowed; was the same run made before on this engine?")


def _usage(health: ClientHealth) -> Reason | None:
    if not health.usage_missing:
        return None
    text = f"{health.usage_missing} of {health.finished} finished requests carry no usage"
    return Reason("usage_missing", f"{text}, so output tokens are not known; ask the server for stream usage")


def _dispersion(health: ClientHealth) -> Reason | None:
    blocks = dispersion_blocks(health.sent)
    if health.dispersion is None or blocks is None:
        return None
    low, high = dispersion_band(blocks)
    if low <= health.dispersion <= high:
        return None
    text = f"the Fano factor of sent requests is {health.dispersion:.2f}, a Poisson process has {low:.2f} to {high:.2f}"
    return Reason("arrival_dispersion", text)


def _capped(health: ClientHealth) -> Reason | None:
    if not health.capped:
        return None
    text = f"max_concurrency delayed {health.capped} requests of this load; raise measurement.max_concurrency"
    return Reason("concurrency_capped", text)

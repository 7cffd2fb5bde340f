"""Which percentiles another tool's figures settle: failed and cut-off requests count, though tools leave them out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from pytest_tokenwatt.records import Figure, Percentile
from pytest_tokenwatt.spec.traffic import requests_needed
from pytest_tokenwatt.store.tools.tool_run import FROM_SEND, Latency, ToolWindow

REPORTED = (50.0, 90.0, 95.0, 99.0, 99.9)


def percentiles(window: ToolWindow) -> Iterator[tuple[Percentile, Figure]]:
    """Every percentile of a window that its file speaks of, as a record and as a figure with its reason."""
    for metric, latency in window.latencies.items():
        listed = latency.percentiles if latency.sample is None else REPORTED
        for percentile in sorted(listed):
            yield _percentile(metric, percentile, latency, window)


def of_slo(metric: str) -> bool:
    """Whether an SLO can name the metric; the time from sending is a figure only."""
    return metric != FROM_SEND


def _percentile(metric: str, percentile: float, latency: Latency, window: ToolWindow) -> tuple[Percentile, Figure]:
    value, infinite, reason = _settled(percentile, latency, window)
    n = _observed(latency, window) if latency.by_request else len(latency.sample or ()) or window.finished
    found = Percentile(metric, percentile, value, infinite, n, None, None)
    return found, Figure(value, "ms", n=n, reason=reason)


def _settled(percentile: float, latency: Latency, window: ToolWindow) -> tuple[float | None, bool, str | None]:
    """The value, whether it falls on a failed request, and why it has none.

    A request that was cut off may have been fast or slow: it counts as slower than all that finished, so that a value
    is never too low, and where the rank falls on one of them nothing is known.
    """
    total = _observed(latency, window)
    if total < requests_needed(percentile):
        return None, False, f"{total} requests do not resolve it; {requests_needed(percentile)} are needed"
    if not latency.by_request:
        return _of_tokens(percentile, latency, window)
    finished = total - window.failed - window.cut
    rank = _nearest_rank(percentile, total)
    if rank > finished + window.cut:
        return None, True, f"the rank falls on a failed request: {window.failed} of {total} failed"
    if rank > finished:
        return None, False, f"the rank falls on a request that was cut off: {window.cut} of {total} were"
    if latency.sample is not None:
        return latency.sample[rank - 1], False, None
    return _of_aggregate(percentile, latency, window)


def _of_aggregate(percentile: float, latency: Latency, window: ToolWindow) -> tuple[float | None, bool, str | None]:
    if window.cut or (window.failed and latency.with_failed is None):
        lost = " and ".join(f"{count} {what}" for count, what in _lost(window) if count)
        return (
            None,
            False,
            f"{lost} requests are left out of the tool's percentile, which is too low by an unknown amount",
        )
    told = latency.percentiles if not window.failed or latency.with_failed is None else latency.with_failed
    value = told.get(percentile)
    return value, False, None if value is not None else "the file has none that counts failed requests"


def _of_tokens(percentile: float, latency: Latency, window: ToolWindow) -> tuple[float | None, bool, str | None]:
    if window.failed or window.cut:
        return None, False, "how many tokens the failed or cut-off requests would have had is not known"
    if latency.sample is not None:
        return latency.sample[_nearest_rank(percentile, len(latency.sample)) - 1], False, None
    return latency.percentiles.get(percentile), False, None


def _lost(window: ToolWindow) -> tuple[tuple[int, str], ...]:
    return (window.failed, "failed"), (window.cut, "cut-off")


def _observed(latency: Latency, window: ToolWindow) -> int:
    """Requests that the latency is of; some have none, such as a TPOT with a single token."""
    finished = window.finished
    if latency.by_request and latency.sample is not None:
        finished = len(latency.sample)
    return finished + window.failed + window.cut


def _nearest_rank(percentile: float, n: int) -> int:
    """The smallest 1-based rank ≥ p · n, in exact arithmetic: 99.9 is no binary float."""
    return max(1, math.ceil(Fraction(repr(float(percentile))) / 100 * n))

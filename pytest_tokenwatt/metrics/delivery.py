"""Tokens by the instant they were delivered, and those that belong to requests meeting every SLO metric."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytest_tokenwatt.metrics.certainty import bound_per_metric
from pytest_tokenwatt.metrics.latency import e2e_s, failed, tokens_received, tpot_s, ttft_s, unfinished
from pytest_tokenwatt.metrics.samples import itl_judged, own_percentile_s
from pytest_tokenwatt.records import RequestRecord, SloBound, WindowSpan


class Delivery:
    """All token chunks of a run, whichever phase their request belongs to."""

    def __init__(self, requests: Sequence[RequestRecord], bounds: Sequence[SloBound]) -> None:
        sizes = np.array([len(record.chunk_s) for record in requests], dtype=np.int64)
        self._stamps = np.concatenate([np.empty(0), *(np.asarray(record.chunk_s) for record in requests)])
        self._tokens = np.concatenate([np.empty(0, np.int64), *(np.asarray(r.chunk_tokens) for r in requests)])
        good = np.array([meets_slo(record, bounds) for record in requests], dtype=bool)
        self._good = np.repeat(good, sizes)

    def between(self, span: WindowSpan) -> tuple[int, int]:
        """Tokens delivered in [start, end) of a span, and those of them that count as goodput."""
        inside = (self._stamps >= span.start_s) & (self._stamps < span.end_s)
        return int(self._tokens[inside].sum()), int(self._tokens[inside & self._good].sum())


def delivered_tokens(requests: Sequence[RequestRecord], span: WindowSpan) -> int:
    """Tokens of all requests delivered in (start, end] of a span: from a request's sending to another one's end."""
    return sum(
        tokens
        for record in requests
        for at_s, tokens in zip(record.chunk_s, record.chunk_tokens, strict=True)
        if span.start_s < at_s <= span.end_s
    )


def meets_slo(record: RequestRecord, bounds: Sequence[SloBound]) -> bool:
    """Whether a request is known to meet each metric's bound; with several percentiles, that of the highest one.

    A running request counts by its TPOT so far once it has ``JUDGED_TOKENS``. A request without TPOT or ITL, having one
    token, breaks no promise on them. A failed request meets nothing.
    """
    return not failed(record) and all(_meets(record, bound) for bound in bound_per_metric(bounds).values())


def _meets(record: RequestRecord, bound: SloBound) -> bool:
    bound_s = bound.bound_ms / 1e3
    if bound.metric in ("ttft", "e2e"):
        value = ttft_s(record) if bound.metric == "ttft" else e2e_s(record)
        return value is not None and value <= bound_s
    if not itl_judged(record):
        return False
    value = tpot_s(record) if bound.metric == "tpot" else own_percentile_s(record, bound.percentile)
    if value is None:
        return not unfinished(record) or tokens_received(record) > 0
    return value <= bound_s

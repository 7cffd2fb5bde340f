"""The latencies of one request, in seconds from its scheduled instant.

A request that failed, timed out or was cut short is +inf in every latency. One that our own abort (or the end of the
run) left unfinished is judged by what was known at that instant, the horizon: a latency that had come to be counts; one
that could not have been met any more shows in ``certainty``; anything else is open, ``None``.
"""

from __future__ import annotations

import math

import numpy as np

from pytest_tokenwatt.metrics.percentiles import Counts, Floats
from pytest_tokenwatt.records import ErrorClass, RequestProgress, RequestRecord

JUDGED_TOKENS = 128
"""A running request with at least this many tokens is judged by its TPOT so far."""


def unfinished(record: RequestRecord) -> bool:
    """Whether the request was still under way when we stopped looking."""
    return record.error is ErrorClass.ABORTED or (record.error is None and record.end_s is None)


def failed(record: RequestRecord) -> bool:
    """Whether the request is +inf in every latency: an error, a timeout, a cut stream, an end without a token."""
    return not unfinished(record) and not record.ok


def tokens_received(record: RequestRecord) -> int:
    """Output tokens by the server's count, or those of the chunks while there is no count."""
    return sum(record.chunk_tokens) if record.output_tokens is None else record.output_tokens


def progress(record: RequestRecord) -> RequestProgress:
    """The record as the running load saw it; our own abort is no end."""
    running = unfinished(record)
    return RequestProgress(
        index=record.index,
        scheduled_s=record.scheduled_s,
        sent_s=record.sent_s,
        first_token_s=record.first_token_s,
        first_tokens=record.chunk_tokens[0] if record.chunk_tokens else 0,
        last_token_s=record.last_token_s,
        tokens=tokens_received(record),
        ended=not running,
        error=ErrorClass.NO_TOKENS if failed(record) and record.error is None else None if running else record.error,
    )


def ttft_s(request: RequestRecord) -> float | None:
    """First chunk that carries a token − scheduled instant; ``None`` while it has not come."""
    return _since(request, request.scheduled_s)


def ttft_from_send_s(request: RequestRecord) -> float | None:
    """First chunk that carries a token − the instant of sending."""
    return _since(request, request.scheduled_s if request.sent_s is None else request.sent_s)


def _since(request: RequestRecord, start_s: float) -> float | None:
    if failed(request):
        return math.inf
    return None if request.first_token_s is None else request.first_token_s - start_s


def e2e_s(request: RequestRecord) -> float | None:
    """Last token − scheduled instant; ``None`` while the request is unfinished."""
    return _until_end(request, request.scheduled_s)


def e2e_from_send_s(request: RequestRecord) -> float | None:
    """Last token − the instant of sending; ``None`` while the request is unfinished."""
    return _until_end(request, request.scheduled_s if request.sent_s is None else request.sent_s)


def _until_end(request: RequestRecord, start_s: float) -> float | None:
    if failed(request):
        return math.inf
    return None if unfinished(request) or request.last_token_s is None else request.last_token_s - start_s


def tpot_s(request: RequestRecord) -> float | None:
    """(Last token − first token chunk) / (tokens − tokens of the first chunk).

    ``None`` where the divisor is below 1, and for an unfinished request with fewer than ``JUDGED_TOKENS``.
    """
    if failed(request):
        return math.inf
    seen = progress(request)
    if not seen.ended and seen.tokens < JUDGED_TOKENS:
        return None
    return tpot_so_far_s(seen)


def tpot_so_far_s(seen: RequestProgress) -> float | None:
    """The time per output token up to the last one received; ``None`` where the divisor is below 1."""
    divisor = seen.tokens - seen.first_tokens
    if divisor < 1 or seen.first_token_s is None or seen.last_token_s is None:
        return None
    return (seen.last_token_s - seen.first_token_s) / divisor


def itl_samples(request: RequestRecord) -> tuple[Floats, Counts]:
    """Inter-token latencies as (seconds, how many): a chunk of n tokens after a gap g is n samples of g / n.

    A failed request counts every planned gap as +inf, at least one: the tokens that never came were late.
    """
    if failed(request):
        gaps = max(1, request.planned_output_tokens - 1)
        return np.array([math.inf]), np.array([gaps], dtype=np.int64)
    stamps = np.asarray(request.chunk_s, dtype=np.float64)
    tokens = np.asarray(request.chunk_tokens, dtype=np.int64)
    carrying = tokens > 0
    stamps, tokens = stamps[carrying], tokens[carrying]
    return np.diff(stamps) / tokens[1:], tokens[1:]

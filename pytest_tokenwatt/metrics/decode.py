"""The decode work of a window: which tokens were decoded in it, and at which context each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_tokenwatt.metrics.percentiles import Counts
from pytest_tokenwatt.records import RequestRecord, WindowSpan

_BATCH = 8192


@dataclass(frozen=True, slots=True)
class DecodeWork:
    """Tokens decoded within windows, as runs of one request in one window: parallel arrays, one entry a run.

    Run i has ``tokens[i]`` tokens: the first read ``first_context[i]`` tokens before it, the next one more, and so on.
    ``chunks`` is how many chunks brought them in all, ``decode_s`` the seconds that these chunks took, summed over
    requests.
    """

    first_context: Counts
    tokens: Counts
    chunks: int
    decode_s: float

    @property
    def total(self) -> int:
        """Tokens of all runs."""
        return int(self.tokens.sum())

    @property
    def mean_context(self) -> float | None:
        """Mean number of tokens before a decoded one; ``None`` without any."""
        total = self.total
        before = self.first_context * self.tokens + self.tokens * (self.tokens - 1) // 2
        return float(before.sum(dtype=np.float64)) / total if total else None


def decode_work(requests: Sequence[RequestRecord], spans: Sequence[WindowSpan]) -> DecodeWork:
    """The decoded tokens delivered within the spans, whichever phase their request belongs to and however it ended.

    The tokens of a request's first token chunk come from its prefill and do not count. A token's context is its
    prompt (the server's count, else as planned) and the output tokens before it.
    """
    found = [_runs(batch, span) for batch in _batches(requests) for span in spans]
    return DecodeWork(
        first_context=np.concatenate([np.empty(0, np.int64), *(runs.first_context for runs in found)]),
        tokens=np.concatenate([np.empty(0, np.int64), *(runs.tokens for runs in found)]),
        chunks=sum(runs.chunks for runs in found),
        decode_s=sum(runs.decode_s for runs in found),
    )


def mean_chunk_gap(work: DecodeWork) -> float | None:
    """Mean seconds between one chunk of a request and its next, over the chunks of the work; ``None`` without any."""
    return work.decode_s / work.chunks if work.chunks and work.decode_s > 0 else None


@dataclass(frozen=True, slots=True)
class _Batch:
    """Some requests with the running total of their tokens: request i begins at ``offset[i]`` of ``before``."""

    requests: Sequence[RequestRecord]
    offset: Counts
    before: Counts


def _batches(requests: Sequence[RequestRecord]) -> Iterator[_Batch]:
    """A bounded number at a time: a million chunks a batch rather than all tokens of a run at once."""
    for start in range(0, len(requests), _BATCH):
        part = requests[start : start + _BATCH]
        sizes = np.array([len(record.chunk_tokens) for record in part], dtype=np.int64)
        tokens = np.concatenate([np.empty(0, np.int64), *(np.asarray(record.chunk_tokens) for record in part)])
        yield _Batch(part, np.cumsum(sizes) - sizes, np.concatenate([[0], np.cumsum(tokens)]))


def _runs(batch: _Batch, span: WindowSpan) -> DecodeWork:
    edges = np.array([_edges(record, span) for record in batch.requests], dtype=np.int64).reshape(-1, 2)
    low, high = batch.offset + edges[:, 0], batch.offset + edges[:, 1]
    prompts = np.array([_prompt(record) for record in batch.requests], dtype=np.int64)
    tokens = batch.before[high] - batch.before[low]
    context = prompts + batch.before[low] - batch.before[batch.offset]
    some = tokens > 0
    return DecodeWork(
        first_context=context[some],
        tokens=tokens[some],
        chunks=int((edges[:, 1] - edges[:, 0]).sum()),
        decode_s=sum(_took(record, *edge) for record, edge in zip(batch.requests, edges.tolist(), strict=True)),
    )


def _edges(record: RequestRecord, span: WindowSpan) -> tuple[int, int]:
    """The chunks [low, high) behind the first token chunk that came within the span."""
    first = next((number for number, tokens in enumerate(record.chunk_tokens) if tokens > 0), len(record.chunk_tokens))
    low = max(bisect_left(record.chunk_s, span.start_s), first + 1)
    high = bisect_left(record.chunk_s, span.end_s)
    return (low, high) if low < high else (0, 0)


def _took(record: RequestRecord, low: int, high: int) -> float:
    return record.chunk_s[high - 1] - record.chunk_s[low - 1] if low < high else 0.0


def _prompt(record: RequestRecord) -> int:
    return record.planned_input_tokens if record.prompt_tokens is None else record.prompt_tokens

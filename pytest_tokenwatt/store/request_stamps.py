"""The instants of stored requests as columns: what distributions need, without reading every token's stamp."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pytest_tokenwatt.records import ErrorClass
from pytest_tokenwatt.store.columns import ABSENT_COUNT, ABSENT_INSTANT, NANOSECONDS, Array, read_blob
from pytest_tokenwatt.store.npz import read_npz
from pytest_tokenwatt.store.requests_npz import REQUESTS_SCHEMA

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class RequestStamps:
    """Measured requests: parallel columns, instants in seconds of the monotonic clock (NaN: did not happen).

    ``tokens`` and ``first_tokens`` are all that were received and those of the first chunk. ``failed`` requests never
    answered properly; ``open`` ones were still under way when the load ended.
    """

    scheduled_s: Floats
    first_token_s: Floats
    last_token_s: Floats
    tokens: NDArray[np.int64]
    first_tokens: NDArray[np.int64]
    failed: Flags
    open: Flags

    def within(self, start_s: float, end_s: float) -> RequestStamps:
        """Those scheduled in [start_s, end_s)."""
        # Instants are stored to the nanosecond; a window's edge is not.
        kept = (self.scheduled_s >= start_s - 1e-8) & (self.scheduled_s < end_s - 1e-8)
        return RequestStamps(
            scheduled_s=self.scheduled_s[kept],
            first_token_s=self.first_token_s[kept],
            last_token_s=self.last_token_s[kept],
            tokens=self.tokens[kept],
            first_tokens=self.first_tokens[kept],
            failed=self.failed[kept],
            open=self.open[kept],
        )

    def ttft_s(self) -> Floats:
        """First token − scheduled instant; +inf for failed requests, NaN where nothing had come."""
        return np.where(self.failed, np.inf, self.first_token_s - self.scheduled_s)

    def tpot_s(self) -> Floats:
        """(Last − first token) / tokens behind the first chunk; +inf for failed requests.

        NaN for open requests and without a second chunk.
        """
        divisor = (self.tokens - self.first_tokens).astype(np.float64)
        divisor[divisor < 1] = np.nan
        took_s = (self.last_token_s - self.first_token_s) / divisor
        return np.where(self.failed, np.inf, np.where(self.open, np.nan, took_s))


def read_stamps(path: Path) -> RequestStamps:
    """The measured requests of a requests file. Raises ``UsageError`` when it is absent or not such a file."""
    remedy = "name a requests-<config>-<window>.npz"
    return read_npz(path, _read, what="requests", schema=REQUESTS_SCHEMA, remedy=remedy)


def _read(columns: Mapping[str, Array]) -> RequestStamps:
    strings = [str(text) for text in read_blob(columns["strings"])]
    origin_s = float(read_blob(columns["meta"])["origin_s"])
    measured = _equal(columns["phase"], strings, "measured")
    first = _seconds(columns["first_token_s"], origin_s)
    ended = columns["end_s"] != ABSENT_INSTANT
    error = columns["error"]
    unfinished = _equal(error, strings, ErrorClass.ABORTED.value) | ((error == ABSENT_COUNT) & ~ended)
    fine = (error == ABSENT_COUNT) & ended & ~np.isnan(first)
    tokens, first_tokens = _tokens(columns)
    return RequestStamps(
        scheduled_s=_seconds(columns["scheduled_s"], origin_s)[measured],
        first_token_s=first[measured],
        last_token_s=_seconds(columns["last_token_s"], origin_s)[measured],
        tokens=tokens[measured],
        first_tokens=first_tokens[measured],
        failed=(~unfinished & ~fine)[measured],
        open=unfinished[measured],
    )


def _seconds(column: Array, origin_s: float) -> Floats:
    return np.where(column == ABSENT_INSTANT, np.nan, column / NANOSECONDS + origin_s)


def _equal(column: Array, strings: list[str], text: str) -> Flags:
    """Where a column of strings holds ``text``."""
    if text not in strings:
        return np.zeros(len(column), dtype=np.bool_)
    return np.asarray(column == strings.index(text))


def _tokens(columns: Mapping[str, Array]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Received tokens (by the server's count where there is one) and those of the first chunk."""
    offset, chunks = columns["chunk_offset"].astype(np.int64), columns["chunk_tokens"].astype(np.int64)
    if offset[0] != 0 or offset[-1] != len(chunks) or (np.diff(offset) < 0).any():
        raise ValueError("its chunks do not add up")
    running = np.concatenate(([0], np.cumsum(chunks)))
    counted = running[offset[1:]] - running[offset[:-1]]
    filled = np.diff(offset) > 0
    first = np.zeros(len(filled), dtype=np.int64)
    first[filled] = chunks[offset[:-1][filled]]
    told = columns["output_tokens"].astype(np.int64)
    return np.where(told == ABSENT_COUNT, counted, told), first

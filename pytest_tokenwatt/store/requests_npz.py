"""Every request of one stretch of load as compressed columns: ``requests-<config>-<window>.npz``.

Stamps are int64 nanoseconds from ``origin_s``, the start of the first window. The stamps of a request's chunks are
stored as differences, byte plane by byte plane, because the upper bytes of short gaps are nearly all zero: 3 bytes a
token instead of 7. Token ids are not stored here.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from pytest_tokenwatt.records import ClockAnchor, ErrorClass, RequestRecord, WindowSpan
from pytest_tokenwatt.store.columns import (
    NANOSECONDS,
    Array,
    Strings,
    blob,
    counts,
    from_planes,
    instants,
    read_blob,
    read_counts,
    read_instants,
    to_planes,
)
from pytest_tokenwatt.store.npz import read_npz, write_npz

REQUESTS_SCHEMA = "tokenwatt-requests/1"
_INSTANTS = ("scheduled_s", "sent_s", "first_token_s", "last_token_s", "end_s")
_COUNTS = (
    "index",
    "planned_input_tokens",
    "planned_output_tokens",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "status",
    "bytes_received",
)
_FLAGS = ("tokens_estimated", "connection_reused")
_STRINGS = ("phase", "finish_reason", "error", "error_message")


@dataclass(frozen=True, slots=True)
class StoredRequests:
    """What a requests file holds; instants are seconds of the monotonic clock that ``anchor`` ties to the wall."""

    requests: tuple[RequestRecord, ...]
    spans: tuple[WindowSpan, ...]
    anchor: ClockAnchor


def write_requests(
    path: Path, requests: Sequence[RequestRecord], spans: Sequence[WindowSpan], anchor: ClockAnchor
) -> None:
    """Store the requests of one load with its windows. Raises ``OSError``."""
    origin_s = spans[0].start_s if spans else anchor.monotonic_s
    strings = Strings()
    columns = {
        **{name: instants((getattr(each, name) for each in requests), origin_s) for name in _INSTANTS},
        **{name: counts(getattr(each, name) for each in requests) for name in _COUNTS},
        **{name: np.array([getattr(each, name) for each in requests], dtype=np.bool_) for name in _FLAGS},
        **{name: strings.column(getattr(each, name) for each in requests) for name in _STRINGS},
        **_chunk_columns(requests, origin_s),
        "span_s": np.array([(span.start_s, span.end_s) for span in spans], dtype=np.float64).reshape(-1, 2),
        "strings": strings.blob(),
        "meta": blob(
            {
                "schema": REQUESTS_SCHEMA,
                "origin_s": origin_s,
                "anchor": {"monotonic_s": anchor.monotonic_s, "wall_s": anchor.wall_s},
            }
        ),
    }
    write_npz(path, columns)


def read_requests(path: Path) -> StoredRequests:
    """Read a requests file. Raises ``UsageError`` when it is absent or not such a file."""
    remedy = "name a requests-<config>-<window>.npz"
    return read_npz(path, _read, what="requests", schema=REQUESTS_SCHEMA, remedy=remedy)


def _chunk_columns(requests: Sequence[RequestRecord], origin_s: float) -> dict[str, Array]:
    sizes = np.array([len(each.chunk_s) for each in requests], dtype=np.int64)
    stamps = [np.round((np.array(each.chunk_s) - origin_s) * NANOSECONDS).astype(np.int64) for each in requests]
    tokens = [np.array(each.chunk_tokens, dtype=np.int64) for each in requests]
    gaps = [np.diff(stamp, prepend=0) for stamp in stamps]
    return {
        "chunk_offset": np.concatenate(([0], np.cumsum(sizes))),
        "chunk_gap_planes": to_planes(np.concatenate([np.empty(0, dtype=np.int64), *gaps])),
        "chunk_tokens": _narrow(np.concatenate([np.empty(0, dtype=np.int64), *tokens])),
    }


def _narrow(values: Array) -> Array:
    """``values`` in the smallest integer type that holds them all."""
    return values.astype(np.min_scalar_type(int(values.max()))) if values.size else values


def _read(columns: Mapping[str, Array]) -> StoredRequests:
    meta = read_blob(columns["meta"])
    origin_s = float(meta["origin_s"])
    strings = Strings(read_blob(columns["strings"]))
    fields: dict[str, Sequence[Any]] = {
        **{name: read_instants(columns[name], origin_s) for name in _INSTANTS},
        **{name: read_counts(columns[name]) for name in _COUNTS},
        **{name: [bool(flag) for flag in columns[name]] for name in _FLAGS},
        **{name: list(strings.read(columns[name])) for name in _STRINGS},
    }
    chunks = _read_chunks(columns, origin_s)
    rows = (dict(zip(fields, values, strict=True)) for values in zip(*fields.values(), strict=True))
    requests = tuple(_request(row, *chunk) for row, chunk in zip(rows, chunks, strict=True))
    spans = tuple(WindowSpan(float(start), float(end)) for start, end in columns["span_s"])
    return StoredRequests(requests, spans, ClockAnchor(**meta["anchor"]))


def _request(row: dict[str, Any], chunk_s: array[float], chunk_tokens: array[int]) -> RequestRecord:
    error = cast("str | None", row.pop("error"))
    return RequestRecord(
        **row, error=None if error is None else ErrorClass(error), chunk_s=chunk_s, chunk_tokens=chunk_tokens
    )


def _read_chunks(columns: Mapping[str, Array], origin_s: float) -> Iterator[tuple[array[float], array[int]]]:
    offset, gaps, tokens = columns["chunk_offset"], from_planes(columns["chunk_gap_planes"]), columns["chunk_tokens"]
    for start, end in itertools.pairwise(offset):
        seconds = np.cumsum(gaps[start:end]) / NANOSECONDS + origin_s
        yield array("d", seconds.tolist()), array("q", tokens[start:end].tolist())

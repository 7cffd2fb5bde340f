"""Outputs that were kept of one timed run, with their prompts, as compressed columns: ``served-<config>-<run>.npz``.

They wait for the baseline, which judges them when the candidate's engine has long been stopped. Ids are int32, all of
them one behind the other. No pickle is written and none is read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from pytest_tokenwatt.records.audit import Served
from pytest_tokenwatt.store.columns import Array, blob, read_blob
from pytest_tokenwatt.store.npz import read_npz, write_npz

SERVED_SCHEMA = "tokenwatt-served/1"
_REMEDY = "time the configuration anew: its outputs are not kept elsewhere"


def write_served(path: Path, served: Sequence[Served]) -> None:
    """Store the outputs of one run whole. Raises ``OSError``, and ``OverflowError`` for an id that is no int32."""
    columns = {
        "prompts": _joined([each.prompt for each in served]),
        "prompt_offset": _offsets([each.prompt for each in served]),
        "outputs": _joined([each.output for each in served]),
        "output_offset": _offsets([each.output for each in served]),
        "max_tokens": np.asarray([each.max_tokens for each in served], dtype=np.int64),
        "ignore_eos": np.asarray([each.ignore_eos for each in served], dtype=np.bool_),
        "names": blob([each.name for each in served]),
        "meta": blob({"schema": SERVED_SCHEMA}),
    }
    write_npz(path, columns)


def read_served(path: Path) -> tuple[Served, ...]:
    """Read the outputs of one run. Raises ``UsageError`` when the file is absent, damaged, or no such file."""
    return read_npz(
        path, lambda columns: tuple(_read(columns)), what="kept outputs", schema=SERVED_SCHEMA, remedy=_REMEDY
    )


def _joined(parts: Sequence[Sequence[int]]) -> Array:
    return np.concatenate([np.empty(0, dtype=np.int32), *(np.asarray(part, dtype=np.int32) for part in parts)])


def _offsets(parts: Sequence[Sequence[int]]) -> Array:
    return np.cumsum([0, *map(len, parts)], dtype=np.int64)


def _read(columns: Mapping[str, Array]) -> Iterator[Served]:
    rows = zip(
        read_blob(columns["names"]),
        _parts(columns["prompts"], columns["prompt_offset"]),
        _parts(columns["outputs"], columns["output_offset"]),
        columns["max_tokens"].tolist(),
        columns["ignore_eos"].tolist(),
        strict=True,
    )
    for name, prompt, output, max_tokens, ignore_eos in rows:
        yield Served(str(name), prompt, output, int(max_tokens), bool(ignore_eos))


def _parts(ids: Array, offsets: Array) -> Iterator[tuple[int, ...]]:
    edges = [int(edge) for edge in offsets]
    if edges[0] != 0 or edges[-1] != len(ids) or edges != sorted(edges):
        raise ValueError("its parts do not add up")
    for start, end in itertools.pairwise(edges):
        yield tuple(map(int, ids[start:end]))

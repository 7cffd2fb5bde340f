"""Sequences of token ids and what an engine said of them, as compressed columns: ``topk-<config>-<what>.npz``.

Ids are int32 and log-probabilities float32, all sequences one behind the other. No pickle is written and none is read.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pytest_tokenwatt.records import drift
from pytest_tokenwatt.store.columns import Array, blob, read_blob
from pytest_tokenwatt.store.npz import read_npz, write_npz

TOPK_SCHEMA = "tokenwatt-topk/1"
_REMEDY = "score it anew: run the baseline again"


@dataclass(frozen=True, slots=True)
class StoredTopK:
    """One scoring of sequences: ``sha256`` is the hash of their ids, ``fingerprint`` the engine that scored.

    ``tops`` has one entry for each sequence, or is empty when only the sequences are stored. ``probes`` are texts with
    the ids that the engine's tokenizer made of them.
    """

    sequences: tuple[drift.Sequence, ...]
    tops: tuple[drift.TopK, ...]
    sha256: str
    model: str
    k: int
    fingerprint: str
    probes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def write_topk(path: Path, stored: StoredTopK) -> None:
    """Store a scoring whole. Raises ``OSError``, and ``ValueError`` when scores and sequences do not match."""
    if stored.tops and len(stored.tops) != len(stored.sequences):
        raise ValueError(f"{len(stored.tops)} scores for {len(stored.sequences)} sequences")
    if any(top.k != stored.k for top in stored.tops):
        raise ValueError(f"scores are not all {stored.k} wide")
    positions = sum(top.positions for top in stored.tops)
    columns = {
        "ids": _joined("int32", [each.ids for each in stored.sequences]),
        "id_offset": _offsets([each.ids for each in stored.sequences]),
        "prompt": np.asarray([each.prompt for each in stored.sequences], dtype=np.int32),
        "top_ids": _joined("int32", [top.ids for top in stored.tops]).reshape(positions, stored.k),
        "top_logprobs": _joined("float32", [top.logprobs for top in stored.tops]).reshape(positions, stored.k),
        "chosen": _joined("float32", [top.chosen for top in stored.tops]),
        "position_offset": _offsets([top.chosen for top in stored.tops]),
        "names": blob([each.name for each in stored.sequences]),
        "meta": blob(
            {
                "schema": TOPK_SCHEMA,
                "sha256": stored.sha256,
                "model": stored.model,
                "k": stored.k,
                "fingerprint": stored.fingerprint,
                "probes": {text: list(ids) for text, ids in stored.probes.items()},
            }
        ),
    }
    write_npz(path, columns)


def read_topk(path: Path) -> StoredTopK:
    """Read a scoring. Raises ``UsageError`` when it is absent, damaged, or no such file."""
    return read_npz(path, _read, what="log-probabilities", schema=TOPK_SCHEMA, remedy=_REMEDY)


def _joined(dtype: str, parts: Sequence[Sequence[int] | Sequence[float] | array[int] | array[float]]) -> Array:
    return np.concatenate([np.empty(0, dtype=dtype), *(np.asarray(part, dtype=dtype) for part in parts)])


def _offsets(parts: Sequence[Sequence[int] | array[float]]) -> Array:
    return np.cumsum([0, *map(len, parts)], dtype=np.int64)


def _read(columns: Mapping[str, Array]) -> StoredTopK:
    meta = read_blob(columns["meta"])
    k = int(meta["k"])
    return StoredTopK(
        sequences=tuple(_sequences(columns)),
        tops=tuple(_tops(columns, k)),
        sha256=str(meta["sha256"]),
        model=str(meta["model"]),
        k=k,
        fingerprint=str(meta["fingerprint"]),
        probes={str(text): tuple(map(int, ids)) for text, ids in meta.get("probes", {}).items()},
    )


def _sequences(columns: Mapping[str, Array]) -> Iterator[drift.Sequence]:
    names, prompts = read_blob(columns["names"]), columns["prompt"].tolist()
    ids, bounds = columns["ids"], _bounds(columns["id_offset"], len(columns["ids"]))
    for name, prompt, (start, end) in zip(names, prompts, bounds, strict=True):
        yield drift.Sequence(str(name), tuple(ids[start:end].tolist()), prompt)


def _tops(columns: Mapping[str, Array], k: int) -> Iterator[drift.TopK]:
    ids, logprobs, chosen = columns["top_ids"], columns["top_logprobs"], columns["chosen"]
    if ids.shape != (len(chosen), k) or logprobs.shape != ids.shape:
        raise ValueError(f"its scores are not {k} wide throughout")
    for start, end in _bounds(columns["position_offset"], len(chosen)):
        yield drift.TopK(
            k,
            array("i", ids[start:end].astype(np.int32).tobytes()),
            array("f", logprobs[start:end].astype(np.float32).tobytes()),
            array("f", chosen[start:end].astype(np.float32).tobytes()),
        )


def _bounds(offsets: Array, length: int) -> list[tuple[int, int]]:
    edges = [int(edge) for edge in offsets]
    if edges[0] != 0 or edges[-1] != length or edges != sorted(edges):
        raise ValueError("its parts do not add up")
    return list(itertools.pairwise(edges))

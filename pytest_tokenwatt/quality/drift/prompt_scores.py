"""Reads ``prompt_logprobs`` of a completions reply: one JSON object a position, token ids as its keys.

Entries are looked up by id, never by their text: different ids may decode to the same one.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.records import drift

IMPOSSIBLE = -9999.0
"""What vLLM says for a probability of zero, since JSON has no infinity."""

_LARGEST_ID = 2**31 - 1
_REMEDY = "score with an engine that answers prompt_logprobs as vLLM does"


def read_scores(told: Any, ids: Sequence[int], prompt: int, top_k: int) -> drift.TopK:
    """The scores of ``ids[prompt:]``, ``top_k`` columns a position (−1: as many as the server tells).

    ``told`` has an entry for every id; the first is null, or missing. Each entry has the ``top_k`` likeliest tokens
    and, when it is not among them, the one that stands there. A null entry, or one with a null or NaN in it, makes
    the position NaN. Raises ``EngineError``: ``no_prompt_logprobs`` when there is not one entry for each id,
    ``wrong_echo`` when an entry lacks the token that stands there, so that another text was scored.
    """
    start = max(prompt, 1)
    table = _table(_entries(told, len(ids))[start:])
    tokens = np.asarray(ids[start:], dtype=np.int64)
    there = table.keys == tokens[table.rows]
    found = np.bincount(table.rows[there], minlength=len(tokens))
    absent = np.flatnonzero((found != 1) & (table.counts > 0))
    if absent.size:
        at = int(absent[0])
        what = f"the log-probabilities at position {start + at} are not of token {tokens[at]}, which stands there"
        raise EngineError("wrong_echo", what, remedy="the server changes the ids that it is given; " + _REMEDY)
    return _ranked(table, tokens, there, top_k)


def are_ids(told: Any) -> TypeGuard[Sequence[int]]:
    """Whether these are token ids that a server may speak of."""
    return isinstance(told, (list, tuple)) and all(type(token) is int and 0 <= token <= _LARGEST_ID for token in told)


def unscored(positions: int, top_k: int) -> drift.TopK:
    """What stands for positions that were not scored: NaN throughout."""
    nothing = array("f", [float("nan")])
    return drift.TopK(top_k, array("i", [-1]) * (positions * top_k), nothing * (positions * top_k), nothing * positions)


def _entries(told: Any, length: int) -> Sequence[Any]:
    """One entry for each id."""
    if isinstance(told, list) and len(told) == length:
        return told
    if isinstance(told, list) and len(told) == length - 1:
        return [None, *told]
    got = f"{len(told)} entries" if isinstance(told, list) else "none"
    what = f"the server takes prompt_logprobs and tells {got}, for {length} ids"
    raise EngineError("no_prompt_logprobs", what, remedy=_REMEDY)


class _Table:
    """All entries one behind the other; ``counts`` are how many each of the positions has."""

    def __init__(self, keys: list[int], logprobs: list[Any], counts: list[int]) -> None:
        self.counts = np.asarray(counts, dtype=np.int64)
        self.keys = np.asarray(keys, dtype=np.int64)
        if self.keys.size and not 0 <= self.keys.min() <= self.keys.max() <= _LARGEST_ID:
            raise ValueError("ids are int32")
        values = np.asarray(logprobs, dtype=np.float64)  # None becomes NaN
        self.logprobs = np.where(values <= IMPOSSIBLE, -np.inf, values)
        self.rows = np.repeat(np.arange(len(counts)), self.counts)


def _table(entries: Sequence[Any]) -> _Table:
    keys: list[int] = []
    logprobs: list[Any] = []
    try:
        for entry in entries:
            if entry:
                keys += map(int, entry)
                logprobs += [each["logprob"] for each in entry.values()]
        return _Table(keys, logprobs, [len(entry) if entry else 0 for entry in entries])
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        what = "the server's prompt_logprobs are no objects of token id and logprob"
        raise EngineError("no_prompt_logprobs", what, remedy=_REMEDY) from None


def _ranked(table: _Table, tokens: npt.NDArray[np.int64], there: npt.NDArray[np.bool_], top_k: int) -> drift.TopK:
    """The likeliest first; the token that stands there is dropped where it is beyond ``top_k``."""
    positions = len(tokens)
    k = int(table.counts.max(initial=0)) if top_k < 0 else top_k
    broken = (table.counts == 0) | (np.bincount(table.rows[np.isnan(table.logprobs)], minlength=positions) > 0)
    chosen = np.full(positions, np.nan, dtype=np.float32)
    chosen[table.rows[there]] = table.logprobs[there]
    chosen[broken] = np.nan
    kept = ~broken[table.rows] & ~(there & (table.counts > k)[table.rows])
    rows, keys, logprobs = table.rows[kept], table.keys[kept], table.logprobs[kept]
    order = np.lexsort((-logprobs, rows))
    places = np.arange(len(rows)) - np.searchsorted(rows, rows)
    within = places < k
    ids = np.full((positions, k), -1, dtype=np.int32)
    ids[rows[within], places[within]] = keys[order][within]
    best = np.full((positions, k), np.nan, dtype=np.float32)
    best[rows[within], places[within]] = logprobs[order][within]
    return drift.TopK(k, array("i", ids.tobytes()), array("f", best.tobytes()), array("f", chosen.tobytes()))

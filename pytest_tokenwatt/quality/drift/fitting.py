"""Sequences cut to what an engine can score, and scores cut to the same positions and width."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_tokenwatt.records import drift

LEAST_TOKENS = 2
"""Scored positions that a sequence must have to be kept."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """Sequences that an engine can score; ``notes`` say what was cut or left out."""

    sequences: tuple[drift.Sequence, ...]
    notes: tuple[str, ...] = ()


def fit(sequences: Sequence[drift.Sequence], max_model_len: int | None) -> Fitted:
    """Cut ids to ``max_model_len`` − 1, since scoring generates one token; ``None`` means no limit is known.

    A sequence of which fewer than two positions would be left is left out.
    """
    if max_model_len is None:
        return Fitted(tuple(sequences))
    room = max(max_model_len - 1, 0)
    long = [each for each in sequences if len(each.ids) > room]
    kept = tuple(
        replace(each, ids=each.ids[:room]) if len(each.ids) > room else each
        for each in sequences
        if len(each.ids) <= room or room - each.prompt >= LEAST_TOKENS
    )
    if not long:
        return Fitted(kept)
    gone = len(sequences) - len(kept)
    what = f"max_model_len is {max_model_len}: {len(long) - gone} sequences are cut to {room} tokens"
    return Fitted(kept, (what + (f" and {gone} left out" if gone else ""),))


def aligned(
    sequences: Sequence[drift.Sequence], tops: Sequence[drift.TopK], fitted: Sequence[drift.Sequence]
) -> list[drift.TopK]:
    """The scores of ``sequences`` restricted to the positions of ``fitted``, which are the same ones cut.

    Raises ``ValueError`` when one of ``fitted`` is not the beginning of the sequence of its name.
    """
    known = {each.name: (each, top) for each, top in zip(sequences, tops, strict=True)}
    return [_head(*known[each.name], each) for each in fitted]


def _head(whole: drift.Sequence, top: drift.TopK, part: drift.Sequence) -> drift.TopK:
    if part.prompt != whole.prompt or whole.ids[: len(part.ids)] != part.ids:
        raise ValueError(f"{part.name} is another sequence")
    positions = top.positions - (len(whole.ids) - len(part.ids))
    places = positions * top.k
    return drift.TopK(top.k, top.ids[:places], top.logprobs[:places], top.chosen[:positions])


def narrowed(top: drift.TopK, k: int) -> drift.TopK:
    """The ``k`` likeliest of each position, or all: an engine that gives fewer is compared by as many."""
    if k >= top.k:
        return top
    places = [start + column for start in range(0, top.positions * top.k, top.k) for column in range(k)]
    ids, logprobs = (top.ids[place] for place in places), (top.logprobs[place] for place in places)
    return drift.TopK(k, array("i", ids), array("f", logprobs), top.chosen[:])

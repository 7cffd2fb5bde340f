"""One sequence as two engines score it: what its positions contribute to the divergence of the one from the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_tokenwatt.records.drift import TopK

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

RESOLVED_MASS = 1e-6
"""A mass outside the top-K below this is rounding of single-precision log-probabilities and taken as nothing."""


@dataclass(frozen=True, slots=True)
class PositionTerms:
    """Of each valid position of a sequence, in nats; all arrays are as long as there are valid positions.

    ``low`` bounds the divergence from below, ``tail`` is the baseline's mass outside both top-K, the ``_half`` ones are
    of the cut-off at K/2. ``sampled`` is ``low`` corrected by the token that was drawn, NaN where none was told.
    ``agrees``: the likeliest token is the same. ``confidence`` is the baseline's largest probability. ``mass`` is the
    larger sum of the two engines' probabilities, or that of the token that stands there if it alone is larger. ``low``
    or ``sampled`` is inf where the divergence is. ``unseen``: what the other engine does not tell of may hold a token
    likelier than all that it tells.
    """

    low: Floats
    low_half: Floats
    tail: Floats
    tail_half: Floats
    sampled: Floats
    agrees: Flags
    confidence: Floats
    mass: Floats
    unseen: Flags


@dataclass(frozen=True, slots=True)
class _Table:
    """ids and logp are (positions, k); an unused place has probability 0."""

    ids: Ints
    logp: Floats
    chosen: Floats

    def rows(self, kept: Flags) -> _Table:
        return _Table(self.ids[kept], self.logp[kept], self.chosen[kept])

    @property
    def valid(self) -> Flags:
        scored: Flags = (self.ids >= 0).any(axis=1) & ~np.isnan(self.chosen)
        return scored & ~np.isnan(self.logp).any(axis=1)


@dataclass(frozen=True, slots=True)
class _Cut:
    """The bound and the tail at one cut-off; ``ratio`` is ln(t / (1 − Q_I)), 0 for a bucket that adds nothing."""

    low: Floats
    tail: Floats
    ratio: Floats


def position_terms(baseline: TopK, other: TopK, drawn: Sequence[int] | None) -> PositionTerms:
    """Of two scorings of one sequence with equal ``k`` and positions; ``drawn`` are the token ids that stand there.

    ``other`` tells of its own likeliest tokens, or of the baseline's in the same order, which then are I. With I = ids
    in both top-K, P_I and Q_I their masses and t = 1 − P_I: low = Σ_I p ln(p/q) + t ln(t / (1 − Q_I)), the divergence
    after everything outside I is put in one bucket, which by the log-sum inequality is not above the exact one. A
    bucket with t or 1 − Q_I below ``RESOLVED_MASS`` adds 0, which costs the bound at most 1.4e-5 nats. The correction
    by the token x ∉ I, ln(p(x)/q(x)) − ln(t / (1 − Q_I)), makes the bound an unbiased estimate when x was drawn from
    the baseline: I must not depend on x. Positions with a NaN on either side, or whose drawn token has a baseline
    probability of 0, are left out.
    """
    ours, theirs = _table(baseline), _table(other)
    kept = ours.valid & theirs.valid
    if drawn is not None:
        kept &= ~np.isneginf(ours.chosen)
    ours, theirs = ours.rows(kept), theirs.rows(kept)
    tokens = None if drawn is None else np.asarray(drawn, dtype=np.int64)[kept]
    # A server that returns logits overflows here, and 0 · inf stands for p = 0, which contributes nothing.
    with np.errstate(over="ignore", invalid="ignore"):
        return _terms(ours, theirs, tokens, baseline.k // 2)


def _terms(ours: _Table, theirs: _Table, tokens: Ints | None, half: int) -> PositionTerms:
    column = _columns(ours.ids, theirs.ids)
    shared = column >= 0
    q_logp = np.take_along_axis(theirs.logp, np.maximum(column, 0), axis=1)
    cut = _cut(ours.logp, q_logp, shared)
    near = _cut(ours.logp[:, :half], q_logp[:, :half], (shared & (column < half))[:, :half])
    best, their_best = ours.logp.max(axis=1), theirs.logp.max(axis=1)
    tied = shared & (ours.logp == best[:, None]) & (q_logp == their_best[:, None])
    return PositionTerms(
        low=cut.low,
        low_half=near.low,
        tail=cut.tail,
        tail_half=near.tail,
        sampled=_sampled(ours, theirs, shared, cut, tokens),
        agrees=tied.any(axis=1),
        confidence=np.exp(best),
        mass=np.maximum(_mass(ours), _mass(theirs)),
        unseen=1.0 - np.exp(theirs.logp).sum(axis=1) > np.exp(their_best),
    )


def _mass(table: _Table) -> Floats:
    told: Floats = np.maximum(np.exp(table.logp).sum(axis=1), np.exp(table.chosen))
    return told


def _table(scored: TopK) -> _Table:
    ids = np.asarray(scored.ids, dtype=np.int64).reshape(-1, scored.k)
    logp = np.asarray(scored.logprobs, dtype=np.float64).reshape(-1, scored.k)
    return _Table(ids, np.where(ids >= 0, logp, -np.inf), np.asarray(scored.chosen, dtype=np.float64))


def _columns(ids: Ints, sought: Ints) -> Ints:
    """Where each of ``ids`` stands in the same row of ``sought``; −1 where it does not. Sorting keeps large k cheap."""
    if not ids.size:
        return np.empty(ids.shape, dtype=np.int64)
    stride = int(max(ids.max(), sought.max())) + 1
    first = np.arange(len(ids), dtype=np.int64)[:, None] * stride
    keys, theirs = first + ids, np.where(sought >= 0, first + sought, -1).ravel()
    order = np.argsort(theirs, kind="stable")
    place = np.minimum(np.searchsorted(theirs, keys, sorter=order), len(order) - 1)
    found = order[place]
    return np.where((ids >= 0) & (theirs[found] == keys), found % sought.shape[1], -1)


def _cut(logp: Floats, q_logp: Floats, shared: Flags) -> _Cut:
    p = np.where(shared, np.exp(logp), 0.0)
    inside = np.where(p > 0, p * (logp - q_logp), 0.0).sum(axis=1)
    tail = 1.0 - p.sum(axis=1)
    their_tail = 1.0 - np.where(shared, np.exp(q_logp), 0.0).sum(axis=1)
    resolved = tail >= RESOLVED_MASS
    counts = resolved & (their_tail >= RESOLVED_MASS)
    ratio = np.log(np.where(counts, tail, 1.0) / np.where(counts, their_tail, 1.0))
    tail = np.where(resolved, tail, 0.0)
    return _Cut(inside + tail * ratio, tail, ratio)


def _sampled(ours: _Table, theirs: _Table, shared: Flags, cut: _Cut, tokens: Ints | None) -> Floats:
    if tokens is None:
        return np.full(len(cut.low), np.nan)
    inside = (shared & (ours.ids == tokens[:, None])).any(axis=1)
    return cut.low + np.where(inside, 0.0, ours.chosen - theirs.chosen - cut.ratio)

"""Perplexity of windows of a text, from the log-probabilities of the tokens that stand there."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_tokenwatt.metrics.perplexity import ppl_of
from pytest_tokenwatt.quality.drift.digest import drift_sha256
from pytest_tokenwatt.records import Reason, drift

_LARGEST_LOGPROB = 1e-3
"""Log-probabilities above this are none; what is below is rounding."""


def window_nll(top: drift.TopK) -> float:
    """Mean negative log-likelihood per token, in nats; NaN when a position was not scored."""
    return -sum(top.chosen) / top.positions if top.positions else math.nan


def perplexity_record(
    name: str,
    sequences: Sequence[drift.Sequence],
    tops: Sequence[drift.TopK],
    invalid: Sequence[Reason] = (),
    *,
    base: Sequence[drift.TopK] = (),
) -> drift.PerplexityRecord:
    """The record of a corpus. A window that is not finite makes all of it invalid, since windows are compared in pairs.

    ``ppl`` is exp(mean over windows of their mean per token), ``None`` where that is beyond all numbers. Where ``tops``
    are of the beginnings of ``sequences`` only, ``base`` is what the baseline said of the same beginnings.
    """
    nll = tuple(window_nll(top) for top in tops)
    reasons = (*invalid, *(_not_probabilities(tops) or _flaws(nll)))
    return drift.PerplexityRecord(
        name=name,
        sha256=drift_sha256(sequences),
        windows=len(tops),
        tokens=sum(top.positions for top in tops),
        nll=() if reasons else nll,
        ppl=None if reasons else ppl_of(nll),
        invalid=reasons,
        base_nll=() if reasons else tuple(map(window_nll, base)),
    )


def _not_probabilities(tops: Sequence[drift.TopK]) -> tuple[Reason, ...]:
    above = sum(1 for top in tops for value in top.chosen if value > _LARGEST_LOGPROB)
    if not above:
        return ()
    return (Reason("not_probabilities", f"{above} tokens are likelier than 1; the server seems to return logits"),)


def _flaws(nll: Sequence[float]) -> tuple[Reason, ...]:
    if not nll:
        return (Reason("no_windows", "no window was scored"),)
    unscored = sum(1 for value in nll if math.isnan(value))
    if unscored:
        return (Reason("windows_failed", f"{unscored} of {len(nll)} windows were not scored whole"),)
    impossible = sum(1 for value in nll if math.isinf(value))
    if impossible:
        what = f"{impossible} of {len(nll)} windows hold a token of probability 0"
        return (Reason("zero_probability", what),)
    return ()

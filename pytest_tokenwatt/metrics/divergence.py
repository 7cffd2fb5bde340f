"""The divergence of one engine's next-token distributions from another's, from the top-K of both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pytest_tokenwatt.metrics.clustered_mean import mean_se
from pytest_tokenwatt.metrics.confidence import by_confidence
from pytest_tokenwatt.metrics.nested import nested
from pytest_tokenwatt.metrics.topk import PositionTerms, position_terms
from pytest_tokenwatt.records import Reason
from pytest_tokenwatt.records.drift import Divergence, TopK
from pytest_tokenwatt.records.drift import Sequence as Scored

MAX_INVALID_SHARE = 0.01
"""More invalid positions than this share make the whole divergence invalid."""

MAX_MASS = 1.0 + 1e-3
"""Probabilities that sum to more than this are none."""

MAX_DISAGREEMENT_SE = 3.0
"""The two estimates may differ by this many of their joint standard errors."""

Floats = npt.NDArray[np.float64]


def divergence(
    baseline: Sequence[TopK], other: Sequence[TopK], *, drawn: Sequence[Scored] | None, fixed_ids: bool = False
) -> Divergence:
    """KL(baseline ‖ other) in nats per token, of equal sequences in equal order.

    ``drawn`` are the sequences that were scored if the baseline itself drew what follows their prompts; ``None`` when
    the tokens come from elsewhere: then there is no ``kl_sampled`` to hold ``kl`` against. ``fixed_ids``: the other was
    scored on the baseline's likeliest tokens, so that its own likeliest one need not be among them. Whatever forbids
    the figures is a reason in ``invalid`` (``unequal_sequences``, ``not_probabilities``, ``positions_invalid``,
    ``infinite``, ``nothing_scored``), what leaves them undecided one in ``doubts`` (``estimators_disagree``,
    ``not_extrapolated``). Nothing is raised.
    """
    unequal = _unequal(baseline, other, drawn)
    if unequal:
        return _without_figures(baseline, Reason("unequal_sequences", unequal))
    tokens = [None] * len(baseline) if drawn is None else [scored.ids[scored.prompt :] for scored in drawn]
    terms = [position_terms(ours, theirs, ids) for ours, theirs, ids in zip(baseline, other, tokens, strict=True)]
    total = sum(scored.positions for scored in baseline)
    lengths = np.array([len(part.low) for part in terms])
    found = _without_figures(baseline, *_invalid_positions(total, int(lengths.sum())))
    found = replace(
        found,
        sequences=int(np.count_nonzero(lengths)),
        tokens=int(lengths.sum()),
        invalid_positions=total - int(lengths.sum()),
    )
    if not found.tokens:
        return found
    whole = _concatenated(terms)
    above = int(np.count_nonzero(~(whole.mass <= MAX_MASS)))
    if above:
        text = f"the probabilities of {above} positions sum above 1; the server seems to return logits"
        return replace(found, invalid=(*found.invalid, Reason("not_probabilities", text)))
    unseen = int(np.count_nonzero(whole.unseen)) if fixed_ids else 0
    if unseen:
        text = f"top1_agreement is among the baseline's {found.k} likeliest tokens: at {unseen} of {found.tokens}"
        found = replace(found, notes=(f"{text} positions another one may be likelier to the candidate",))
    return _with_figures(found, whole, lengths[lengths > 0])


def is_exact_zero(found: Divergence) -> bool:
    """Whether not even the last bit differs: what two different configurations do not do."""
    return found.kl == 0 and found.kl_lower in (None, 0.0) and found.kl_sampled in (None, 0.0)


def _with_figures(found: Divergence, whole: PositionTerms, lengths: Floats) -> Divergence:
    tail = _sequence_means(whole.tail, lengths)
    agreement = _sequence_means(whole.agrees.astype(np.float64), lengths)
    found = replace(found, tail_mass=float(tail.mean()), top1_agreement=float(agreement.mean()))
    infinite = int(np.count_nonzero(np.isposinf(whole.low) | np.isposinf(whole.sampled)))
    if infinite:
        text = f"at {infinite} positions a token that the baseline may choose has probability 0"
        return replace(found, invalid=(*found.invalid, Reason("infinite", text)))
    low = _sequence_means(whole.low, lengths)
    found = replace(
        found,
        kl_lower=float(low.mean()),
        kl_lower_se=mean_se(low),
        by_confidence=by_confidence(whole.confidence, whole.low),
        per_sequence=tuple(low.tolist()),
    )
    sampled = _sequence_means(whole.sampled, lengths)
    if not np.isnan(sampled).any():
        found = replace(found, kl_sampled=float(sampled.mean()), kl_sampled_se=mean_se(sampled))
    return _extrapolated(found, whole, lengths)


def _extrapolated(found: Divergence, whole: PositionTerms, lengths: Floats) -> Divergence:
    low, tail = _sequence_means(whole.low, lengths), _sequence_means(whole.tail, lengths)
    estimate = nested(low, _sequence_means(whole.low_half, lengths), tail, _sequence_means(whole.tail_half, lengths))
    if estimate is None:
        text = f"no token between the {found.k // 2}th and the {found.k}th is likely for both engines"
        return replace(found, doubts=(Reason("not_extrapolated", text),))
    found = replace(
        found,
        kl=estimate.kl,
        kl_se=estimate.se,
        kl_median=float(np.median(low + estimate.per_mass * tail)),
        kl_per_token=float(np.mean(whole.low + estimate.per_mass * whole.tail)),
    )
    return replace(found, doubts=_disagreement(found))


def _disagreement(found: Divergence) -> tuple[Reason, ...]:
    if found.kl is None or found.kl_sampled is None or found.kl_se is None or found.kl_sampled_se is None:
        return ()
    joint = math.hypot(found.kl_se, found.kl_sampled_se)
    # Single precision tells no differences below this, however small the spread.
    if abs(found.kl - found.kl_sampled) <= max(MAX_DISAGREEMENT_SE * joint, 1e-6):
        return ()
    text = f"extrapolated {found.kl:.5f} and sampled {found.kl_sampled:.5f} nats differ by more than 3 × {joint:.5f}"
    return (Reason("estimators_disagree", f"{text}; score with a larger top_k"),)


def _sequence_means(values: Floats, lengths: Floats) -> Floats:
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    return np.add.reduceat(values, starts) / lengths


def _concatenated(terms: Sequence[PositionTerms]) -> PositionTerms:
    return PositionTerms(
        **{name: np.concatenate([getattr(part, name) for part in terms]) for name in PositionTerms.__slots__}
    )


def _invalid_positions(total: int, valid: int) -> tuple[Reason, ...]:
    if not valid:
        return (Reason("nothing_scored", f"none of {total} positions was scored by both engines"),)
    if total - valid > MAX_INVALID_SHARE * total:
        return (Reason("positions_invalid", f"{total - valid} of {total} positions have no valid log-probabilities"),)
    return ()


def _unequal(baseline: Sequence[TopK], other: Sequence[TopK], drawn: Sequence[Scored] | None) -> str | None:
    """What keeps the two from being compared position by position."""
    if len(baseline) != len(other) or (drawn is not None and len(drawn) != len(baseline)):
        return f"{len(baseline)} sequences of the baseline against {len(other)}"
    cutoffs = {scored.k for scored in (*baseline, *other)}
    if len(cutoffs) > 1 or min(cutoffs, default=1) < 1:
        return f"the top-K differ: {', '.join(map(str, sorted(cutoffs)))}"
    for place, (ours, theirs) in enumerate(zip(baseline, other, strict=True)):
        if ours.positions != theirs.positions:
            return f"sequence {place} has {ours.positions} positions of the baseline against {theirs.positions}"
        expected = ours.positions if drawn is None else len(drawn[place].ids) - drawn[place].prompt
        columns = (ours.ids, ours.logprobs, theirs.ids, theirs.logprobs)
        if {len(column) for column in columns} != {expected * ours.k} or ours.positions != expected:
            return f"sequence {place} is not scored with {ours.k} entries at each of {expected} positions"
    return None


def _without_figures(baseline: Sequence[TopK], *invalid: Reason) -> Divergence:
    return Divergence(
        kl=None,
        kl_se=None,
        kl_lower=None,
        kl_lower_se=None,
        kl_sampled=None,
        kl_sampled_se=None,
        kl_median=None,
        kl_per_token=None,
        tail_mass=None,
        top1_agreement=None,
        k=baseline[0].k if baseline else 0,
        sequences=0,
        tokens=0,
        invalid_positions=0,
        invalid=invalid,
    )

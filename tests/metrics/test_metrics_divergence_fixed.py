"""The divergence when the other engine is asked for the baseline's likeliest tokens: known answers."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
import pytest
from divergence_builders import drawn, exact_kl, one, scored
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_tokenwatt.metrics.divergence import divergence
from pytest_tokenwatt.records.drift import Divergence, TopK

P, Q = [0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]


def on_the_same(base: TopK, rows: Sequence[Sequence[float]], tokens: Sequence[int]) -> TopK:
    """What an engine with distributions ``rows`` says of the ids of ``base``."""
    ids = np.asarray(base.ids).reshape(-1, base.k)
    table = TopK(base.k, array("i", base.ids), array("d"), array("d"))
    with np.errstate(divide="ignore"):
        for row, wanted, token in zip(np.log(np.asarray(rows, dtype=np.float64)), ids, tokens, strict=True):
            table.logprobs.extend(row[wanted].tolist())
            table.chosen.append(float(row[token]))
    return table


def fixed(p: Sequence[float], q: Sequence[float], k: int, tokens: Sequence[int]) -> Divergence:
    base = scored([p] * len(tokens), k, tokens)
    return divergence([base], [on_the_same(base, [q] * len(tokens), tokens)], drawn=drawn(tokens), fixed_ids=True)


def test_the_bucket_is_of_the_baselines_tail_alone() -> None:
    found = fixed(P, Q, 2, [0])
    assert found.tail_mass == pytest.approx(0.3)
    inside = 0.4 * np.log(0.4 / 0.1) + 0.3 * np.log(0.3 / 0.2)
    assert found.kl_lower == pytest.approx(inside + 0.3 * np.log(0.3 / 0.7))
    near = 0.4 * np.log(0.4 / 0.1) + 0.6 * np.log(0.6 / 0.9)
    per_mass = ((found.kl_lower or 0.0) - near) / (0.6 - 0.3)
    assert found.kl == pytest.approx((found.kl_lower or 0.0) + 0.3 * per_mass)
    own = divergence([one(P, 2)], [one(Q, 2)], drawn=None)
    assert own.tail_mass == pytest.approx(1.0)  # the two top-2 have nothing in common


@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)), min_size=3, max_size=8), st.integers(2, 8))
@settings(max_examples=60, deadline=None)
def test_the_bound_holds_and_what_is_sampled_is_unbiased(weights: list[tuple[float, float]], k: int) -> None:
    p, q = (np.array(column) / sum(column) for column in zip(*weights, strict=True))
    k = min(k, len(p))
    exact = exact_kl(p, q)
    each = [fixed(p.tolist(), q.tolist(), k, [token]) for token in range(len(p))]
    sampled = [float(found.kl_sampled or 0.0) for found in each]
    assert sum(weight * value for weight, value in zip(p, sampled, strict=True)) == pytest.approx(exact, abs=1e-9)
    assert (each[0].kl_lower or 0.0) <= exact + 1e-9
    if k == len(p):
        assert each[0].kl == pytest.approx(exact, abs=1e-9)


def test_an_agreement_that_is_not_certain_is_told() -> None:
    told = fixed(P, Q, 2, [0, 1]).notes
    assert told == (
        "top1_agreement is among the baseline's 2 likeliest tokens: at 2 of 2 positions another one may be likelier to"
        " the candidate",
    )
    assert fixed([0.7, 0.2, 0.1], [0.6, 0.2, 0.2], 2, [0]).notes == ()


def test_what_the_other_did_not_score_is_an_invalid_position() -> None:
    base = scored([P] * 200, 2, [0] * 200)
    other = on_the_same(base, [Q] * 200, [0] * 200)
    other.logprobs[0] = float("nan")
    found = divergence([base], [other], drawn=None, fixed_ids=True)
    assert (found.invalid_positions, found.tokens, found.invalid) == (1, 199, ())

from __future__ import annotations

import json
import math
import time
from array import array
from dataclasses import asdict, replace

import numpy as np
import pytest
from divergence_builders import Floats, drawn, exact_kl, one, scored
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_tokenwatt.metrics.divergence import divergence, is_exact_zero
from pytest_tokenwatt.records.drift import Divergence, TopK

NAN, INF = float("nan"), float("inf")


def between(p: list[float], q: list[float], k: int | None = None) -> Divergence:
    return divergence([one(p, k)], [one(q, k)], drawn=None)


def codes(found: Divergence) -> list[str]:
    return [reason.code for reason in found.invalid]


@pytest.mark.parametrize(
    ("p", "q", "expected"),
    [
        ([0.5, 0.25, 0.25], [0.25, 0.25, 0.5], 0.17328679513998632),
        ([1.0, 0.0], [0.5, 0.5], math.log(2)),
        ([0.9, 0.1], [0.8, 0.2], 0.036690014034750584),
        (
            [math.exp(logit) / (math.exp(2) + math.exp(1) + 1) for logit in (2, 1, 0)],
            [1 / 3, 1 / 3, 1 / 3],
            0.2662167068281706,
        ),
        ([0.7, 0.2, 0.06, 0.04], [0.6, 0.2, 0.12, 0.08], 0.0385907578),
        ([0.5, 0.3, 0.2], [0.6, 0.2, 0.2], 0.0304788),
    ],
)
def test_the_whole_vocabulary_gives_the_exact_divergence(p: list[float], q: list[float], expected: float) -> None:
    found = between(p, q)
    assert found.kl == pytest.approx(expected, abs=1e-15 if expected not in (0.0385907578, 0.0304788) else 1e-7)
    assert found.kl == found.kl_lower == found.kl_per_token == found.kl_median
    assert (found.tail_mass, found.invalid, found.doubts) == (0.0, (), ())


@pytest.mark.parametrize(
    ("p", "q", "bucket"),
    [
        ([0.7, 0.2, 0.06, 0.04], [0.6, 0.2, 0.12, 0.08], 0.0216009),
        ([0.5, 0.3, 0.2], [0.6, 0.2, 0.2], 0.0204110),
    ],
)
def test_what_is_outside_the_top_k_goes_into_one_bucket(p: list[float], q: list[float], bucket: float) -> None:
    found = between(p, q, k=1)
    assert found.kl_lower == pytest.approx(bucket, abs=1e-7)
    assert found.tail_mass == pytest.approx(1 - p[0])


def test_the_tail_is_extrapolated_from_two_cut_offs() -> None:
    p, q = [0.4, 0.3, 0.2, 0.1], [0.5, 0.2, 0.1, 0.2]
    near, far = between(p, q, k=1), between(p, q, k=2)
    assert near.kl_lower is not None
    assert far.kl_lower is not None
    per_mass = (far.kl_lower - near.kl_lower) / (0.6 - 0.3)
    assert far.kl == pytest.approx(far.kl_lower + 0.3 * per_mass)
    assert far.kl_median == far.kl


def test_infinite_is_said_and_can_be_stored_as_json() -> None:
    found = between([0.5, 0.5], [1.0, 0.0])
    assert codes(found) == ["infinite"]
    assert "1 positions" in found.invalid[0].text
    assert (found.kl, found.kl_lower, found.kl_sampled, found.by_confidence) == (None, None, None, {})
    assert found.top1_agreement == 1.0
    json.dumps(asdict(found), allow_nan=False)


def test_a_drawn_token_without_probability_outside_the_top_k_is_infinite_too() -> None:
    p, q = [0.6, 0.3, 0.1], [0.7, 0.3, 0.0]
    found = divergence([one(p, 1, token=2)], [one(q, 1, token=2)], drawn=drawn([2]))
    assert codes(found) == ["infinite"]


def test_sampling_the_tail_is_unbiased() -> None:
    p, q = np.array([0.4, 0.3, 0.15, 0.1, 0.05]), np.array([0.5, 0.15, 0.05, 0.1, 0.2])
    # Every token as often as its probability says: the mean over the draws is then the expectation.
    tokens = [token for token, share in enumerate(p) for _ in range(round(20 * share))]
    ours, theirs = (scored([row.tolist()] * 20, 4, tokens) for row in (p, q))
    found = divergence([ours, ours], [theirs, theirs], drawn=drawn(tokens, tokens))
    assert found.kl_sampled == pytest.approx(exact_kl(p, q), abs=1e-12)
    assert found.kl_sampled_se == 0.0
    assert [reason.code for reason in found.doubts] == ["estimators_disagree"]
    assert found.invalid == ()


def test_sampling_is_unbiased_where_the_bucket_adds_nothing() -> None:
    p, q = [0.5, 0.25, 0.25], [1 - 2e-8, 1e-8, 1e-8]
    tokens = [0, 0, 1, 2]
    found = divergence([scored([p] * 4, 1, tokens)], [scored([q] * 4, 1, tokens)], drawn=drawn(tokens))
    assert found.kl_sampled == pytest.approx(exact_kl(np.array(p), np.array(q)), abs=1e-9)


def test_tokens_from_elsewhere_have_no_sampled_estimate() -> None:
    found = divergence([one([0.6, 0.4], 1)], [one([0.5, 0.5], 1)], drawn=None)
    assert (found.kl_sampled, found.kl_sampled_se) == (None, None)
    assert found.kl is not None


def test_errors_are_clustered_by_sequence() -> None:
    q = [0.5, 0.5]
    rows = ([0.9, 0.1], [0.7, 0.3], [0.6, 0.4])
    lengths = (1, 10, 40)
    ours = [one(row, repeat=length) for row, length in zip(rows, lengths, strict=True)]
    found = divergence(ours, [one(q, repeat=length) for length in lengths], drawn=None)
    each = [exact_kl(np.array(row), np.array(q)) for row in rows]
    assert found.per_sequence == pytest.approx(each)
    assert found.kl == pytest.approx(np.mean(each))
    assert found.kl_se == found.kl_lower_se == pytest.approx(np.std(each, ddof=1) / 3**0.5)
    assert found.kl_median == pytest.approx(each[1])
    assert found.kl_per_token == pytest.approx(np.average(each, weights=lengths))
    assert (found.sequences, found.tokens, found.k) == (3, 51, 2)


def test_one_sequence_has_no_error() -> None:
    found = between([0.6, 0.4], [0.5, 0.5])
    assert (found.kl_se, found.kl_lower_se, found.doubts) == (None, None, ())


def test_the_extrapolations_error_is_that_of_repeated_experiments() -> None:
    rng = np.random.default_rng(3)
    found = [_noisy(rng) for _ in range(200)]
    values = [each.kl for each in found if each.kl is not None]
    errors = [each.kl_se for each in found if each.kl_se is not None]
    assert len(values) == len(errors) == 200
    assert np.mean(errors) == pytest.approx(np.std(values, ddof=1), rel=0.2)


def _noisy(rng: np.random.Generator) -> Divergence:
    ours, theirs = [], []
    for _ in range(24):
        logits = rng.normal(0, 2, (2, 30))
        rows = [np.exp(logits), np.exp(logits + rng.normal(0, 0.3, (2, 30)))]
        p, q = ((row / row.sum(axis=1, keepdims=True)).tolist() for row in rows)
        ours.append(scored(p, 8, [0, 0]))
        theirs.append(scored(q, 8, [0, 0]))
    return divergence(ours, theirs, drawn=None)


@pytest.mark.parametrize(
    ("p", "q", "agrees"),
    [
        ([0.6, 0.3, 0.1], [0.5, 0.4, 0.1], 1.0),
        ([0.6, 0.3, 0.1], [0.4, 0.5, 0.1], 0.0),
        ([0.4, 0.4, 0.2], [0.3, 0.6, 0.1], 1.0),
        ([0.3, 0.6, 0.1], [0.4, 0.4, 0.2], 1.0),
        ([0.4, 0.4, 0.2], [0.2, 0.2, 0.6], 0.0),
    ],
)
def test_ties_of_the_likeliest_token_are_agreement(p: list[float], q: list[float], agrees: float) -> None:
    assert between(p, q).top1_agreement == agrees


def test_divergence_by_the_baselines_confidence() -> None:
    rows = [[0.4, 0.4, 0.2], [0.5, 0.3, 0.2], [0.95, 0.03, 0.02], [0.995, 0.003, 0.002], [0.992, 0.004, 0.004]]
    flat = [[0.4, 0.3, 0.3]] * 5
    found = divergence([scored(rows, 3, [0] * 5)], [scored(flat, 3, [0] * 5)], drawn=None)
    each = [exact_kl(np.array(row), np.array(flat[0])) for row in rows]
    assert list(found.by_confidence) == ["<0.5", "0.5-0.9", "0.9-0.99", "≥0.99"]
    assert found.by_confidence["<0.5"] == pytest.approx((each[0], 1))
    assert found.by_confidence["≥0.99"] == pytest.approx(((each[3] + each[4]) / 2, 2))
    assert list(between([0.6, 0.4], [0.5, 0.5]).by_confidence) == ["0.5-0.9"]


def test_more_than_one_per_cent_unscored_positions_are_invalid() -> None:
    p, q = one([0.6, 0.4], repeat=200), one([0.5, 0.5], repeat=200)
    clean = divergence([p], [q], drawn=None)
    for place in (3, 7):
        q.logprobs[2 * place + 1] = NAN
    found = divergence([p], [q], drawn=None)
    assert (found.invalid_positions, found.tokens, found.invalid) == (2, 198, ())
    assert found.kl == pytest.approx(clean.kl)
    p.chosen[100] = NAN
    found = divergence([p], [q], drawn=None)
    assert (found.invalid_positions, codes(found)) == (3, ["positions_invalid"])
    assert "3 of 200" in found.invalid[0].text


def test_a_position_without_any_entry_is_invalid_and_a_sequence_of_them_is_left_out() -> None:
    good, bad = one([0.6, 0.4]), TopK(2, array("i", [-1, -1]), array("f", [NAN, NAN]), array("f", [-0.5]))
    found = divergence([good, bad], [good, good], drawn=None)
    assert (found.invalid_positions, found.sequences, len(found.per_sequence)) == (1, 1, 1)
    nothing = divergence([bad], [bad], drawn=None)
    assert (codes(nothing), nothing.kl, nothing.invalid_positions) == (["nothing_scored"], None, 1)
    assert codes(divergence([], [], drawn=None)) == ["nothing_scored"]


def test_a_drawn_token_that_the_baseline_calls_impossible_is_an_invalid_position() -> None:
    p, q = [0.6, 0.4, 0.0], [0.5, 0.4, 0.1]
    found = divergence([one(p, 2, token=2)], [one(q, 2, token=2)], drawn=drawn([2]))
    assert codes(found) == ["nothing_scored"]


def test_unused_places_do_not_count() -> None:
    p, q = [0.5, 0.25, 0.25], [0.25, 0.25, 0.5]
    assert between(p, q, k=8).kl == pytest.approx(0.17328679513998632, abs=1e-15)


@pytest.mark.parametrize("logit", [5.2, 800.0, INF])
def test_logits_are_refused(logit: float) -> None:
    logits = TopK(2, array("i", [0, 1]), array("f", [logit, -3.0]), array("f", [logit]))
    for pair in ((logits, one([0.5, 0.5])), (one([0.5, 0.5]), logits), (logits, logits)):
        found = divergence([pair[0]], [pair[1]], drawn=drawn([0]))
        assert (codes(found), found.kl, found.kl_lower) == (["not_probabilities"], None, None)


def test_unequal_scorings_are_not_compared() -> None:
    two, three = one([0.5, 0.5]), one([0.5, 0.3, 0.2])
    longer = one([0.5, 0.5], repeat=2)
    cut = replace(two, ids=array("i", [0]))
    cases = (
        divergence([two], [three], drawn=None),
        divergence([two], [longer], drawn=None),
        divergence([two], [two, two], drawn=None),
        divergence([two], [cut], drawn=None),
        divergence([two], [two], drawn=drawn([0, 1])),
        divergence([two], [two], drawn=[]),
        divergence([TopK(0)], [TopK(0)], drawn=None),
    )
    assert [codes(found) for found in cases] == [["unequal_sequences"]] * len(cases)
    assert all(found.kl is None for found in cases)


def test_nothing_between_the_cut_offs_leaves_the_tail_unknown() -> None:
    p, q = [0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]
    found = between(p, q, k=2)
    assert [reason.code for reason in found.doubts] == ["not_extrapolated"]
    assert (found.kl, found.kl_median, found.kl_lower, found.tail_mass) == (None, None, 0.0, 1.0)


def test_exactly_zero_is_told_from_nearly_zero() -> None:
    p, q = [0.5, 0.3, 0.2], [0.5, 0.3 + 1e-12, 0.2 - 1e-12]
    same = divergence([one(p, 2)] * 2, [one(p, 2)] * 2, drawn=drawn([2], [0]))
    assert is_exact_zero(same)
    assert same.kl_sampled == 0.0
    assert not is_exact_zero(divergence([one(p, 2)], [one(q, 2)], drawn=drawn([2])))
    assert not is_exact_zero(divergence([one(p)], [one(q)], drawn=None))
    # The tops are equal, only the drawn token's own probability tells.
    assert not is_exact_zero(divergence([one(p, 1, 1)], [one([0.5, 0.2, 0.3], 1, 1)], drawn=drawn([1])))
    assert not is_exact_zero(divergence([], [], drawn=None))


distributions = st.integers(2, 40).flatmap(
    lambda size: st.tuples(
        st.lists(st.floats(-12, 12), min_size=size, max_size=size),
        st.lists(st.floats(-12, 12), min_size=size, max_size=size),
        st.integers(1, size + 2),
        st.booleans(),
    )
)


def _softmax(logits: list[float]) -> Floats:
    shifted = np.exp(np.array(logits) - max(logits))
    return np.asarray(shifted / shifted.sum())


@settings(max_examples=300, deadline=None)
@given(distributions)
def test_the_bound_is_never_above_the_exact_divergence(case: tuple[list[float], list[float], int, bool]) -> None:
    p, q, k, single = _softmax(case[0]), _softmax(case[1]), case[2], case[3]
    tokens = list(range(len(p)))
    ours, theirs = (scored([row.tolist()] * len(p), k, tokens, single=single) for row in (p, q))
    found = divergence([ours], [theirs], drawn=drawn(tokens))
    exact = exact_kl(p, q)
    assert found.invalid == ()
    assert found.kl_lower is not None
    assert found.kl_lower <= exact + 2e-5 + 1e-6 * exact
    if k >= len(p):
        assert found.kl == found.kl_lower == pytest.approx(exact, abs=2e-5, rel=1e-5)


@settings(max_examples=100, deadline=None)
@given(distributions)
def test_identical_scorings_have_no_divergence(case: tuple[list[float], list[float], int, bool]) -> None:
    p = _softmax(case[0])
    ours = scored([p.tolist()] * len(p), case[2], list(range(len(p))), single=case[3])
    found = divergence([ours], [ours], drawn=drawn(range(len(p))))
    assert is_exact_zero(found)
    assert (found.top1_agreement, found.doubts, found.invalid) == (1.0, (), ())


def test_64000_positions_take_a_moment() -> None:
    rng = np.random.default_rng(1)
    ours, theirs, tokens = [], [], []
    for _ in range(250):
        ids = rng.permuted(np.tile(np.arange(40), (256, 1)), axis=1)[:, :20].astype(np.int32)
        logp = np.sort(rng.normal(-4.5, 0.5, (256, 20)), axis=1)[:, ::-1].astype(np.float32)
        flat = array("i", ids.tobytes())
        columns = [array("f", logp.tobytes()), array("f", logp[:, 0].tobytes())]
        ours.append(TopK(20, flat, *columns))
        theirs.append(TopK(20, array("i", ids[:, ::-1].tobytes()), *columns))
        tokens.append(ids[:, 0].tolist())
    sequences = drawn(*tokens)
    start = time.process_time()
    found = divergence(ours, theirs, drawn=sequences)
    assert time.process_time() - start < 10.0
    assert (found.tokens, found.sequences, found.invalid) == (64_000, 250, ())

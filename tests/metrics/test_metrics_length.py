"""Lengths of answers against the baseline's: the ratio of means, its error, and what is left out."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.metrics.length import LengthPair, length_pairs, mean_tokens, relative_shift
from pytest_tokenwatt.metrics.paired import UnequalItems
from pytest_tokenwatt.records.accuracy import ItemResult, Outcome, SuiteRecord

T9 = 2.2621571628  # Student's t, 9 degrees of freedom, 97.5 %


def pairs_of(base: Sequence[int], candidate: Sequence[int], cluster_of: int = 1) -> list[LengthPair]:
    both = zip(base, candidate, strict=True)
    return [LengthPair(ours, theirs, f"c{place // cluster_of}") for place, (ours, theirs) in enumerate(both)]


def suite(*items: ItemResult, max_tokens: int = 100) -> SuiteRecord:
    return SuiteRecord("s", "s.jsonl", "ab", "numeric", "chat", None, max_tokens, 1, items, 0.0, None, {}, ())


def item(name: str, tokens: int | None, outcome: Outcome = Outcome.CORRECT, seed: int = 0) -> ItemResult:
    return ItemResult(name, seed, outcome, output_tokens=tokens)


# --- known answers


@pytest.mark.parametrize(
    ("base", "candidate", "value", "se"),
    [
        # residuals ±1, their mean's error sqrt(10 / (10 · 9)), over a mean of 10
        ([10] * 10, [11, 9] * 5, 0.0, 1 / 30),
        # R = 165 / 150; residuals 12 − 11 and 21 − 22, over a mean of 15
        ([10, 20] * 5, [12, 21] * 5, 0.1, 1 / 45),
    ],
)
def test_the_error_by_hand(base: list[int], candidate: list[int], value: float, se: float) -> None:
    found = relative_shift(pairs_of(base, candidate))
    assert found is not None
    assert (found.n, found.clusters) == (10, 10)
    assert (found.value, found.se) == pytest.approx((value, se))
    assert found.interval() == pytest.approx((value - T9 * se, value + T9 * se))


@pytest.mark.parametrize(("factor", "value"), [(10, 0.0), (11, 0.1), (5, -0.5), (0, -1.0)])
def test_a_constant_factor_has_no_width(factor: int, value: float) -> None:
    lengths = [number % 7 + 1 for number in range(30)]
    found = relative_shift(pairs_of([10 * each for each in lengths], [factor * each for each in lengths]))
    assert found is not None
    assert (found.value, found.se, found.interval()) == (value, 0.0, (value, value))


def test_what_does_not_vary_needs_more_answers_to_say_so() -> None:
    equal = [relative_shift(pairs_of([10] * n, [11] * n)) for n in (29, 30)]
    assert [found.interval() if found else None for found in equal] == [None, (0.1, 0.1)]


@pytest.mark.parametrize(("n", "known"), [(9, False), (10, True)])
def test_few_answers_have_no_interval(n: int, known: bool) -> None:
    found = relative_shift(pairs_of([10] * n, [9, *[11] * (n - 1)]))
    assert found is not None
    assert (found.interval() is not None) is known


def test_seeds_of_one_item_are_no_new_items() -> None:
    once = relative_shift(pairs_of([10, 20] * 5, [12, 21] * 5))
    base, candidate = [10, 10, 20, 20] * 5, [12, 12, 21, 21] * 5
    twice = relative_shift(pairs_of(base, candidate, cluster_of=2))
    assert once is not None
    assert twice is not None
    assert (twice.n, twice.clusters) == (20, 10)
    assert twice.se == pytest.approx(once.se)
    assert twice.interval() == pytest.approx(once.interval())


@pytest.mark.parametrize("pairs", [[], pairs_of([0, 0], [3, 4])])
def test_without_a_mean_to_compare_with_there_is_no_ratio(pairs: list[LengthPair]) -> None:
    assert relative_shift(pairs) is None


def test_one_cluster_tells_nothing() -> None:
    found = relative_shift(pairs_of([10] * 40, [11, 12] * 20, cluster_of=40))
    assert found is not None
    assert found.value == pytest.approx(0.15)
    assert (found.se, found.interval()) == (None, None)


def test_the_interval_covers_as_often_as_it_says() -> None:
    """Skewed lengths whose noise grows with them, true ratio 1.05: about 95 in 100 intervals have it."""
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(400):
        base = rng.lognormal(5, 0.6, 100)
        candidate = base * 1.05 * rng.lognormal(-0.02, 0.2, 100)
        found = relative_shift(pairs_of(np.rint(base).astype(int).tolist(), np.rint(candidate).astype(int).tolist()))
        low, high = (found.interval() if found else None) or (0.0, 0.0)
        covered += low <= 0.05 <= high
    assert 365 <= covered <= 393


LENGTHS = st.lists(st.tuples(st.integers(1, 4000), st.integers(0, 4000)), min_size=10, max_size=60)


@given(LENGTHS, st.integers(1, 3), st.randoms(use_true_random=False))
def test_the_interval_holds_the_ratio_in_any_order(
    lengths: list[tuple[int, int]], cluster_of: int, order: random.Random
) -> None:
    pairs = pairs_of([base for base, _ in lengths], [candidate for _, candidate in lengths], cluster_of)
    found = relative_shift(pairs)
    assert found is not None
    assert found.value == pytest.approx(sum(c for _, c in lengths) / sum(b for b, _ in lengths) - 1)
    interval = found.interval()
    assert interval is None or interval[0] <= found.value <= interval[1]
    again = relative_shift(order.sample(pairs, len(pairs)))
    assert again is not None
    assert again.value == found.value
    assert again.se == pytest.approx(found.se)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=50))
def test_equal_lengths_never_shift(lengths: list[int]) -> None:
    found = relative_shift(pairs_of(lengths, lengths))
    assert found is None if sum(lengths) == 0 else found is not None and found.value == 0.0 and not found.se


# --- which answers


def test_pairs_are_by_item_and_seed() -> None:
    base = suite(item("a", 3), item("a", 5, seed=1), item("b", 7))
    pairs, left_out = length_pairs(base, suite(item("b", 8), item("a", 6, seed=1), item("a", 4)))
    assert [(pair.base, pair.candidate, pair.cluster) for pair in pairs] == [
        (3, 4, "s/a"),
        (5, 6, "s/a"),
        (7, 8, "s/b"),
    ]
    assert left_out == 0


def test_what_failed_or_has_no_count_on_either_side_is_left_out() -> None:
    base = suite(item("a", 3), item("b", None), item("c", 4), item("d", None, Outcome.FAILED), item("e", 5))
    ours = suite(item("a", 3), item("b", 4), item("c", 9, Outcome.FAILED), item("d", 4), item("e", None))
    pairs, left_out = length_pairs(base, ours)
    assert ([pair.cluster for pair in pairs], left_out) == (["s/a"], 4)


def test_a_right_answer_may_be_cut_too() -> None:
    base = suite(item("a", 100), item("b", 99), item("c", 40, Outcome.TRUNCATED))
    pairs, _ = length_pairs(base, suite(item("a", 99), item("b", 100), item("c", 50)))
    assert [(pair.base_cut, pair.candidate_cut) for pair in pairs] == [(True, False), (False, True), (True, False)]


def test_unequal_items_are_no_pairs() -> None:
    with pytest.raises(UnequalItems, match="1 only of the baseline"):
        length_pairs(suite(item("a", 3), item("b", 3)), suite(item("a", 3)))


def test_the_mean_is_of_the_answers_with_a_count() -> None:
    answers = [item("a", 3), item("b", 5), item("c", None), item("d", 90, Outcome.FAILED)]
    assert mean_tokens(answers) == (4.0, 2)
    assert mean_tokens(answers[2:]) is None

"""Tango's interval and McNemar's test against published values and against their definitions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import binomtest, norm

from pytest_tokenwatt.metrics.mcnemar import mcnemar_exact_p, mcnemar_mid_p
from pytest_tokenwatt.metrics.tango import tango_interval


@pytest.mark.parametrize(
    ("first_only", "second_only", "n", "level", "low", "high", "digits"),
    [
        # Fagerland, Lydersen and Laake, Statistical Analysis of Contingency Tables (2017), ch. 8: Cavo et al. 2012
        (6, 16, 161, 0.95, -0.1240, -0.0054, 4),
        # the same authors, Statistics in Medicine 33 (2014) 2850, table V: Bentur et al. 2009
        (1, 7, 21, 0.95, -0.517, -0.026, 3),
        # R's PropCIs 0.3-0, scoreci.mp(25, 28, 618, 0.90)
        (28, 25, 618, 0.90, -0.0148, 0.0247, 4),
        # nothing flips: z² / (n + z²)
        (0, 0, 1319, 0.95, -0.0029, 0.0029, 4),
        (0, 0, 20, 0.95, -0.161, 0.161, 3),
        (5, 0, 5, 0.95, 0.131, 1.0, 3),
    ],
)
def test_published_intervals(
    first_only: int, second_only: int, n: int, level: float, low: float, high: float, digits: int
) -> None:
    found = tango_interval(first_only, second_only, n, level)
    assert [round(end, digits) for end in found] == [low, high]


counts = st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 400)).filter(lambda found: sum(found) > 0)


@given(counts, st.sampled_from([0.90, 0.95, 0.99]))
def test_the_ends_are_where_the_score_test_rejects(found: tuple[int, int, int], level: float) -> None:
    first, second, rest = found
    n = first + second + rest
    low, high = tango_interval(first, second, n, level)
    quantile = norm.ppf(0.5 + level / 2)
    assert -1 <= low <= (first - second) / n <= high <= 1
    for end, outside in ((low, -1), (high, 1)):
        step = 1e-3 * (1 - abs(end))
        if step > 1e-9:
            assert abs(statistic(first, second, n, end + outside * step)) > quantile
            inside = end - outside * min(step, (high - low) / 2)
            assert abs(statistic(first, second, n, inside)) < quantile + 1e-6


def statistic(first: int, second: int, n: int, difference: float) -> float:
    """The score statistic by its definition, the nuisance parameter found by maximising the likelihood."""
    least, most = max(0.0, -difference), (1 - difference) / 2

    def loss(chance: float) -> float:
        parts = ((first, chance + difference), (second, chance), (n - first - second, 1 - 2 * chance - difference))
        return -sum(count * math.log(max(share, 1e-300)) for count, share in parts if count)

    chance = minimize_scalar(loss, bounds=(least, most), method="bounded", options={"xatol": 1e-12}).x
    # The search stays off its bounds; the maximum may lie on one.
    chance = min((chance, least, most), key=loss)
    variance = n * (2 * chance + difference * (1 - difference))
    return (first - second - n * difference) / math.sqrt(max(variance, 1e-300))


@given(counts)
def test_swapping_the_two_mirrors_the_interval(found: tuple[int, int, int]) -> None:
    first, second, _ = found
    low, high = tango_interval(first, second, sum(found))
    assert tango_interval(second, first, sum(found)) == pytest.approx((-high, -low), abs=1e-9)


@given(counts)
def test_a_wider_level_and_a_smaller_sample_give_a_wider_interval(found: tuple[int, int, int]) -> None:
    first, second, n = found[0], found[1], sum(found)
    low, high = tango_interval(first, second, n)
    inner = tango_interval(first, second, n, 0.90)
    half = tango_interval(first / 2, second / 2, n / 2)
    assert low <= inner[0] <= inner[1] <= high
    assert half[1] - half[0] >= high - low - 1e-9


@pytest.mark.parametrize(
    ("first_only", "second_only", "n", "level"), [(3, 3, 5, 0.95), (-1, 0, 5, 0.95), (0, 0, 0, 0.95), (1, 1, 5, 1.0)]
)
def test_what_is_no_sample_is_refused(first_only: int, second_only: int, n: int, level: float) -> None:
    with pytest.raises(ValueError):
        tango_interval(first_only, second_only, n, level)


def test_mcnemar_as_published() -> None:
    # Fagerland, Lydersen and Laake (2017), ch. 8: 6 and 16 discordant pairs
    assert mcnemar_exact_p(6, 16) == pytest.approx(0.052479, abs=5e-7)
    assert mcnemar_mid_p(6, 16) == pytest.approx(0.034690, abs=5e-7)


def test_mcnemar_without_flips_says_nothing() -> None:
    assert (mcnemar_exact_p(0, 0), mcnemar_mid_p(0, 0)) == (1.0, 1.0)


@given(st.integers(0, 300), st.integers(0, 300))
def test_mcnemar_is_a_binomial_test(one: int, other: int) -> None:
    if one + other:
        assert mcnemar_exact_p(one, other) == pytest.approx(binomtest(one, one + other).pvalue, rel=1e-6)
    assert 0 < mcnemar_mid_p(one, other) <= mcnemar_exact_p(one, other)
    assert mcnemar_mid_p(one, other) == mcnemar_mid_p(other, one)

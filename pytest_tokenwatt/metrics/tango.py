"""Tango's score interval for the difference of two paired proportions."""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.special import ndtri

_HALVINGS = 60


def tango_interval(
    first_only: float, second_only: float, n: float, level: float = 0.95, *, quantile: float | None = None
) -> tuple[float, float]:
    """The two-sided interval of p(first) − p(second) as fractions, from ``n`` pairs and their two kinds of flips.

    All differences d are inside that the score statistic T(d) = (b − c − n·d) / sqrt(n (2q + d (1 − d))) does not
    reject, q being the maximum-likelihood estimate of P(second only) under d (Tango, Statistics in Medicine 17, 1998,
    891-908). It is not empty of width when nothing flips: ±z² / (n + z²). ``quantile`` replaces the normal one of
    ``level``; counts may be fractions (effective counts of a clustered sample). Raises ``ValueError`` for counts that
    are no sample or a level outside (0, 1).
    """
    if not (n > 0 and first_only >= 0 and second_only >= 0 and first_only + second_only <= n * (1 + 1e-12)):
        raise ValueError(f"{first_only:g} and {second_only:g} flips of {n:g} pairs are no sample")
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, not {level!r}")
    bound = float(ndtri(0.5 + level / 2)) if quantile is None else quantile
    estimate = (first_only - second_only) / n

    def score(difference: float) -> float:
        return _score(first_only, second_only, n, difference)

    low = _crossing(lambda difference: score(difference) > bound, -1.0, estimate)
    high = _crossing(lambda difference: score(difference) >= -bound, estimate, 1.0)
    return low, high


def _score(first_only: float, second_only: float, n: float, difference: float) -> float:
    linear = (2 * n - first_only + second_only) * difference - first_only - second_only
    constant = -second_only * difference * (1 - difference)
    second = (math.sqrt(max(0.0, linear * linear - 8 * n * constant)) - linear) / (4 * n)
    variance = n * (2 * second + difference * (1 - difference))
    excess = first_only - second_only - n * difference
    if variance <= 0:
        return math.copysign(math.inf, excess) if excess else 0.0
    return excess / math.sqrt(variance)


def _crossing(is_below: Callable[[float], bool], low: float, high: float) -> float:
    """Where a predicate that holds below some point ceases to hold."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return (low + high) / 2

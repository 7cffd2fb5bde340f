"""Nearest-rank percentiles with +inf for what never came, and their distribution-free intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr, bdtrc

Floats: TypeAlias = npt.NDArray[np.float64]
Counts: TypeAlias = npt.NDArray[np.int64]

TAIL = 0.025
"""Probability left out at each end of a two-sided 95 % interval."""


def _share(percentile: float) -> Fraction:
    """The percentile as an exact share: 99.9 is 999/1000, which no binary float is."""
    if not 0 < percentile < 100:
        raise ValueError(f"a percentile lies between 0 and 100, not {percentile!r}")
    return Fraction(repr(float(percentile))) / 100


def nearest_rank(percentile: float, n: int) -> int:
    """The 1-based rank of the percentile in a sample of ``n`` ≥ 1: the smallest rank ≥ p · n.

    Raises ``ValueError`` for a percentile outside (0, 100).
    """
    return max(1, math.ceil(_share(percentile) * n))


def allowed_misses(percentile: float, n: int) -> int:
    """How many of ``n`` requests may lie above a bound while the percentile is still within it."""
    return n - nearest_rank(percentile, n) if n else 0


def needed_requests(percentile: float) -> int:
    """The smallest sample in which the percentile is not simply the maximum: n ≥ 1 / (1 − p); 100 for p99."""
    return math.ceil(1 / (1 - _share(percentile)))


def lower_rank(percentile: float, n: int, tail: float = TAIL) -> int | None:
    """The highest rank r with P(quantile < X_(r)) ≤ ``tail``, or ``None`` when the sample has no such rank.

    The number of observations at or below the quantile is binomial (n, p), so P(quantile < X_(r)) = P(B ≤ r − 1).
    """
    share = percentile / 100
    low, high = 0, n
    while low < high:
        middle = (low + high + 1) // 2
        if bdtr(middle - 1, n, share) <= tail:
            low = middle
        else:
            high = middle - 1
    return low or None


def upper_rank(percentile: float, n: int, tail: float = TAIL) -> int | None:
    """The lowest rank r with P(X_(r) < quantile) = P(B ≥ r) ≤ ``tail``, or ``None`` when the upper end is infinite.

    A finite one for p99 needs 368 observations at ``tail`` 0.025 (two-sided 95 %) and 299 at 0.05 (one-sided).
    """
    share = percentile / 100
    low, high = 1, n + 1
    while low < high:
        middle = (low + high) // 2
        if bdtrc(middle - 1, n, share) <= tail:
            high = middle
        else:
            low = middle + 1
    return low if low <= n else None


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """A sorted, weighted sample of one latency in seconds, +inf included.

    ``upto[i]`` is the number of observations up to and including ``values[i]``. ``effective`` is the number of
    independent ones that intervals count with: requests rather than tokens, one window rather than its replicas.
    """

    values: Floats
    upto: Counts
    effective: int

    @classmethod
    def of(cls, values: Sequence[float] | Floats) -> Sample:
        """One observation a request."""
        ordered = np.sort(np.asarray(values, dtype=np.float64))
        return cls(ordered, np.arange(1, len(ordered) + 1, dtype=np.int64), len(ordered))

    @classmethod
    def weighted(cls, values: Floats, weights: Counts, effective: int) -> Sample:
        """``weights[i]`` observations of ``values[i]`` from ``effective`` independent sources."""
        order = np.argsort(values, kind="stable")
        return cls(values[order], np.cumsum(weights[order], dtype=np.int64), effective)

    @classmethod
    def pooled(cls, samples: Sequence[Sample], replicas: int = 1) -> Sample:
        """The union of samples; ``replicas`` windows that replay one schedule count as one window in intervals."""
        values = np.concatenate([sample.values for sample in samples]) if samples else np.empty(0)
        counts = [np.diff(sample.upto, prepend=0) for sample in samples]
        weights = np.concatenate(counts) if counts else np.empty(0, np.int64)
        return cls.weighted(values, weights, sum(sample.effective for sample in samples) // replicas)

    @property
    def n(self) -> int:
        """The number of observations."""
        return int(self.upto[-1]) if len(self.upto) else 0

    def at_rank(self, rank: int) -> float:
        """The observation at a 1-based rank, in seconds."""
        return float(self.values[np.searchsorted(self.upto, rank)])

    def percentile(self, percentile: float) -> float | None:
        """The nearest-rank percentile in seconds, ``inf`` on a failed request; ``None`` of an empty sample."""
        return self.at_rank(nearest_rank(percentile, self.n)) if self.n else None

    def above(self, bound_s: float) -> int:
        """How many observations lie above a bound."""
        within = int(np.searchsorted(self.values, bound_s, side="right"))
        return self.n - (int(self.upto[within - 1]) if within else 0)

    def interval(self, percentile: float) -> tuple[float | None, float | None]:
        """The two-sided 95 % interval of the percentile in seconds; ``None`` for an end that is not finite."""
        low = lower_rank(percentile, self.effective)
        high = upper_rank(percentile, self.effective)
        return self._end(low), self._end(high)

    def _end(self, rank: int | None) -> float | None:
        if rank is None or not self.n:
            return None
        value = self.at_rank(math.ceil(Fraction(rank, self.effective) * self.n))
        return value if math.isfinite(value) else None

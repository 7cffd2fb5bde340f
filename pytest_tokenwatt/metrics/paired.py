"""A candidate's answers against the baseline's, item by item."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, stdtr, stdtrit

from pytest_tokenwatt.errors import TokenwattError
from pytest_tokenwatt.metrics.clusters import Clustering, clustering
from pytest_tokenwatt.metrics.mcnemar import mcnemar_exact_p, mcnemar_mid_p
from pytest_tokenwatt.metrics.tango import tango_interval
from pytest_tokenwatt.records.accuracy import ItemResult, Outcome

_NAMED = 3


class UnequalItems(TokenwattError):
    """Two results are not of the same items; ``reason`` is the code of the verdict."""

    def __init__(self, what: str) -> None:
        self.reason = "unequal_items"
        super().__init__(what, remedy="compare two runs of one suite with the same limit and seeds")


@dataclass(frozen=True, slots=True)
class PairCounts:
    """How often both, one or neither of two configurations were right."""

    both_right: int
    base_only: int
    candidate_only: int
    neither: int

    @property
    def n(self) -> int:
        """The pairs in which both were answered."""
        return self.both_right + self.base_only + self.candidate_only + self.neither

    @property
    def flips(self) -> int:
        """Pairs that changed, either way."""
        return self.base_only + self.candidate_only

    @property
    def flip_rate(self) -> float | None:
        """Share of the pairs that changed; ``None`` without pairs."""
        return self.flips / self.n if self.n else None

    @property
    def delta_pts(self) -> float | None:
        """Candidate − baseline in points; ``None`` without pairs."""
        return 100.0 * (self.candidate_only - self.base_only) / self.n if self.n else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A candidate against the baseline on the same items. ``failed_pairs`` are left out: one of them had no answer.

    ``clusters`` is ``None`` when every pair stands for itself. With clusters (items that share a template, several
    seeds of an item) the interval is still Tango's, of counts divided by the design effect and with Student's t of
    G − 1 degrees of freedom: unlike ± t · SE it keeps a width when nothing flips.
    """

    counts: PairCounts
    failed_pairs: int = 0
    clusters: Clustering | None = None
    single_cluster: bool = False

    @property
    def delta_pts(self) -> float | None:
        """Candidate − baseline in points; ``None`` without pairs."""
        return self.counts.delta_pts

    @property
    def effective_n(self) -> float:
        """The independent pairs that the sample is worth."""
        if self.single_cluster:
            return 1.0
        return self.counts.n / (self.clusters.design_effect if self.clusters else 1.0)

    @property
    def se_pts(self) -> float | None:
        """The standard error of the difference in points, cluster-robust where there are clusters."""
        n, flips = self.counts.n, self.counts.flips
        if self.clusters is not None:
            return 100.0 * self.clusters.se
        if n < 2 or self.single_cluster:
            return None
        difference = (self.counts.candidate_only - self.counts.base_only) / n
        return 100.0 * float(np.sqrt((flips / n - difference**2) / (n - 1)))

    def interval_pts(self, level: float = 0.95) -> tuple[float, float] | None:
        """The two-sided interval of candidate − baseline in points; ``None`` without pairs. ±100 of one cluster."""
        if not self.counts.n:
            return None
        if self.single_cluster:
            return -100.0, 100.0
        tail = 0.5 + level / 2
        quantile = float(stdtrit(self.clusters.clusters - 1, tail) if self.clusters else ndtri(tail))
        gained, lost, n = self._effective_counts()
        low, high = tango_interval(gained, lost, n, level, quantile=quantile)
        return 100.0 * low, 100.0 * high

    @property
    def exact_p(self) -> float | None:
        """McNemar's exact two-sided p value; ``None`` with clusters, whose flips are not independent."""
        return None if self._is_clustered else mcnemar_exact_p(self.counts.base_only, self.counts.candidate_only)

    @property
    def mid_p(self) -> float | None:
        """McNemar's mid-p value; ``None`` with clusters."""
        return None if self._is_clustered else mcnemar_mid_p(self.counts.base_only, self.counts.candidate_only)

    @property
    def p_value(self) -> float | None:
        """Two-sided p value of no difference: mid-p, or with clusters the score test of the effective counts."""
        if not self._is_clustered:
            return self.mid_p
        gained, lost, _ = self._effective_counts()
        if self.clusters is None or not gained + lost:
            return 1.0
        score = abs(gained - lost) / (gained + lost) ** 0.5
        return float(2.0 * stdtr(self.clusters.clusters - 1, -score))

    @property
    def _is_clustered(self) -> bool:
        return self.single_cluster or self.clusters is not None

    def _effective_counts(self) -> tuple[float, float, float]:
        share = self.effective_n / self.counts.n
        return self.counts.candidate_only * share, self.counts.base_only * share, self.effective_n


def compare(baseline: Sequence[ItemResult], candidate: Sequence[ItemResult]) -> Comparison:
    """Pair two results by item and seed. Raises ``UnequalItems``, naming some, when one has what the other lacks."""
    pairs = pair_items(baseline, candidate)
    answered = [pair for pair in pairs if Outcome.FAILED not in (pair[0].outcome, pair[1].outcome)]
    base = np.array([pair[0].outcome is Outcome.CORRECT for pair in answered], dtype=np.int8)
    other = np.array([pair[1].outcome is Outcome.CORRECT for pair in answered], dtype=np.int8)
    both, gained = int(np.sum(base & other)), int(np.sum(other > base))
    lost = int(np.sum(base > other))
    counts = PairCounts(both, lost, gained, len(answered) - both - gained - lost)
    labels = [pair[0].cluster or pair[0].id for pair in answered]
    distinct, failed = len(set(labels)), len(pairs) - len(answered)
    if distinct == len(labels):
        return Comparison(counts, failed)
    if distinct == 1:
        return Comparison(counts, failed, single_cluster=True)
    return Comparison(counts, failed, clustering(other - base, labels))


def pair_items(baseline: Sequence[ItemResult], candidate: Sequence[ItemResult]) -> list[tuple[ItemResult, ItemResult]]:
    """Baseline and candidate of each item and seed, in the baseline's order. Raises ``UnequalItems``."""
    ours, theirs = _by_key(baseline, "the baseline"), _by_key(candidate, "the candidate")
    if ours.keys() != theirs.keys():
        missing, surplus = ours.keys() - theirs.keys(), theirs.keys() - ours.keys()
        sides = ((missing, "the baseline"), (surplus, "the candidate"))
        parts = [f"{len(keys)} only of {side} ({_some(keys)})" for keys, side in sides if keys]
        raise UnequalItems(f"the items differ: {', '.join(parts)}")
    return [(item, theirs[key]) for key, item in ours.items()]


def _by_key(items: Sequence[ItemResult], side: str) -> dict[tuple[str, int], ItemResult]:
    found = {(item.id, item.seed): item for item in items}
    if len(found) < len(items):
        counts = Counter((item.id, item.seed) for item in items)
        twice = [key for key, count in counts.items() if count > 1]
        raise UnequalItems(f"{side} has {len(twice)} items twice ({_some(twice)})")
    return found


def _some(keys: Collection[tuple[str, int]]) -> str:
    named = [f"{name} seed {seed}" for name, seed in sorted(keys)[:_NAMED]]
    return ", ".join(named) + (", …" if len(keys) > _NAMED else "")

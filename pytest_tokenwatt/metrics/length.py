"""How much longer or shorter a candidate's answers are than the baseline's to the same items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from pytest_tokenwatt.metrics.clusters import clustering
from pytest_tokenwatt.metrics.paired import pair_items
from pytest_tokenwatt.records.accuracy import ItemResult, Outcome, SuiteRecord

LEAST_CLUSTERS = 10
"""Independent items below which a linearised ratio has no interval."""
LEAST_EQUAL = 30
"""Independent items below which answers that all changed by one factor have no interval.

Of G items without a single exception up to 3 in G may be one (95 %). At 30 those could hide a shift of 10 % only if
each of them came out twice as long; of fewer items, moderate exceptions would do.
"""


@dataclass(frozen=True, slots=True)
class LengthPair:
    """Generated tokens of one item asked with one seed of both sides; ``cluster`` groups those not independent.

    A side is ``cut`` when its answer ended at max_tokens, so that its own end is not known.
    """

    base: int
    candidate: int
    cluster: str
    base_cut: bool = False
    candidate_cut: bool = False


@dataclass(frozen=True, slots=True)
class RelativeShift:
    """Mean generated tokens of the candidate over the baseline's, minus 1, from ``n`` pairs in ``clusters``.

    ``se`` is its standard error, ``None`` of a single cluster.
    """

    value: float
    se: float | None
    n: int
    clusters: int

    def interval(self, level: float = 0.95) -> tuple[float, float] | None:
        """Two-sided, ± t · SE with Student's t of one degree of freedom less than clusters.

        ``None`` below ``LEAST_CLUSTERS`` clusters, and below ``LEAST_EQUAL`` when there is no variation at all.
        """
        if self.se is None or self.clusters < (LEAST_CLUSTERS if self.se > 0 else LEAST_EQUAL):
            return None
        half = float(stdtrit(self.clusters - 1, 0.5 + level / 2)) * self.se
        return self.value - half, self.value + half


def relative_shift(pairs: Sequence[LengthPair]) -> RelativeShift | None:
    """The ratio R of the two means, minus 1; ``None`` without pairs or when the baseline generated nothing.

    The error is that of the linearised ratio (Cochran, Sampling Techniques, 3rd ed., section 6.4): the error of the
    mean of the residuals candidate − R · base, clustered, over the baseline's mean.
    """
    base = np.array([pair.base for pair in pairs], dtype=np.int64)
    candidate = np.array([pair.candidate for pair in pairs], dtype=np.int64)
    of_base, of_candidate = int(base.sum()), int(candidate.sum())
    if not of_base:
        return None
    value = (of_candidate - of_base) / of_base
    labels = [pair.cluster for pair in pairs]
    clusters = len(set(labels))
    if clusters < 2:
        return RelativeShift(value, None, len(pairs), clusters)
    # Whole numbers until the division, so that a constant factor leaves residuals of exactly 0.
    residuals = (candidate * of_base - base * of_candidate) / of_base
    error = clustering(residuals, labels).se / (of_base / len(pairs))
    return RelativeShift(value, error, len(pairs), clusters)


def length_pairs(base: SuiteRecord, candidate: SuiteRecord) -> tuple[list[LengthPair], int]:
    """The pairs of one suite by item and seed, and how many are left out: failed or not counted on either side.

    Raises ``UnequalItems`` when one has what the other lacks.
    """
    both = pair_items(base.items, candidate.items)
    pairs = [
        LengthPair(
            base=ours.output_tokens,
            candidate=theirs.output_tokens,
            cluster=f"{base.name}/{ours.cluster or ours.id}",
            base_cut=_is_cut(ours, base.max_tokens),
            candidate_cut=_is_cut(theirs, candidate.max_tokens),
        )
        for ours, theirs in both
        if Outcome.FAILED not in (ours.outcome, theirs.outcome)
        and ours.output_tokens is not None
        and theirs.output_tokens is not None
    ]
    return pairs, len(both) - len(pairs)


def _is_cut(item: ItemResult, max_tokens: int) -> bool:
    """An answer may be right although it was cut, so that its outcome alone does not tell."""
    return item.outcome is Outcome.TRUNCATED or (item.output_tokens or 0) >= max_tokens


def mean_tokens(items: Iterable[ItemResult]) -> tuple[float, int] | None:
    """Mean generated tokens of the answers that have a count, and how many those are; ``None`` without any."""
    counts = [item.output_tokens for item in items if item.outcome is not Outcome.FAILED]
    known = [count for count in counts if count is not None]
    return (sum(known) / len(known), len(known)) if known else None

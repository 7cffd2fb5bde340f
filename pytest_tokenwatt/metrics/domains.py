"""Several domains together: mean drop, worst domain, tier, and p values corrected for their number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_tokenwatt.metrics.paired import Comparison, compare
from pytest_tokenwatt.records.accuracy import ItemResult

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class DomainSummary:
    """Drops are baseline − candidate in points: positive is worse. All but the counts ``None`` without a valid domain.

    ``tier`` is also ``None`` when the mean drop is beyond every tier. ``left_out`` names the domains without a delta.
    """

    mean_drop_pts: float | None
    worst: str | None
    worst_drop_pts: float | None
    tier: str | None
    valid_domains: int
    left_out: tuple[str, ...] = ()


def summarise(deltas_pts: Mapping[str, float | None], tiers: Mapping[str, float]) -> DomainSummary:
    """Of candidate − baseline by domain (``None``: not measured or invalid): each valid domain counts the same.

    ``tiers`` maps names to the largest mean drop in points.
    """
    drops = {name: -delta for name, delta in deltas_pts.items() if delta is not None}
    left_out = tuple(name for name in deltas_pts if name not in drops)
    if not drops:
        return DomainSummary(None, None, None, None, 0, left_out)
    mean = sum(drops.values()) / len(drops)
    worst = max(drops, key=lambda name: drops[name])
    return DomainSummary(mean, worst, drops[worst], tier_of(mean, tiers), len(drops), left_out)


def tier_of(mean_drop_pts: float, tiers: Mapping[str, float]) -> str | None:
    """The tier with the smallest limit that the drop is within; ``None`` beyond all of them."""
    within = [name for name, limit in tiers.items() if mean_drop_pts <= limit + _ROUNDING]
    return min(within, key=lambda name: tiers[name], default=None)


def compare_by_domain(
    baseline: Sequence[ItemResult], candidate: Sequence[ItemResult], domains: Mapping[str, str]
) -> dict[str, Comparison]:
    """One comparison a domain, of items whose id ``domains`` maps to it; others belong to none.

    Raises ``UnequalItems`` as ``compare`` does.
    """
    ours, theirs = _by_domain(baseline, domains), _by_domain(candidate, domains)
    return {name: compare(ours.get(name, ()), theirs.get(name, ())) for name in {**ours, **theirs}}


def _by_domain(items: Sequence[ItemResult], domains: Mapping[str, str]) -> dict[str, list[ItemResult]]:
    found: defaultdict[str, list[ItemResult]] = defaultdict(list)
    for item in items:
        if item.id in domains:
            found[domains[item.id]].append(item)
    return dict(found)


def holm(p_values: Mapping[str, float | None]) -> dict[str, float]:
    """P values corrected for the number of domains (Holm's step-down); those that are ``None`` are no tests.

    The k-th smallest of m is multiplied by m − k + 1, and none is below a smaller one's.
    """
    known = sorted((value, name) for name, value in p_values.items() if value is not None)
    corrected: dict[str, float] = {}
    highest = 0.0
    for rank, (value, name) in enumerate(known):
        highest = max(highest, min(1.0, value * (len(known) - rank)))
        corrected[name] = highest
    return {name: corrected[name] for name in p_values if name in corrected}

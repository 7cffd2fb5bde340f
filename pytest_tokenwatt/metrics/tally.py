"""What the outcomes of one pass over a suite add up to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from pytest_tokenwatt.records.accuracy import ItemResult, Outcome
from pytest_tokenwatt.records.base import Reason

LARGEST_FAILED_SHARE = 0.01
"""Share of failed items above which a score is not to be believed."""


def outcome_counts(items: Iterable[ItemResult]) -> dict[str, int]:
    """How often each outcome occurred, all five named."""
    seen = Counter(item.outcome for item in items)
    return {outcome.value: seen[outcome] for outcome in Outcome}


def score_pct(items: Iterable[ItemResult]) -> float | None:
    """100 · correct / answered over all seeds; failed items are left out. ``None`` when nothing was answered."""
    answered = [item.outcome is Outcome.CORRECT for item in items if item.outcome is not Outcome.FAILED]
    return 100.0 * sum(answered) / len(answered) if answered else None


def spread_pts(items: Iterable[ItemResult]) -> float | None:
    """Max − min of the score over seeds; ``None`` below two seeds, or when one of them has no score."""
    by_seed: defaultdict[int, list[ItemResult]] = defaultdict(list)
    for item in items:
        by_seed[item.seed].append(item)
    scores = [score_pct(seed) for seed in by_seed.values()]
    known = [score for score in scores if score is not None]
    return max(known) - min(known) if len(known) == len(scores) > 1 else None


def failed_reasons(items: Sequence[ItemResult]) -> tuple[Reason, ...]:
    """Why a score is invalid: nothing was asked, or more than 1 % of the items failed."""
    if not items:
        return (Reason("no_items", "no item of the suite was asked"),)
    failed = [item for item in items if item.outcome is Outcome.FAILED]
    if len(failed) <= LARGEST_FAILED_SHARE * len(items):
        return ()
    first = f"; {failed[0].id}: {failed[0].detail}" if failed[0].detail else ""
    return (Reason("items_failed", f"{len(failed)} of {len(items)} items failed, at most 1 % may{first}"),)

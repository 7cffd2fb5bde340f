"""How far equal measurements differ, in per cent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def spread_pct(values: Sequence[float | None]) -> float | None:
    """100 · (max − min) / mean over repeats; ``None`` below two repeats, with a missing one, or a mean of zero."""
    known = [value for value in values if value is not None]
    mean = sum(known) / len(known) if known else 0.0
    if len(known) < 2 or len(known) < len(values) or mean <= 0:
        return None
    return 100.0 * (max(known) - min(known)) / mean


def drift_pct(first: float | None, again: float | None) -> float | None:
    """100 · |A′ − A| / A of a repeated measurement; ``None`` when either is missing or A is zero."""
    if not first or again is None:
        return None
    return 100.0 * abs(again - first) / first


def widest(bands: Iterable[float | None]) -> float | None:
    """The largest band that is known; ``None`` when none is."""
    return max((band for band in bands if band is not None), default=None)

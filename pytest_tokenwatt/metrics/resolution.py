"""What a sample can tell: the drop that n pairs resolve, and the pairs that a margin needs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import ndtri

ASSUMED_FLIP_RATE = 0.05
"""Share of items that flip between two runs where none was measured."""

LEAST_MARGIN_PTS = 0.01
"""Below it no number of items is worth telling: 31 million at the assumed rate."""

# One-sided 5 %, power 80 %: 61,826 pairs for one point if every item flips.
_FACTOR = float(ndtri(0.95) + ndtri(0.80)) ** 2


@dataclass(frozen=True, slots=True)
class Resolution:
    """The smallest drop in points that ``n`` pairs show with 80 % power at one-sided 5 %.

    ``source`` says where ``flip_rate`` is from: ``control``, ``observed`` or ``assumed``.
    """

    n: float
    flip_rate: float
    source: str
    drop_pts: float

    def items_for(self, margin_pts: float) -> int:
        """The pairs that would resolve a margin at this flip rate."""
        return items_to_resolve(margin_pts, self.flip_rate)


def resolvable_drop_pts(n: float, flip_rate: float) -> float:
    """100 · (z_0.95 + z_0.80) · sqrt(flip_rate / n): the variance of a paired difference is the rate of flips.

    A rate below one flip in ``n`` pairs counts as that: zero flips in a small sample do not resolve everything.
    """
    if not (n > 0 and 0 <= flip_rate <= 1):
        raise ValueError(f"{n:g} pairs with a flip rate of {flip_rate:g} are no sample")
    return 100.0 * math.sqrt(_FACTOR * max(flip_rate, min(1.0, 1.0 / n)) / n)


def items_to_resolve(margin_pts: float, flip_rate: float) -> int:
    """The pairs that resolve a margin in points: 61,826 · flip_rate for one point. At least 1.

    Raises ``ValueError`` for a margin that is not positive or too small for any number, or a rate outside 0 … 1.
    """
    fraction = margin_pts / 100.0
    needed = _FACTOR * flip_rate / fraction / fraction if fraction > 0 and 0 <= flip_rate <= 1 else math.inf
    if not math.isfinite(needed):
        raise ValueError(f"no number of items resolves {margin_pts:g} points at a flip rate of {flip_rate:g}")
    return max(1, math.ceil(needed))


def resolution(n: float, *, control: float | None = None, observed: float | None = None) -> Resolution:
    """What ``n`` pairs resolve at the control's flip rate, else the one observed, else 5 %."""
    for rate, source in ((control, "control"), (observed, "observed")):
        if rate is not None:
            return Resolution(n, rate, source, resolvable_drop_pts(n, rate))
    return Resolution(n, ASSUMED_FLIP_RATE, "assumed", resolvable_drop_pts(n, ASSUMED_FLIP_RATE))

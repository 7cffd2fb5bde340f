"""What a sample of answers can tell, in the words of the accuracy gates."""

from __future__ import annotations

from pytest_tokenwatt.gates.wording import interval, points
from pytest_tokenwatt.records.accuracy import SuiteDelta

_SOURCES = {
    "control": "{:.2g} % flipped in the baseline's control",
    "observed": "{:.2g} % flipped",
    "assumed": "assuming that {:.2g} % flip",
}


def size(delta: SuiteDelta) -> str:
    """ " (200 items)", with several seeds " (600 answers to 200 items)"."""
    return "" if delta.n is None else f" ({_size(delta)})"


def _size(delta: SuiteDelta) -> str:
    items = f"{delta.items} {'item' if delta.items == 1 else 'items'}"
    return items if delta.n == delta.items or delta.items is None else f"{delta.n} answers to {items}"


def difference(delta: SuiteDelta, level: int) -> str:
    """ ", 95 % [-2.4, +1.3]"; nothing without an interval."""
    bounds = _bounds(delta, level)
    return "" if bounds is None else f", {level} % {interval(bounds)}"


def _bounds(delta: SuiteDelta, level: int) -> tuple[float, float] | None:
    return delta.interval_90_pts if level == 90 else delta.interval_pts


def can_resolve(delta: SuiteDelta) -> str:
    """ ", can resolve 3.5 pt"; nothing when the size of the sample is not known."""
    return "" if delta.resolvable_pts is None else f", can resolve {drop(delta.resolvable_pts)} pt"


def drop(points: float) -> str:
    """A drop that is resolved, never shown as none: 3.5, 0.02."""
    return f"{points:.1f}" if points >= 0.1 else f"{points:.1g}"


def flips(delta: SuiteDelta, level: int) -> str:
    """Flips both ways and the interval, as far as they are known, and the drop that so many items can resolve."""
    told = []
    if delta.right_to_wrong is not None:
        told.append(f"{delta.right_to_wrong} right to wrong, {delta.wrong_to_right} wrong to right")
    bounds = _bounds(delta, level)
    if bounds is not None:
        told.append(f"{level} % interval {points(bounds[0])} to {points(bounds[1])} pt")
    sample = "" if delta.resolvable_pts is None else f"; {_sample(delta)} can resolve {_resolvable(delta)}"
    return f" ({', '.join(told)}){sample}" if told else sample


def _sample(delta: SuiteDelta) -> str:
    worth = delta.independent
    whole = worth is None or delta.n is None or worth > delta.n - 0.5
    return _size(delta) if whole else f"{_size(delta)}, worth {worth:.0f} independent ones,"


def _resolvable(delta: SuiteDelta) -> str:
    source = _SOURCES[delta.flip_source or "assumed"].format(100.0 * (delta.flip_rate or 0.0))
    return f"{drop(delta.resolvable_pts or 0.0)} pt ({source})"


def could_be_within(delta: SuiteDelta, limit: float) -> str:
    """Says so when the interval of a difference beyond the limit reaches across it."""
    bounds = delta.interval_pts
    across = bounds is not None and bounds[1] > limit
    return "; the sample cannot tell it from a drop within the limit" if across else ""

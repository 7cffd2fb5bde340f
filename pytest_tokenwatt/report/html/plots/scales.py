"""Axes that people can read: logarithms with plain numbers, never without a tick."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_tokenwatt.report.html.words import figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STEPS = ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))
FEWEST_TICKS, MOST_TICKS = 2, 7


def plain_log(axes: Axes, which: str, values: Sequence[float]) -> None:
    """A logarithmic axis around the positive ``values``, with a handful of round numbers on it."""
    positive = [value for value in values if value > 0]
    low, high = (min(positive), max(positive)) if positive else (1.0, 10.0)
    if high < low * 2.5:
        middle = math.sqrt(low * high)
        low, high = middle / 1.6, middle * 1.6
    # Above the topmost value there is room for a word.
    low, high = low / 1.15, high * (1.35 if which == "y" else 1.15)
    ticks = ticks_between(low, high)
    axis = axes.yaxis if which == "y" else axes.xaxis
    (axes.set_yscale if which == "y" else axes.set_xscale)("log")
    (axes.set_ylim if which == "y" else axes.set_xlim)(low, high)
    axis.set_ticks(ticks, [figure(tick) for tick in ticks])
    axes.minorticks_off()


def ticks_between(low: float, high: float) -> list[float]:
    """Round numbers between two positive ones, at most ``MOST_TICKS``; at least one within a factor of 2."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in _STEPS:
        ticks = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(ticks) <= MOST_TICKS:
            break
    if len(ticks) > MOST_TICKS:
        return ticks[:: math.ceil(len(ticks) / MOST_TICKS)]
    return ticks if len(ticks) >= FEWEST_TICKS else _even(low, high)


def _even(low: float, high: float) -> list[float]:
    """Round numbers at equal distances, where a range is too narrow for steps within a decade."""
    from matplotlib.ticker import MaxNLocator

    found = (float(tick) for tick in MaxNLocator(4).tick_values(low, high))
    return [tick for tick in found if low <= tick <= high]

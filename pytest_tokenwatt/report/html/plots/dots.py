"""Values side by side with their intervals: one row each, told apart by their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_tokenwatt.report.html.canvas import draw, label, note
from pytest_tokenwatt.report.html.page import Page
from pytest_tokenwatt.report.html.palette import INK, LIMIT, PAPER, SOFT
from pytest_tokenwatt.report.html.parts import Picture
from pytest_tokenwatt.report.html.words import figure, interval, with_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW_IN = 0.36
LINE_PT = 11
MOST_ROWS = 40


@dataclass(frozen=True, slots=True)
class Dot:
    """A value of a configuration with its interval; an end that is ``None`` is open or not known."""

    name: str
    config: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """A line to compare with: a limit, or what means no change."""

    name: str
    value: float
    limit: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """What the values are: the words at the axis, the unit, and whether they are bars from zero."""

    axis: str
    unit: str
    from_zero: bool = False
    levels: tuple[Level, ...] = ()


def dot_picture(page: Page, name: str, title: str, dots: Sequence[Dot], scale: Scale, caption: str) -> Picture:
    """Bars from zero, or dots around levels; at most ``MOST_ROWS`` of them, the table has them all."""
    shown = dots[:MOST_ROWS]

    def paint(grid: Sequence[Axes]) -> None:
        axes = grid[0]
        _levels(axes, scale.levels)
        for row, dot in enumerate(shown):
            _paint(page, axes, row, dot, bar=scale.from_zero)
        rows(axes, [dot.name for dot in shown])
        axes.set_xlim(*_range(shown, scale))
        axes.set_title(title, pad=10 + LINE_PT * len(scale.levels))
        axes.set_xlabel(scale.axis)
        axes.locator_params(axis="x", nbins=6)

    more = f" The first {MOST_ROWS} of {len(dots)} are drawn." if len(dots) > MOST_ROWS else ""
    return draw(
        name,
        title,
        _described(shown, scale),
        caption + more,
        paint,
        (1.05 + 0.1 * len(scale.levels) + ROW_IN * len(shown),),
    )


def rows(axes: Axes, names: Sequence[str]) -> None:
    """Names instead of numbers along the side, the first one on top."""
    axes.set_ylim(len(names) - 0.4, -0.7)
    axes.set_yticks(range(len(names)), [label(name) for name in names])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


def _described(dots: Sequence[Dot], scale: Scale) -> str:
    told = [f"{dot.name}: {with_unit(dot.value, scale.unit, digits=4)} {interval(dot.low, dot.high)}" for dot in dots]
    told += [f"Line at {level.name}: {with_unit(level.value, scale.unit)}" for level in scale.levels]
    return ". ".join(each.rstrip() for each in told) + "."


def _levels(axes: Axes, levels: Sequence[Level]) -> None:
    """Their names one above the other, since they may be close."""
    for place, level in enumerate(levels):
        color, dashes = (LIMIT, (5.0, 3.0)) if level.limit else (SOFT, (1.0, 2.0))
        axes.axvline(level.value, color=color, linewidth=1.3, linestyle=(0, dashes))
        above = (0, 2 + LINE_PT * place)
        note(axes, level.name, (level.value, 1), above, color=color, ha="center", xycoords=("data", "axes fraction"))


def _paint(page: Page, axes: Axes, row: int, dot: Dot, *, bar: bool) -> None:
    mark = page.mark(dot.config)
    if bar:
        axes.barh(row, dot.value, height=0.55, color=mark.color, alpha=0.6, hatch=mark.hatch, edgecolor=PAPER)
    ends = [end for end in (dot.low, dot.high) if end is not None]
    if ends:
        low, high = min(dot.value, *ends), max(dot.value, *ends)
        axes.errorbar(
            [dot.value],
            [row],
            xerr=[[dot.value - low], [high - dot.value]],
            fmt="none",
            ecolor=INK if bar else mark.color,
            elinewidth=1.8,
            capsize=4,
        )
    if not bar:
        axes.plot([dot.value], [row], marker=mark.marker, markersize=8, color=mark.color, linestyle="none")
    edge = max([dot.value, *ends])
    place, shift_pt, side = ((edge, row), (7, 0), "left") if bar else ((dot.value, row), (0, 9), "center")
    note(axes, figure(dot.value), place, shift_pt, va="center", ha=side)


def _range(dots: Sequence[Dot], scale: Scale) -> tuple[float, float]:
    """The axis: everything drawn, and room for the numbers on the right."""
    ends = [end for dot in dots for end in (dot.value, dot.low, dot.high) if end is not None]
    ends += [level.value for level in scale.levels] + ([0.0] if scale.from_zero else [])
    low, high = min(ends), max(ends)
    width = (high - low) or abs(high) or 1.0
    return (low if scale.from_zero and low == 0 else low - 0.08 * width), high + 0.2 * width

"""Values side by side with their intervals: one row each, told apart by their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_tokenwatt.report.html.canvas import draw, label
from pytest_tokenwatt.report.html.page import Page
from pytest_tokenwatt.report.html.palette import INK, LIMIT, PAPER, SOFT
from pytest_tokenwatt.report.html.parts import Picture
from pytest_tokenwatt.report.html.words import figure, interval, with_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW_IN = 0.36
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


def dot_picture(
    page: Page,
    *,
    name: str,
    title: str,
    dots: Sequence[Dot],
    axis: str,
    unit: str,
    caption: str,
    from_zero: bool = False,
    levels: Sequence[Level] = (),
) -> Picture:
    """Bars from zero, or dots around ``levels``; at most ``MOST_ROWS`` of them, the table has them all."""
    shown = dots[:MOST_ROWS]
    rows = range(len(shown))

    def paint(grid: Sequence[Axes]) -> None:
        axes = grid[0]
        for level in levels:
            color = LIMIT if level.limit else SOFT
            axes.axvline(level.value, color=color, linewidth=1.3, linestyle=(0, (5, 3)) if level.limit else (0, (1, 2)))
            axes.annotate(
                level.name,
                (level.value, 1),
                xycoords=("data", "axes fraction"),
                xytext=(0, 2),
                textcoords="offset points",
                color=color,
                fontsize=9.5,
                ha="center",
                annotation_clip=False,
            )
        for row, dot in zip(rows, shown, strict=True):
            _paint(page, axes, row, dot, bar=from_zero)
        low, high = _range(shown, levels, from_zero=from_zero)
        axes.set_xlim(low, high)
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.set_yticks(rows, [label(dot.name) for dot in shown])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.set_title(title, pad=20 if levels else 10)
        axes.set_xlabel(axis)
        axes.locator_params(axis="x", nbins=6)

    told = [
        f"{dot.name}: {with_unit(dot.value, unit, digits=4)} {interval(dot.low, dot.high)}".rstrip() for dot in shown
    ]
    told += [f"Line at {level.name}: {with_unit(level.value, unit)}" for level in levels]
    more = f" The first {MOST_ROWS} of {len(dots)} are drawn." if len(dots) > MOST_ROWS else ""
    height = 0.95 + ROW_IN * len(shown)
    return draw(name, title, ". ".join(told) + ".", caption + more, paint, (height,))


def _paint(page: Page, axes: Axes, row: int, dot: Dot, *, bar: bool) -> None:
    mark = page.mark(dot.config)
    if bar:
        axes.barh(row, dot.value, height=0.55, color=mark.color, alpha=0.6, hatch=mark.hatch, edgecolor=PAPER)
    ends = [end for end in (dot.low, dot.high) if end is not None]
    if ends:
        low, high = dot.low if dot.low is not None else dot.value, dot.high if dot.high is not None else dot.value
        axes.errorbar(
            [(low + high) / 2],
            [row],
            xerr=[[(high - low) / 2], [(high - low) / 2]],
            fmt="none",
            ecolor=INK if bar else mark.color,
            elinewidth=1.8,
            capsize=4,
        )
    if not bar:
        axes.plot([dot.value], [row], marker=mark.marker, markersize=8, color=mark.color, linestyle="none")
    edge = max([dot.value, *ends])
    axes.annotate(figure(dot.value), (edge, row), xytext=(7, 0), textcoords="offset points", va="center", fontsize=10)


def _range(dots: Sequence[Dot], levels: Sequence[Level], *, from_zero: bool) -> tuple[float, float]:
    """The axis: everything drawn, and room for the numbers on the right."""
    ends = [end for dot in dots for end in (dot.value, dot.low, dot.high) if end is not None]
    ends += [level.value for level in levels]
    low, high = (min(0.0, *ends) if from_zero else min(ends)), max(ends)
    width = (high - low) or abs(high) or 1.0
    return (low if from_zero and low == 0 else low - 0.08 * width), high + 0.2 * width

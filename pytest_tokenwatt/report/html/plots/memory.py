"""What memory at the peak is made of, by profile and configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_tokenwatt.report.html.canvas import draw, note
from pytest_tokenwatt.report.html.palette import PAPER, SERIES
from pytest_tokenwatt.report.html.parts import Picture
from pytest_tokenwatt.report.html.plots.dots import MOST_ROWS, ROW_IN, rows
from pytest_tokenwatt.report.html.words import figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARTS = (("weights", SERIES[0], ""), ("KV cache", SERIES[1], "///"), ("other", SERIES[2], "..."))
"""Name, colour and hatch, left to right."""


@dataclass(frozen=True, slots=True)
class Split:
    """One peak in GiB."""

    name: str
    weights_gib: float
    kv_gib: float
    other_gib: float
    peak_gib: float


def memory_picture(splits: Sequence[Split]) -> Picture | None:
    """Stacked bars, one a profile and configuration; ``None`` without any."""
    shown = splits[:MOST_ROWS]
    if not shown:
        return None

    def paint(grid: Sequence[Axes]) -> None:
        axes = grid[0]
        ends = _stack(axes, shown)
        for row, split in enumerate(shown):
            note(axes, figure(split.peak_gib), (ends[row], row), (6, 0), va="center")
        rows(axes, [split.name for split in shown])
        axes.set_xlim(0, max(ends) * 1.15 or 1.0)
        axes.set_xlabel("GiB at the peak")
        axes.set_title("Peak memory by profile", pad=30)
        axes.legend(
            loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3, frameon=False, borderaxespad=0.2, handlelength=1.6
        )

    more = f" The first {MOST_ROWS} of {len(splits)} are drawn." if len(splits) > MOST_ROWS else ""
    caption = (
        f"Weights, used KV cache and the rest at the peak of each profile; the pre-allocated pool is not use.{more}"
    )
    title, height_in = "Memory at the peak, split into weights, KV cache and other", 1.3 + ROW_IN * len(shown)
    return draw("memory", title, " ".join(map(_described, shown)), caption, paint, (height_in,))


def _stack(axes: Axes, splits: Sequence[Split]) -> list[float]:
    """Draw the parts side by side; where each row ends, in GiB."""
    left = [0.0] * len(splits)
    for place, (name, color, hatch) in enumerate(PARTS):
        widths = [(split.weights_gib, split.kv_gib, split.other_gib)[place] for split in splits]
        look: dict[str, Any] = {"color": color, "alpha": 0.7, "hatch": hatch, "edgecolor": PAPER}
        axes.barh(range(len(splits)), widths, left=left, height=0.6, label=name, **look)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    return left


def _described(split: Split) -> str:
    return (
        f"{split.name}: weights {figure(split.weights_gib)}, KV cache {figure(split.kv_gib)}, "
        f"other {figure(split.other_gib)}, together {figure(split.peak_gib)} GiB."
    )

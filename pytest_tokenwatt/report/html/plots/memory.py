"""What memory at the peak is made of, by profile and configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_tokenwatt.report.html.canvas import draw, label
from pytest_tokenwatt.report.html.palette import INK, PAPER, SERIES
from pytest_tokenwatt.report.html.parts import Picture
from pytest_tokenwatt.report.html.words import figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW_IN = 0.36
MOST_ROWS = 40
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
        axes, rows = grid[0], list(range(len(shown)))
        left = [0.0] * len(shown)
        for place, (name, color, hatch) in enumerate(PARTS):
            widths = [(split.weights_gib, split.kv_gib, split.other_gib)[place] for split in shown]
            axes.barh(
                rows, widths, left=left, height=0.6, color=color, alpha=0.7, hatch=hatch, edgecolor=PAPER, label=name
            )
            left = [start + width for start, width in zip(left, widths, strict=True)]
        for row, split in zip(rows, shown, strict=True):
            axes.annotate(
                figure(split.peak_gib),
                (left[row], row),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                color=INK,
            )
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.set_xlim(0, max(left) * 1.15 or 1.0)
        axes.set_yticks(rows, [label(split.name) for split in shown])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("GiB at the peak")
        axes.set_title("Peak memory by profile", pad=30)
        axes.legend(
            loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3, frameon=False, borderaxespad=0.2, handlelength=1.6
        )

    told = [
        f"{split.name}: weights {figure(split.weights_gib)}, KV cache {figure(split.kv_gib)}, "
        f"other {figure(split.other_gib)}, together {figure(split.peak_gib)} GiB"
        for split in shown
    ]
    more = f" The first {MOST_ROWS} of {len(splits)} are drawn." if len(splits) > MOST_ROWS else ""
    caption = (
        f"Weights, used KV cache and the rest at the peak of each profile; the pre-allocated pool is not use.{more}"
    )
    height = 1.3 + ROW_IN * len(shown)
    return draw(
        "memory",
        "Memory at the peak, split into weights, KV cache and other",
        ". ".join(told) + ".",
        caption,
        paint,
        (height,),
    )

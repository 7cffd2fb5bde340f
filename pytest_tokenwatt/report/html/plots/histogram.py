"""How a configuration's divergence from the baseline is spread over sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pytest_tokenwatt.report.html.access import items, number
from pytest_tokenwatt.report.html.canvas import draw, label
from pytest_tokenwatt.report.html.page import Page
from pytest_tokenwatt.report.html.palette import LIMIT, PAPER, SOFT
from pytest_tokenwatt.report.html.parts import Picture
from pytest_tokenwatt.report.html.words import clean, counted, figure, with_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CAPTION = (
    "Sequences by the guaranteed lower bound of their divergence; dotted line: the estimate of the mean over sequences."
)
LEAST_COUNT_TICKS = 4


def kl_picture(page: Page, key: str, kl: Mapping[str, Any], limit: float | None) -> Picture | None:
    """Nats per token against the number of sequences; ``None`` without a usable histogram."""
    edges = [number({"edge": edge}, "edge") for edge in items(kl, "histogram", "bins")]
    counts = [number({"count": count}, "count") for count in items(kl, "histogram", "counts")]
    known = [edge for edge in edges if edge is not None]
    heights = [count for count in counts if count is not None]
    if len(known) != len(edges) or len(heights) != len(counts) or not heights or len(known) != len(heights) + 1:
        return None
    if known != sorted(known):
        return None
    mean = number(kl, "kl")
    span = (known[-1] - known[0]) or abs(known[-1]) or 1e-6

    def paint(grid: Sequence[Axes]) -> None:
        from matplotlib.ticker import MaxNLocator

        axes, mark = grid[0], page.mark(key)
        widths = [(high - low) or span / 20 for low, high in pairwise(known)]
        axes.bar(
            known[:-1], heights, widths, align="edge", color=mark.color, alpha=0.65, edgecolor=PAPER, hatch=mark.hatch
        )
        levels = (("mean", mean, SOFT, (0, (1, 2))), ("limit", limit, LIMIT, (0, (5, 3))))
        for name, value, color, dashes in levels:
            # A limit far to the right would squeeze the bars into one; it is in the text below.
            if value is not None and known[0] - span <= value <= known[-1] + span:
                axes.axvline(value, color=color, linewidth=1.5, linestyle=dashes)
                axes.annotate(
                    name,
                    (value, 1),
                    xycoords=("data", "axes fraction"),
                    xytext=(0, 2),
                    textcoords="offset points",
                    color=color,
                    fontsize=9.5,
                    ha="center",
                    annotation_clip=False,
                )
        axes.set_title(f"Divergence of {label(key)} by sequence", pad=20)
        axes.set_xlabel("nats per token")
        axes.set_ylabel("sequences")
        axes.set_ylim(0, max(*heights, LEAST_COUNT_TICKS) * 1.05)
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.locator_params(axis="x", nbins=5)
        axes.xaxis.set_major_formatter(lambda value, _: figure(value, digits=2))

    total = int(sum(heights))
    ends = f"between {figure(known[0])} and {with_unit(known[-1], 'nats per token')}"
    told = f"{counted(total, 'sequence')} {ends}, mean {figure(mean)}"
    bound = "" if limit is None else f" The limit is {with_unit(limit, 'nats per token')}."
    place = page.keys.index(key)
    return draw(f"kl-{place}", f"Histogram of KL divergence, {clean(key)}", f"{told}.{bound}", CAPTION + bound, paint)

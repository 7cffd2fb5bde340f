"""How a configuration's divergence from the baseline is spread over sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pytest_tokenwatt.report.html.access import items, number
from pytest_tokenwatt.report.html.canvas import draw, label, note
from pytest_tokenwatt.report.html.page import Page
from pytest_tokenwatt.report.html.palette import LIMIT, PAPER, SOFT, Mark
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
    bars = _bars(kl)
    if bars is None:
        return None
    edges, counts = bars
    mean = number(kl, "kl")
    told = f"{counted(int(sum(counts)), 'sequence')} between {figure(edges[0])} and {figure(edges[-1])} nats per token"
    bound = "" if limit is None else f" The limit is {with_unit(limit, 'nats per token')}."
    chart = _Chart(key, page.mark(key), edges, counts, mean, limit)
    title, name = f"Histogram of KL divergence, {clean(key)}", f"kl-{page.keys.index(key)}"
    return draw(name, title, f"{told}, mean {figure(mean)}.{bound}", CAPTION + bound, chart.paint)


def _bars(kl: Mapping[str, Any]) -> tuple[list[float], list[float]] | None:
    """Ascending edges and one count less; ``None`` where the report has anything else."""
    edges = [number({"edge": edge}, "edge") for edge in items(kl, "histogram", "bins")]
    counts = [number({"count": count}, "count") for count in items(kl, "histogram", "counts")]
    known = [edge for edge in edges if edge is not None]
    heights = [count for count in counts if count is not None and count >= 0]
    whole = len(known) == len(edges) and len(heights) == len(counts) and known == sorted(known)
    return (known, heights) if whole and heights and len(known) == len(heights) + 1 else None


@dataclass(frozen=True, slots=True)
class _Chart:
    """The bars of one configuration and what to compare them with."""

    key: str
    mark: Mark
    edges: list[float]
    counts: list[float]
    mean: float | None
    limit: float | None

    def paint(self, grid: Sequence[Axes]) -> None:
        """Bars, the mean, and the limit where it is near."""
        from matplotlib.ticker import MaxNLocator

        axes, span = grid[0], (self.edges[-1] - self.edges[0]) or abs(self.edges[-1]) or 1e-6
        widths = [(high - low) or span / 20 for low, high in pairwise(self.edges)]
        look: dict[str, Any] = {"color": self.mark.color, "alpha": 0.65, "edgecolor": PAPER, "hatch": self.mark.hatch}
        axes.bar(self.edges[:-1], self.counts, widths, align="edge", **look)
        for name, value, color, dashes in (
            ("mean", self.mean, SOFT, (1.0, 2.0)),
            ("limit", self.limit, LIMIT, (5.0, 3.0)),
        ):
            # A limit far to the right would squeeze the bars into one; it is in the text below.
            if value is not None and self.edges[0] - span <= value <= self.edges[-1] + span:
                axes.axvline(value, color=color, linewidth=1.5, linestyle=(0, dashes))
                note(axes, name, (value, 1), (0, 2), color=color, ha="center", xycoords=("data", "axes fraction"))
        axes.set_title(f"Divergence of {label(self.key)} by sequence", pad=20)
        axes.set_xlabel("nats per token")
        axes.set_ylabel("sequences")
        axes.set_ylim(0, max(*self.counts, LEAST_COUNT_TICKS) * 1.05)
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.locator_params(axis="x", nbins=5)
        axes.xaxis.set_major_formatter(lambda value, _: figure(value, digits=2))

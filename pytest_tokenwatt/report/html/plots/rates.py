"""Rate against one latency: every probe by its verdict, and the line of the SLO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pytest_tokenwatt.report.html.canvas import draw, note
from pytest_tokenwatt.report.html.material import Probe, Serving
from pytest_tokenwatt.report.html.page import Page
from pytest_tokenwatt.report.html.palette import LIMIT, PAPER
from pytest_tokenwatt.report.html.parts import Picture
from pytest_tokenwatt.report.html.plots.scales import plain_log
from pytest_tokenwatt.report.html.words import counted, figure, percentile_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STATES = ("pass", "fail", "invalid")
HEADROOM = 1.6
"""How far above everything finite a probe without a finite latency is drawn."""


def rate_picture(
    page: Page, scenario: str, metric: str, percentile: float, served: Sequence[Serving]
) -> Picture | None:
    """Rate in req/s against the latency percentile in ms, one line a configuration."""
    chart = _Chart(page, metric, percentile, served)
    if not chart.points:
        return None
    words = percentile_name(metric, percentile)
    title = f"{words} against offered rate, scenario {scenario}"
    name = f"rate-{page.scenarios.index(scenario)}-{chart.name}"
    return draw(name, title, chart.description(), chart.caption(), chart.paint)


@dataclass(frozen=True)
class _Chart:
    """One latency of all probes of a scenario."""

    page: Page
    metric: str
    percentile: float
    served: Sequence[Serving]

    @property
    def name(self) -> str:
        """The latency's key."""
        return f"{self.metric}_p{self.percentile:g}_ms"

    @cached_property
    def bound_ms(self) -> float | None:
        """What the SLO allows."""
        bounds = (bound for each in self.served for bound in each.slo)
        asked = (self.metric, self.percentile)
        return next((bound.bound_ms for bound in bounds if (bound.metric, bound.percentile) == asked), None)

    @cached_property
    def points(self) -> list[tuple[str, Probe, float | None]]:
        """Configuration, probe and latency in ms (``None``: infinite) of every probe that has one."""
        found = [(each.config, probe, probe.latencies.get(self.name)) for each in self.served for probe in each.probes]
        return [
            (config, probe, None if latency.infinite else latency.value_ms)
            for config, probe, latency in found
            if latency is not None and (latency.infinite or (latency.value_ms or 0.0) > 0)
        ]

    @cached_property
    def finite_ms(self) -> list[float]:
        """Heights that have their place on the axis, the SLO's among them."""
        heights = [height for _, _, height in self.points if height is not None]
        return heights if self.bound_ms is None else [*heights, self.bound_ms]

    @property
    def top_ms(self) -> float:
        """Where probes without a finite latency are drawn."""
        return max(self.finite_ms, default=1.0) * HEADROOM

    @property
    def endless(self) -> int:
        """Probes without a finite latency."""
        return sum(height is None for _, _, height in self.points)

    def paint(self, grid: Sequence[Axes]) -> None:
        """Lines of what is finite, then every probe by its verdict."""
        axes = grid[0]
        for each in self.served:
            self._line(axes, each.config)
        for config, probe, height in self.points:
            self._mark(axes, config, probe, height)
        if self.bound_ms is not None:
            axes.axhline(self.bound_ms, color=LIMIT, linewidth=1.4, linestyle=(0, (5, 3)))
            words, place = f"SLO {figure(self.bound_ms)} ms", (0.01, self.bound_ms)
            note(axes, words, place, (2, 3), color=LIMIT, xycoords=("axes fraction", "data"))
        plain_log(axes, "y", [*self.finite_ms, *([self.top_ms] if self.endless else [])])
        axes.set_title(f"{percentile_name(self.metric, self.percentile)} by offered rate")
        axes.set_xlabel("offered rate, req/s")
        axes.set_ylabel("ms, logarithmic")
        _rates(axes, [probe.rate_rps for _, probe, _ in self.points])

    def _line(self, axes: Axes, config: str) -> None:
        mark = self.page.mark(config)
        steady = sorted(
            (probe.rate_rps, height) for key, probe, height in self.points if key == config and height is not None
        )
        if steady:
            axes.plot(*zip(*steady, strict=True), color=mark.color, linestyle=mark.linestyle, linewidth=1, alpha=0.7)

    def _mark(self, axes: Axes, config: str, probe: Probe, height_ms: float | None) -> None:
        mark, place = self.page.mark(config), (probe.rate_rps, self.top_ms if height_ms is None else height_ms)
        style = _style(probe, mark.color, mark.marker)
        axes.plot([place[0]], [place[1]], linestyle="none", clip_on=False, zorder=3, **style)
        if height_ms is None:
            note(axes, "↑", place, (0, 5), color=mark.color, ha="center")

    def caption(self) -> str:
        """What the marks mean, and which probes have none."""
        told = ["Filled mark: the window passed the SLO; cross: it failed; hollow mark: it is invalid."]
        if self.endless:
            told.append("A mark at the upper edge with an arrow has no finite value: too many of its requests failed,")
            told.append("or could not keep the promise any more when the window was decided.")
        left_out = sum(len(each.probes) for each in self.served) - len(self.points)
        if left_out:
            told.append(f"{counted(left_out, 'probe')} had too few requests for this percentile: see the table.")
        return " ".join(told)

    def description(self) -> str:
        """The probes of each configuration by verdict, and the SLO."""
        told = [_described(each) for each in self.served]
        limit = [] if self.bound_ms is None else [f"The SLO allows {figure(self.bound_ms)} ms."]
        return " ".join([*told, *limit])


def _rates(axes: Axes, rates: Sequence[float]) -> None:
    """The rates with room around them; a single one is named as it is."""
    low, high = min(rates), max(rates)
    room = 0.06 * (high - low) or 0.5 * high or 1.0
    axes.set_xlim(low - room, high + room)
    if low == high:
        axes.set_xticks([low], [figure(low)])


def _style(probe: Probe, color: str, marker: str) -> dict[str, Any]:
    """How a probe of this verdict looks: told apart without colour."""
    if probe.state == "pass":
        return {"marker": marker, "markersize": 7, "color": color}
    if probe.state == "fail":
        return {"marker": "x", "markersize": 7, "markeredgewidth": 2.2, "color": color}
    return {
        "marker": marker,
        "markersize": 8,
        "markerfacecolor": PAPER,
        "markeredgecolor": color,
        "markeredgewidth": 1.5,
    }


def _described(served: Serving) -> str:
    counts = [(state, sum(probe.state == state for probe in served.probes)) for state in STATES]
    words = ", ".join(f"{count} {state}" for state, count in counts if count)
    best = max((probe.rate_rps for probe in served.probes if probe.state == "pass"), default=None)
    highest = "" if best is None else f", highest passing rate {figure(best)} req/s"
    return f"{served.config}: {counted(len(served.probes), 'probe')}, {words}{highest}."

"""Rate against one latency: every probe by its verdict, and the line of the SLO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pytest_tokenwatt.report.html.canvas import draw
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
    name = f"{metric}_p{percentile:g}_ms"
    drawn = [each for each in served if any(name in probe.latencies for probe in each.probes)]
    finite = [
        point.value_ms
        for each in drawn
        for probe in each.probes
        if (point := probe.latencies.get(name)) and point.value_ms
    ]
    endless = any(point.infinite for each in drawn for probe in each.probes if (point := probe.latencies.get(name)))
    bound = next(
        (b.bound_ms for each in drawn for b in each.slo if (b.metric, b.percentile) == (metric, percentile)), None
    )
    if not finite and not endless:
        return None
    top = max([*finite, bound or 0.0]) * HEADROOM or 1.0

    def paint(grid: Sequence[Axes]) -> None:
        axes = grid[0]
        for each in drawn:
            _paint(page, axes, each, name, top)
        if bound is not None:
            axes.axhline(bound, color=LIMIT, linewidth=1.4, linestyle=(0, (5, 3)))
            axes.annotate(
                f"SLO {figure(bound)} ms",
                (0.01, bound),
                xycoords=("axes fraction", "data"),
                xytext=(2, 3),
                textcoords="offset points",
                color=LIMIT,
                fontsize=10,
            )
        plain_log(axes, "y", [*finite, *([bound] if bound else []), *([top] if endless else [])])
        axes.set_title(f"{percentile_name(metric, percentile)} by offered rate")
        axes.set_xlabel("offered rate, req/s")
        axes.set_ylabel("ms, logarithmic")
        _rates(axes, [probe.rate_rps for each in drawn for probe in each.probes])

    caption = "Filled mark: the window passed the SLO; cross: it failed; hollow mark: it is invalid."
    if endless:
        caption += " A mark at the upper edge with an arrow has no finite value: too many of its requests failed, "
        caption += "or could not keep the promise any more when the window was decided."
    title = f"{percentile_name(metric, percentile)} against offered rate, scenario {scenario}"
    return draw(f"rate-{page.scenarios.index(scenario)}-{name}", title, _described(drawn, bound), caption, paint)


def _paint(page: Page, axes: Axes, served: Serving, name: str, top: float) -> None:
    mark, points = page.mark(served.config), []
    for probe in served.probes:
        latency = probe.latencies.get(name)
        if latency is not None and (latency.value_ms or latency.infinite):
            points.append((probe, top if latency.infinite else latency.value_ms or top, latency.infinite))
    steady = sorted((probe.rate_rps, height) for probe, height, endless in points if not endless)
    if steady:
        axes.plot(*zip(*steady, strict=True), color=mark.color, linestyle=mark.linestyle, linewidth=1, alpha=0.7)
    for probe, height, endless in points:
        style = _style(probe, mark.color, mark.marker)
        axes.plot([probe.rate_rps], [height], linestyle="none", clip_on=False, zorder=3, **style)
        if endless:
            axes.annotate(
                "↑",
                (probe.rate_rps, height),
                xytext=(0, 5),
                textcoords="offset points",
                ha="center",
                color=mark.color,
                fontsize=10,
                annotation_clip=False,
            )


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


def _described(served: Sequence[Serving], bound: float | None) -> str:
    told = []
    for each in served:
        counts = [(state, sum(probe.state == state for probe in each.probes)) for state in STATES]
        words = ", ".join(f"{count} {state}" for state, count in counts if count)
        best = max((probe.rate_rps for probe in each.probes if probe.state == "pass"), default=None)
        highest = f", highest passing rate {figure(best)} req/s" if best is not None else ""
        told.append(f"{each.config}: {counted(len(each.probes), 'probe')}, {words}{highest}.")
    limit = f" The SLO allows {figure(bound)} ms." if bound is not None else ""
    return " ".join(told) + limit

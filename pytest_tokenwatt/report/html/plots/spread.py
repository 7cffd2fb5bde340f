"""How one latency is spread over requests: the share of requests that were at least as fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pytest_tokenwatt.report.html.canvas import draw, note
from pytest_tokenwatt.report.html.material import Bound, LatencySample, Serving
from pytest_tokenwatt.report.html.page import Page
from pytest_tokenwatt.report.html.palette import LIMIT, SOFT
from pytest_tokenwatt.report.html.parts import Picture
from pytest_tokenwatt.report.html.plots.scales import plain_log
from pytest_tokenwatt.report.html.words import counted, figure, with_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

MOST_STEPS = 250
_WORDS = {"ttft": "Time to first token (TTFT)", "tpot": "Time per output token (TPOT)"}


def spread_picture(page: Page, scenario: str, metric: str, served: Sequence[Serving]) -> Picture | None:
    """Latency in ms against the share of requests, one curve a configuration."""
    drawn = [(each, each.samples[metric]) for each in served if metric in each.samples]
    drawn = [(each, sample) for each, sample in drawn if len(sample.values_ms)]
    if not drawn:
        return None
    bound = next((bound for each, _ in drawn for bound in each.slo if bound.metric == metric), None)
    curves = [(page.mark(each.config), *quantiles(sample)) for each, sample in drawn]

    def paint(grid: Sequence[Axes]) -> None:
        axes = grid[0]
        for mark, values_ms, shares in curves:
            axes.step(values_ms, 100 * shares, where="post", color=mark.color, linestyle=mark.linestyle)
        ends = [float(end) for _, values_ms, _ in curves for end in (values_ms[0], values_ms[-1])]
        if bound is not None:
            _promise(axes, bound)
            ends.append(bound.bound_ms)
        plain_log(axes, "x", ends)
        axes.set_ylim(0, 102)
        axes.set_yticks([0, 25, 50, 75, 100])
        axes.set_title(_WORDS[metric])
        axes.set_xlabel("ms, logarithmic")
        axes.set_ylabel("requests at least as fast, %")

    title = f"Distribution of {metric.upper()}, scenario {scenario}"
    name = f"spread-{page.scenarios.index(scenario)}-{metric}"
    return draw(name, title, _described(drawn), _caption(drawn, bound), paint)


def _promise(axes: Axes, bound: Bound) -> None:
    """Where the curve of a configuration that keeps the promise has to pass: left of one line, above the other."""
    axes.axvline(bound.bound_ms, color=LIMIT, linewidth=1.4, linestyle=(0, (5, 3)))
    axes.axhline(bound.percentile, color=SOFT, linewidth=0.9, linestyle=(0, (1, 2)))
    words, place = f"SLO {figure(bound.bound_ms)} ms", (bound.bound_ms, 0.02)
    note(axes, words, place, (-4, 2), color=LIMIT, ha="right", xycoords=("data", "axes fraction"))


def quantiles(sample: LatencySample) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Latencies in ms and the share of all requests that were at least as fast, at most ``MOST_STEPS`` of them.

    The fastest and the slowest request are always among them; the tail above the last per cent is kept finer, since
    that is where promises break. Failed requests count as never answered: the curve ends below 1.
    """
    values = np.sort(np.frombuffer(sample.values_ms, dtype=np.float64))
    places = np.arange(len(values))
    if len(values) > MOST_STEPS:
        last = len(values) - 1
        body = np.linspace(0, last, MOST_STEPS // 2)
        tail = last - np.geomspace(1, max(2.0, last * 0.05), MOST_STEPS // 2)
        places = np.unique(np.concatenate([body, tail, [0, last]]).astype(np.int64))
    return values[places], (places + 1) / sample.n


def _caption(drawn: Sequence[tuple[Serving, LatencySample]], bound: Bound | None) -> str:
    told = []
    for each, sample in drawn:
        parts = [counted(sample.n, "request")]
        if sample.failed:
            parts.append(
                f"{sample.failed:,} failed, so that the curve ends at {100 * len(sample.values_ms) / sample.n:.1f} %"
            )
        if sample.open:
            parts.append(f"{sample.open:,} still running were left out")
        told.append(f"{each.config}: {', '.join(parts)}")
    dotted = "" if bound is None else f" Dotted line: {bound.percentile:g} %, the share that the SLO names."
    thinned = any(len(sample.values_ms) > MOST_STEPS for _, sample in drawn)
    how = (
        f" Each curve is drawn through at most {MOST_STEPS} of its requests, the slowest among them." if thinned else ""
    )
    return "; ".join(told) + "." + dotted + how


def _described(drawn: Sequence[tuple[Serving, LatencySample]]) -> str:
    told = []
    for each, sample in drawn:
        values = np.frombuffer(sample.values_ms, dtype=np.float64)
        half, most = (float(np.quantile(values, share)) for share in (0.5, 0.99))
        told.append(
            f"{each.config}: half of the answered requests within {with_unit(half, 'ms')}, "
            f"99 % within {with_unit(most, 'ms')}."
        )
    return " ".join(told)

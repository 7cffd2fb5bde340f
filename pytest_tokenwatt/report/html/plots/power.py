"""Power over time: all sensors of a source together, the judged windows behind it, throttling below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pytest_tokenwatt.report.html.canvas import draw, label, note
from pytest_tokenwatt.report.html.material import PowerSeries, Probe
from pytest_tokenwatt.report.html.page import Page
from pytest_tokenwatt.report.html.palette import BAND, FAIL, LIMIT, SOFT
from pytest_tokenwatt.report.html.parts import Picture
from pytest_tokenwatt.report.html.plots.bins import Binned, shares
from pytest_tokenwatt.report.html.words import clean, counted, figure, with_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SYMBOLS = {"pass": "✓", "fail": "✗", "invalid": "?"}
STRIP_IN = 0.26
ROW_HEIGHT = 0.8
LEAST_SHARE = 0.12
MINUTE_S = 60.0
LONG_S = 180.0


def power_picture(
    page: Page, place: int, series: PowerSeries, bins: Binned, probes: Sequence[Probe], top_w: float
) -> Picture:
    """Watts over time on an axis up to ``top_w``; ``place`` tells the sources of a run apart."""
    start_s, end_s = float(bins.edges_s[0]), float(bins.edges_s[-1])
    unit_s, unit = (MINUTE_S, "min") if end_s - start_s >= LONG_S else (1.0, "s")
    reasons = sorted(
        {reason for sensor in series.sensors for reason, stamps in sensor.throttles.items() if len(stamps)}
    )
    shown = [probe for probe in probes if probe.end_s > start_s and probe.start_s < end_s]

    def paint(grid: Sequence[Axes]) -> None:
        axes, mark = grid[0], page.mark(series.config)
        for probe in shown:
            _window(axes, probe, start_s, unit_s)
        middles = (bins.middles_s - start_s) / unit_s
        if bins.ranged:
            axes.fill_between(middles, bins.low_w, bins.high_w, color=mark.color, alpha=0.25, linewidth=0)
        axes.plot(middles, bins.mean_w, color=mark.color, linewidth=1.3)
        _levels(axes, series, top_w)
        axes.set_ylim(0, top_w)
        axes.set_xlim(0, (end_s - start_s) / unit_s)
        axes.set_title(f"Power of {label(series.config)}", pad=18)
        axes.set_ylabel("W")
        axes.yaxis.set_major_formatter(lambda watts, _: figure(watts))
        if reasons:
            _strip(grid[1], series, reasons, bins, unit_s)
        grid[-1].set_xlabel(f"time since the first reading, {unit}")

    heights = (2.9, STRIP_IN * len(reasons) + 0.45) if reasons else (2.9,)
    title = f"Power over time, {clean(series.config)}, {clean(series.label)}"
    return draw(
        f"power-{place}",
        title,
        _described(bins, shown, reasons),
        _caption(series, bins, shown, reasons),
        paint,
        heights,
    )


def highest_w(drawn: Sequence[tuple[PowerSeries, Binned]]) -> float:
    """Upper end of an axis that holds all of them."""
    top = max(float(np.nanmax(bins.high_w)) for _, bins in drawn)
    # A limit far above everything drawn would only flatten it.
    limits = [each.limit_w for each, _ in drawn if each.limit_w is not None and each.limit_w <= 1.6 * top]
    return 1.1 * max(top, *limits, 1.0)


def _window(axes: Axes, probe: Probe, start_s: float, unit_s: float) -> None:
    left, right = (probe.start_s - start_s) / unit_s, (probe.end_s - start_s) / unit_s
    axes.axvspan(left, right, facecolor=BAND, edgecolor="none")
    symbol, color = SYMBOLS.get(probe.state, "?"), SOFT if probe.state == "pass" else FAIL
    axes.text(
        (left + right) / 2,
        1.01,
        symbol,
        transform=axes.get_xaxis_transform(),
        ha="center",
        va="bottom",
        fontsize=9,
        color=color,
        clip_on=False,
    )


def _levels(axes: Axes, series: PowerSeries, top_w: float) -> None:
    levels = (("limit", series.limit_w, LIMIT), ("idle", series.idle_w, SOFT))
    for name, watts, color in levels:
        if watts is not None and 0 < watts <= top_w:
            axes.axhline(watts, color=color, linewidth=1.1, linestyle=(0, (5, 3)))
            words, place = f"{name} {figure(watts)} W", (0.995, watts)
            note(axes, words, place, (0, 3), color=color, ha="right", xycoords=("axes fraction", "data"))


def _strip(axes: Axes, series: PowerSeries, reasons: Sequence[str], bins: Binned, unit_s: float) -> None:
    """One row a throttle reason, as high as the share of readings that had it set; any at all is seen."""
    lefts = (bins.edges_s - bins.edges_s[0]) / unit_s
    for row, reason in enumerate(reasons):
        share = shares(series, reason, bins.edges_s)
        heights = np.where(share > 0, np.maximum(LEAST_SHARE, share), 0.0) * ROW_HEIGHT
        heights = np.append(heights, heights[-1])
        floor = row + ROW_HEIGHT / 2
        axes.fill_between(lefts, floor - heights, floor, step="post", color=LIMIT, linewidth=0)
    axes.set_ylim(len(reasons) - 0.5, -0.5)
    axes.set_yticks(range(len(reasons)), [label(reason) for reason in reasons], fontsize=9)
    axes.grid(visible=False)
    axes.tick_params(axis="y", length=0)


def _caption(series: PowerSeries, bins: Binned, probes: Sequence[Probe], reasons: Sequence[str]) -> str:
    count = max(len(sensor.at_s) for sensor in series.sensors)
    sensors = counted(len(series.sensors), "sensor")
    told = [f"{series.label}, sampled at {figure(series.sampling_hz)} Hz: {counted(count, 'reading')} of {sensors}"]
    if bins.ranged:
        span_s = float(bins.edges_s[1] - bins.edges_s[0])
        summed = "; sums over sensors of each one's mean, smallest and largest" if len(series.sensors) > 1 else ""
        told.append(
            f"drawn in bins of {figure(span_s)} s, line: mean, band: smallest to largest reading in the bin{summed}"
        )
    if probes:
        told.append("shaded: judged windows (✓ passed the SLO, ✗ failed, ? invalid)")
    if reasons:
        told.append("bars below: share of readings with this throttle reason set, the least of them raised to be seen")
    return ". ".join(each[0].upper() + each[1:] for each in told if each) + "."


def _described(bins: Binned, probes: Sequence[Probe], reasons: Sequence[str]) -> str:
    mean, low, high = (
        float(f(v)) for f, v in ((np.nanmean, bins.mean_w), (np.nanmin, bins.low_w), (np.nanmax, bins.high_w))
    )
    minutes = float(bins.edges_s[-1] - bins.edges_s[0]) / MINUTE_S
    throttled = f" Throttle reasons seen: {', '.join(reasons)}." if reasons else " No throttling was seen."
    return (
        f"{with_unit(mean, 'W')} on average over {figure(minutes)} minutes, between {with_unit(low, 'W')} and "
        f"{with_unit(high, 'W')}, with {counted(len(probes), 'judged window')}.{throttled}"
    )

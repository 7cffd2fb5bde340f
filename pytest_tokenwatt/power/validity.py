"""When the readings of a sensor suffice for a window, and the reason when they do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_tokenwatt.power.series import Array, Runs, Series
from pytest_tokenwatt.records.base import Reason
from pytest_tokenwatt.records.power import PowerEvent

MIN_SAMPLES = 10
GAP_S = 3.0
HEADROOM = 1.2
"""A board exceeds its limit for moments, never by more than this factor."""

LEAST_W = 1e-3
MOST_W = 1e7
"""What no sensor resolves and no machine hall draws: where no limit is known, a figure outside is no power."""

DISAGREEMENT = 0.05
INVALIDATING = frozenset({"gpu_lost", "foreign_process", "power_limit_changed"})
"""Events that make a window invalid however good its samples are."""


def gap_limit_s(hz: float) -> float:
    """The longest time between two readings at ``hz`` that still counts as sampling: three ticks, at least 3 s."""
    return max(GAP_S, 3.0 / hz)


@dataclass(frozen=True, slots=True)
class Frame:
    """A window and the rules that its source's pace sets. ``refresh_s`` as in ``PowerSource``."""

    start_s: float
    end_s: float
    hz: float
    refresh_s: float | None

    @property
    def length_s(self) -> float:
        """Length of the window."""
        return self.end_s - self.start_s

    @property
    def gap_s(self) -> float:
        """The longest time that may pass without a reading."""
        return gap_limit_s(self.hz)

    @property
    def polled(self) -> bool:
        """Whether the source hands out values that something else refreshes at its own, slow pace."""
        return self.refresh_s is not None and self.refresh_s > 1.0

    @property
    def standstill_s(self) -> float:
        """How long an energy counter of a running machine may show the same value."""
        return max(self.gap_s, 3.0 * (self.refresh_s or 0.0))

    @property
    def stale_s(self) -> float | None:
        """How long a power reading may stay the same; ``None``: for ever."""
        return None if self.refresh_s is None else min(3.0 * self.refresh_s, self.length_s)


def coverage(series: Series, frame: Frame, who: str, noun: str) -> list[Reason]:
    """What keeps ``series`` from covering the window: nothing on one side, a gap, too few readings inside."""
    reasons = [*_unbracketed(series, frame, who, noun), *_gap(series, frame, who, noun)]
    inside = len(series.inside(frame.start_s, frame.end_s))
    if inside < MIN_SAMPLES:
        reasons.append(Reason("too_few_samples", f"{who}: {inside} {noun}s in the window, fewer than {MIN_SAMPLES}"))
    return reasons


def _unbracketed(series: Series, frame: Frame, who: str, noun: str) -> Iterator[Reason]:
    if not len(series):
        return  # too few samples says it
    late_s = float(series.at_s[0]) - frame.start_s
    if late_s > 0:
        yield Reason("window_not_bracketed", f"{who}: the first {noun} is {late_s:.2f} s after the window's start")
    early_s = frame.end_s - float(series.at_s[-1])
    if early_s > 0:
        yield Reason("window_not_bracketed", f"{who}: the last {noun} is {early_s:.2f} s before the window's end")


def _gap(series: Series, frame: Frame, who: str, noun: str) -> Iterator[Reason]:
    around = series.around(frame.start_s, frame.end_s)
    longest_s = float(np.max(np.diff(around.at_s), initial=0.0))
    if longest_s > frame.gap_s:
        text = f"{who}: {longest_s:.2f} s between two {noun}s, more than {frame.gap_s:g} s"
        yield Reason("sampling_gap_exceeded", text)


def credible(watts: float, limit_w: float | None = None) -> bool:
    """Whether something may draw this power: above 0 W and, where the limit is known, at most 1.2 times it."""
    return LEAST_W <= watts <= _highest_w(limit_w)


def plausible(watts: Array, limit_w: float | None) -> npt.NDArray[np.bool_]:
    """Which samples can be true, as in ``credible``."""
    return (watts >= LEAST_W) & (watts <= _highest_w(limit_w))


def _highest_w(limit_w: float | None) -> float:
    return MOST_W if limit_w is None else min(HEADROOM * limit_w, MOST_W)


def implausible_samples(power: Series, limit_w: float | None, frame: Frame, who: str) -> list[Reason]:
    """Samples were read in the window, but none of them can be true."""
    inside = power.inside(frame.start_s, frame.end_s)
    read = inside.where(~np.isnan(inside.values))
    if not len(read) or plausible(read.values, limit_w).any():
        return []
    span = f"{read.values.min():g} to {read.values.max():g} W"
    return [Reason("implausible_power", f"{who}: all {len(read)} samples are {span}, {_bounds(limit_w)}")]


def implausible_energy(energy_j: float, limit_w: float | None, frame: Frame, who: str) -> list[Reason]:
    """The window's mean power cannot be true."""
    mean_w = energy_j / frame.length_s
    if credible(mean_w, limit_w):
        return []
    return [Reason("implausible_power", f"{who}: {mean_w:.1f} W over the window, {_bounds(limit_w)}")]


def _bounds(limit_w: float | None) -> str:
    return f"not in (0, {MOST_W:g} W]" if limit_w is None else f"not in (0, {HEADROOM:g} x {limit_w:g} W]"


def stale(power: Series, stamps: Array, frame: Frame, who: str) -> list[Reason]:
    """A live sensor's readings differ; ``power`` with its parallel ``stamps`` shows how often they did.

    Where a sensor stamps its readings the stamp alone decides.
    """
    if frame.stale_s is None or not len(power):
        return []
    readings = Runs.of(power.at_s, np.where(np.isnan(stamps), power.values, stamps))
    unchanged_s = readings.longest_s(frame.start_s, frame.end_s)
    reasons = []
    if unchanged_s >= frame.stale_s:
        text = f"{who}: the same reading for {unchanged_s:.1f} s of the window ({frame.refresh_s:g} s refresh)"
        reasons.append(Reason("stale_source", text))
    fresh = readings.begun(frame.start_s, frame.end_s)
    if frame.polled and fresh < MIN_SAMPLES:
        text = f"{who}: {fresh} refreshes in the window, fewer than {MIN_SAMPLES} ({frame.refresh_s:g} s refresh)"
        reasons.append(Reason("too_few_samples", text))
    return reasons


def counter_defects(energy: Series, frame: Frame, who: str) -> list[Reason]:
    """A counter that moves, but falls or stands still during the window: it cannot be believed."""
    around = energy.around(frame.start_s, frame.end_s)
    reasons = []
    falls = np.flatnonzero(np.diff(around.values) < 0)
    if len(falls):
        before, after = around.values[falls[0]], around.values[falls[0] + 1]
        text = f"{who}: the energy counter fell from {before:.1f} to {after:.1f} J"
        reasons.append(Reason("energy_counter_reset", text))
    still_s = Runs.of(around.at_s, around.values).longest_s(frame.start_s, frame.end_s)
    if still_s > frame.standstill_s:
        text = f"{who}: the energy counter stood still for {still_s:.1f} s, more than {frame.standstill_s:g} s"
        reasons.append(Reason("energy_counter_frozen", text))
    return reasons


def event_reasons(events: Sequence[PowerEvent], frame: Frame) -> list[Reason]:
    """What was noticed inside the window and makes it invalid, once each."""
    found = (event.reason for event in events if event.reason.code in INVALIDATING and _overlaps(event, frame, 0.0))
    return list(dict.fromkeys(found))


def cause(events: Sequence[PowerEvent], sensor: str, frame: Frame) -> str | None:
    """Why samples of ``sensor`` are missing in or beside the window, if its source said so."""
    texts = (
        event.reason.text
        for event in reversed(events)
        if event.sensor in (None, sensor)
        and event.reason.code not in INVALIDATING
        and _overlaps(event, frame, frame.gap_s)
    )
    return next(texts, None)


def _overlaps(event: PowerEvent, frame: Frame, margin_s: float) -> bool:
    return event.at_s <= frame.end_s + margin_s and event.last_s >= frame.start_s - margin_s

"""Energy of a window and idle power, from the trace of one source.

Energy is that of the counter when it answers and moves, else the trapezoid of the power samples; the other one is the
cross-check. It is never mean power times time, which is wrong by the samples' luck at the edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pytest_tokenwatt.power.series import Array, Series, counter_j, trapezoid_j
from pytest_tokenwatt.power.throttling import throttling
from pytest_tokenwatt.power.validity import (
    DISAGREEMENT,
    MIN_SAMPLES,
    Frame,
    cause,
    counter_defects,
    coverage,
    event_reasons,
    implausible_energy,
    implausible_samples,
    plausible,
    stale,
)
from pytest_tokenwatt.records.base import Figure, Reason
from pytest_tokenwatt.records.power import PowerEvent, PowerTrace, SensorTrace, WindowPower

COUNTER = "energy_counter"
TRAPEZOID = "trapezoid"
MIXED = "mixed"
MIN_IDLE_SAMPLES = 5
MIN_IDLE_S = 1.0


@dataclass(frozen=True, slots=True)
class _Path:
    """One way to the energy of a sensor: the energy, or why it is not to be had this way."""

    method: str
    energy_j: float | None
    reasons: tuple[Reason, ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True)
class _SensorEnergy:
    """A sensor's energy over a window by the path that is used."""

    energy_j: float | None
    method: str
    cross_check_j: float | None
    samples: int
    invalid: tuple[Reason, ...]
    notes: tuple[str, ...]


def window_power(trace: PowerTrace, start_s: float, end_s: float) -> WindowPower:
    """The energy of all sensors over [start_s, end_s], with the reasons when there is none to be believed.

    One bad sensor makes the sum invalid. Throttling is counted whether or not the energy is valid.
    """
    frame = Frame(start_s, end_s, trace.sampling_hz, trace.refresh_s)
    parts = [_sensor_energy(sensor, frame, trace.events) for sensor in trace.sensors]
    invalid = [*event_reasons(trace.events, frame), *(reason for part in parts for reason in part.invalid)]
    if not parts:
        invalid.append(Reason("no_power_source", f"{trace.label}: no sensor"))
    seen = throttling(trace.sensors, start_s, end_s)
    return WindowPower(
        source=trace.source,
        kind=trace.kind,
        energy_j=None if invalid else _total([part.energy_j for part in parts]),
        method=_common([part.method for part in parts]),
        cross_check_j=_total([part.cross_check_j for part in parts]),
        samples=sum(part.samples for part in parts),
        throttle_counts=seen.counts if seen.samples else None,
        throttle_samples=seen.samples,
        throttle_s=seen.seconds,
        invalid=tuple(dict.fromkeys(invalid)),
        notes=tuple(note for part in parts for note in part.notes),
        sensors=len(parts),
    )


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _common(methods: Sequence[str]) -> str | None:
    return MIXED if len(set(methods)) > 1 else next(iter(methods), None)


def _sensor_energy(sensor: SensorTrace, frame: Frame, events: Sequence[PowerEvent]) -> _SensorEnergy:
    who, limit_w = sensor.info.sensor, sensor.info.limit_w
    counter = _counter_path(sensor, frame)
    trapezoid = _trapezoid_path(sensor, frame, events)
    # A counter that misbehaves while the window runs is a fault of the device, not a lack of the counter.
    answers = counter.energy_j is not None or bool(counter.reasons)
    used, other = (counter, trapezoid) if answers else (trapezoid, counter)
    invalid = implausible_samples(_power(sensor), limit_w, frame, who) or [*used.reasons]
    if not invalid and used.energy_j is not None:
        invalid += implausible_energy(used.energy_j, limit_w, frame, who)
        invalid += _disagreement(used, other, who)
    return _SensorEnergy(
        energy_j=None if invalid else used.energy_j,
        method=used.method,
        cross_check_j=other.energy_j,
        samples=len(_plausible(sensor)[0].inside(frame.start_s, frame.end_s)),
        invalid=tuple(invalid),
        notes=tuple(note for note in (counter.note, _left_out(sensor, frame)) if note),
    )


def _power(sensor: SensorTrace) -> Series:
    """The power samples. A mean of the last second belongs to its middle: else every edge is half a second late."""
    samples = Series.of(sensor.power_s, sensor.watts)
    return Series(samples.at_s - sensor.info.averaging_s / 2.0, samples.values)


def _counter_path(sensor: SensorTrace, frame: Frame) -> _Path:
    """By the energy counter. Without energy and reasons it is as if there were no counter, and ``note`` says why."""
    who = sensor.info.sensor
    raw = Series.of(sensor.counter_s, sensor.counter_j)
    energy = raw.where(raw.values > 0)
    if not len(energy):
        note = f"{who}: the energy counter reads 0 and is not used" if len(raw) else None
        return _Path(COUNTER, None, note=note)
    beside = energy.inside(frame.start_s - frame.standstill_s, frame.end_s + frame.standstill_s)
    if len(beside) > 1 and not np.any(np.diff(beside.values)):
        note = f"{who}: energy_counter_frozen at {beside.values[0]:.1f} J, so power samples are integrated"
        return _Path(COUNTER, None, note=note)
    defects = counter_defects(energy, frame, who)
    if defects:
        return _Path(COUNTER, None, tuple(defects))
    readings = energy.changes() if frame.polled else energy
    gaps = coverage(energy, frame, who, "energy counter reading")
    if frame.polled:
        gaps += _slow(readings, frame, who)
    if gaps:
        return _Path(COUNTER, None, note=f"the energy counter is not used ({gaps[0].text})")
    return _Path(COUNTER, counter_j(readings, frame.start_s, frame.end_s))


def _slow(readings: Series, frame: Frame, who: str) -> list[Reason]:
    """Whether a slow counter's refreshes are too far apart to tell what it was at the window's edges."""
    refreshes = len(readings.inside(frame.start_s, frame.end_s))
    if readings.brackets(frame.start_s, frame.end_s) and refreshes >= MIN_SAMPLES:
        return []
    return [Reason("too_few_samples", f"{who}: {refreshes} refreshes of it in the window, or none on a side of it")]


def _trapezoid_path(sensor: SensorTrace, frame: Frame, events: Sequence[PowerEvent]) -> _Path:
    """By the power samples; they are judged even where the counter is used, as only a good cross-check is one."""
    who = sensor.info.sensor
    power, stamps = _plausible(sensor)
    reasons = coverage(power, frame, who, "power sample")
    if reasons:
        why = cause(events, who, frame)
        reasons = [reason if why is None else replace(reason, text=f"{reason.text} ({why})") for reason in reasons]
    reasons += stale(power, stamps, frame, who)
    energy_j = None if reasons else trapezoid_j(power, frame.start_s, frame.end_s)
    return _Path(TRAPEZOID, energy_j, tuple(reasons))


def _plausible(sensor: SensorTrace) -> tuple[Series, Array]:
    """The plausible samples, and their time stamps (NaN: none)."""
    power = _power(sensor)
    mask = plausible(power.values, sensor.info.limit_w)
    stamps = np.asarray(sensor.stamps) if len(sensor.stamps) else np.full(len(power), np.nan)
    return power.where(mask), stamps[mask]


def _left_out(sensor: SensorTrace, frame: Frame) -> str | None:
    """A note when single samples were not believed."""
    inside = _power(sensor).inside(frame.start_s, frame.end_s)
    read = inside.where(~np.isnan(inside.values))
    left_out = int(np.count_nonzero(~plausible(read.values, sensor.info.limit_w)))
    if not left_out:
        return None
    return f"{sensor.info.sensor}: {left_out} of {len(read)} samples are not plausible and left out"


def _disagreement(used: _Path, other: _Path, who: str) -> list[Reason]:
    if used.energy_j is None or other.energy_j is None:
        return []
    off = abs(used.energy_j - other.energy_j) / used.energy_j
    if off <= DISAGREEMENT:
        return []
    text = (
        f"{who}: {used.energy_j:.1f} J by {used.method}, {other.energy_j:.1f} J by {other.method} ({100 * off:.1f} %)"
    )
    return [Reason("source_disagreement", text)]


def idle_power(trace: PowerTrace, start_s: float, end_s: float) -> Figure:
    """Mean power in W of all sensors over [start_s, end_s] while nothing runs; ``n`` is the number of samples.

    By the energy counter over at least 1 s, else the time-weighted mean of at least 5 samples. A short look: neither
    edge needs to be bracketed, and readings may repeat.
    """
    frame = Frame(start_s, end_s, trace.sampling_hz, trace.refresh_s)
    problems = [reason.text for reason in event_reasons(trace.events, frame)]
    watts = []
    for sensor in trace.sensors:
        found = _idle_w(sensor, frame, trace.events)
        if isinstance(found, str):
            problems.append(found)
        else:
            watts.append(found)
    if problems or not watts:
        return Figure(None, "W", reason="; ".join(problems) or f"{trace.label}: no sensor")
    samples = sum(len(_plausible(sensor)[0].inside(start_s, end_s)) for sensor in trace.sensors)
    return Figure(sum(watts), "W", n=samples)


def _idle_w(sensor: SensorTrace, frame: Frame, events: Sequence[PowerEvent]) -> float | str:
    """Mean power of one sensor, or why there is none."""
    who = sensor.info.sensor
    mean_w = _mean_by_counter_w(sensor, frame)
    if mean_w is None:
        samples = _plausible(sensor)[0].inside(frame.start_s, frame.end_s)
        if len(samples) < MIN_IDLE_SAMPLES:
            why = cause(events, who, frame)
            what = f"{who}: {len(samples)} power samples while idle, fewer than {MIN_IDLE_SAMPLES}"
            return what if why is None else f"{what} ({why})"
        first_s, last_s = float(samples.at_s[0]), float(samples.at_s[-1])
        mean_w = trapezoid_j(samples, first_s, last_s) / (last_s - first_s)
    wrong = implausible_energy(mean_w * frame.length_s, sensor.info.limit_w, frame, who)
    return wrong[0].text if wrong else mean_w


def _mean_by_counter_w(sensor: SensorTrace, frame: Frame) -> float | None:
    raw = Series.of(sensor.counter_s, sensor.counter_j)
    energy = raw.where(raw.values > 0).inside(frame.start_s, frame.end_s)
    # A counter that is refreshed once in a while tells nothing about a few seconds.
    if frame.polled or len(energy) < 2 or energy.at_s[-1] - energy.at_s[0] < MIN_IDLE_S:
        return None
    steps = np.diff(energy.values)
    if np.any(steps < 0) or not np.any(steps):
        return None
    return float((energy.values[-1] - energy.values[0]) / (energy.at_s[-1] - energy.at_s[0]))

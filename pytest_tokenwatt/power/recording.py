"""What a sampler has gathered so far, in arrays that grow by a few numbers a tick and are cheap to copy."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_tokenwatt.power.source import PowerSource, Reading
from pytest_tokenwatt.records.base import ClockAnchor, Reason
from pytest_tokenwatt.records.power import REASONS_UNKNOWN, PowerEvent, PowerTrace, SensorInfo, SensorTrace

TRIES = 3
"""After so many asks without an answer nobody waits for a sensor any longer."""

_INT64_MAX = 2**63 - 1
_MAX_EVENTS = 5000
_SILENT = Reason("read_failed", "the source said nothing of this sensor")


@dataclass(slots=True)
class _Answers:
    """How far a sensor has answered: the last answer, the last ask, and the asks without an answer since."""

    answered_s: float = -math.inf
    asked_s: float = -math.inf
    unanswered: int = 0

    def note(self, at_s: float, *, answered: bool) -> None:
        self.asked_s = at_s
        self.unanswered = 0 if answered else self.unanswered + 1
        if answered:
            self.answered_s = at_s

    def reached(self, until_s: float) -> bool:
        return self.answered_s >= until_s or (self.asked_s >= until_s and self.unanswered >= TRIES)


@dataclass(slots=True)
class _Events:
    """Events in order; one that repeats tick after tick grows longer, so that an hour of failures stays one entry."""

    merge_within_s: float
    entries: list[PowerEvent] = field(default_factory=list)
    _last: dict[tuple[str | None, str, str], int] = field(default_factory=dict)
    _last_of_code: dict[tuple[str | None, str], int] = field(default_factory=dict)

    def add(self, at_s: float, sensor: str | None, reason: Reason, since_s: float | None = None) -> None:
        """Note ``reason`` at ``at_s``; a new event begins at ``since_s`` if that is known."""
        index = self._continued(at_s, sensor, reason)
        if index is None:
            index = len(self.entries)
            event = PowerEvent(at_s, sensor, reason)
            self.entries.append(event if since_s is None else replace(event, at_s=min(since_s, at_s), until_s=at_s))
            self._last[sensor, reason.code, reason.text] = index
            self._last_of_code[sensor, reason.code] = index
        else:
            self.entries[index] = replace(self.entries[index], until_s=at_s)

    def _continued(self, at_s: float, sensor: str | None, reason: Reason) -> int | None:
        if len(self.entries) >= _MAX_EVENTS:
            # One long event calls windows invalid that were not: the safe side of a bound on memory.
            return self._last_of_code.get((sensor, reason.code))
        index = self._last.get((sensor, reason.code, reason.text))
        if index is None:
            return None
        return index if at_s - self.entries[index].last_s <= self.merge_within_s else None


class _SensorLog:
    """The growing arrays of one sensor."""

    def __init__(self, info: SensorInfo) -> None:
        self.info = info
        self._samples = _Answers()
        self._counters = _Answers()
        self._looked_s: float | None = None
        self._power_s = array("d")
        self._watts = array("d")
        self._reasons = array("q")
        self._stamps = array("d")
        self._throttle_ns: dict[str, array[int]] = {}
        self._counter_s = array("d")
        self._counter_j = array("d")

    def reached(self, until_s: float) -> bool:
        # A reading that is a mean belongs to the middle of its time.
        sampled = self._samples.reached(until_s + self.info.averaging_s / 2.0)
        counted = not self._counter_s or self._counters.reached(until_s)
        looked = self._looked_s is None or self._looked_s >= until_s or self._samples.unanswered >= TRIES
        return sampled and counted and looked

    def sample(self, at_s: float, reading: Reading | None) -> None:
        watts = math.nan if reading is None or reading.watts is None else float(reading.watts)
        reasons = REASONS_UNKNOWN if reading is None or reading.reasons is None else reading.reasons & _INT64_MAX
        stamp = math.nan if reading is None or reading.stamp is None else reading.stamp
        self._samples.note(at_s, answered=watts > 0)
        self._looked_s = self._looked_s if reading is None else reading.looked_s
        self._throttle({} if reading is None else reading.throttle_ns)
        self._power_s.append(at_s)
        self._watts.append(watts)
        self._reasons.append(reasons)
        self._stamps.append(stamp)

    def _throttle(self, throttle_ns: Mapping[str, int]) -> None:
        for name in throttle_ns:
            if name not in self._throttle_ns:
                self._throttle_ns[name] = array("q", [REASONS_UNKNOWN]) * len(self._power_s)
        for name, column in self._throttle_ns.items():
            column.append(min(throttle_ns.get(name, REASONS_UNKNOWN), _INT64_MAX))

    def counter(self, at_s: float, joules: float | None, *, must_move: bool) -> None:
        moved = joules is not None and (not self._counter_j or joules != self._counter_j[-1])
        self._counters.note(at_s, answered=moved if must_move else joules is not None)
        if joules is not None:
            self._counter_s.append(at_s)
            self._counter_j.append(joules)

    def trace(self) -> SensorTrace:
        return SensorTrace(
            info=self.info,
            power_s=self._power_s[:],
            watts=self._watts[:],
            reasons=self._reasons[:],
            throttle_ns={name: column[:] for name, column in self._throttle_ns.items()},
            counter_s=self._counter_s[:],
            counter_j=self._counter_j[:],
            stamps=self._stamps[:],
        )


class Recording:
    """Everything one source gave since ``anchor``. Not thread-safe: the sampler holds its lock around every call."""

    def __init__(self, sensors: Sequence[SensorInfo], hz: float, refresh_s: float | None, anchor: ClockAnchor) -> None:
        self._hz = hz
        self._refresh_s = refresh_s
        self._anchor = anchor
        self._logs = {info.sensor: _SensorLog(info) for info in sensors}
        self._lateness_ms = array("d")
        self._missed = 0
        self._events = _Events(max(1.0, 2.5 / hz))

    def tick(self, at_s: float, readings: Sequence[Reading], problem: Reason | None) -> None:
        """Take in one tick: every sensor gets a sample, those without a reading one that says so.

        ``problem`` concerns all sensors: why there are no readings at all.
        """
        if problem is not None:
            self._events.add(at_s, None, problem)
        by_sensor = {reading.sensor: reading for reading in readings}
        for sensor, log in self._logs.items():
            reading = by_sensor.get(sensor)
            log.sample(at_s, reading)
            trouble = _SILENT if reading is None and problem is None else reading.problem if reading else None
            if trouble is not None:
                self._events.add(at_s, sensor, trouble, reading.since_s if reading else None)

    def pace(self, late_ms: float, missed: int) -> None:
        """Note how late a tick's reading was complete and how many ticks passed meanwhile."""
        self._lateness_ms.append(late_ms)
        self._missed += missed

    def counters(self, at_s: float, joules: Mapping[str, float], problem: Reason | None) -> None:
        """Take in one reading of the energy counters."""
        if problem is not None:
            self._events.add(at_s, None, problem)
        # A counter that is refreshed slowly only tells where it stood when it moves.
        must_move = self._refresh_s is not None and self._refresh_s > 1.0
        for sensor, log in self._logs.items():
            log.counter(at_s, joules.get(sensor), must_move=must_move)

    def reached(self, until_s: float) -> bool:
        """Whether every sensor has answered at or after ``until_s``, or was asked in vain often enough."""
        return all(log.reached(until_s) for log in self._logs.values())

    def trace(self, source: PowerSource) -> PowerTrace:
        """A copy that no later tick changes."""
        return PowerTrace(
            source=source.source,
            kind=source.kind,
            label=source.label,
            sampling_hz=self._hz,
            refresh_s=self._refresh_s,
            sensors=tuple(log.trace() for log in self._logs.values()),
            lateness_ms=self._lateness_ms[:],
            missed=self._missed,
            events=tuple(self._events.entries),
            anchor=self._anchor,
        )

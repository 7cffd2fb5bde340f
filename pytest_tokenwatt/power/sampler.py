"""Sampling of one source: a daemon thread of its own, so that a slow or hanging sensor delays no other one."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.pace import Pace
from pytest_tokenwatt.power.recording import Recording
from pytest_tokenwatt.power.source import PowerSource, Reading, Watchful
from pytest_tokenwatt.power.validity import gap_limit_s
from pytest_tokenwatt.records.base import ClockAnchor, Reason
from pytest_tokenwatt.records.power import PowerTrace, SensorInfo

_Answer = TypeVar("_Answer")


class Sampler:
    """Reads ``source`` at ``hz`` ticks a second from its opening until it is stopped.

    Deadlines are absolute; a tick that is past when an earlier reading ends is missed and counted, never made up. A
    reading is stamped with the middle of its call. What fails becomes an event and a sample without watts. ``name``
    stands in messages.
    """

    def __init__(self, source: PowerSource, hz: float, name: str) -> None:
        self.source = source
        self.name = name
        self._hz = hz
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._opened = threading.Event()
        self._error: PowerError | None = None
        self._begun_s = 0.0
        self._busy_since_s: float | None = None
        self._recording = self._empty()
        self._thread = threading.Thread(target=self._run, name=f"tokenwatt-power-{name}", daemon=True)

    def start(self, timeout_s: float) -> PowerError | None:
        """Open the source in the sampler's thread and wait for it; the error, if it could not be opened in time."""
        self.begin()
        return self.wait_open(timeout_s)

    def begin(self) -> None:
        """Start the thread without waiting for the source."""
        self._begun_s = time.monotonic()
        self._thread.start()

    def wait_open(self, timeout_s: float) -> PowerError | None:
        """Wait until the source is open, has failed or has not answered for ``timeout_s``, which ends the sampler."""
        if not self._opened.wait(timeout_s):
            # Others may have been waited for before: what counts is how long this one had.
            had_s = time.monotonic() - self._begun_s
            self._fail(
                PowerError(
                    "no_power_source",
                    f"power source {self.name} did not answer within {had_s:.1f} s",
                    remedy="see whether the sensor can be read by hand, or take the source out of power:",
                )
            )
        return self._error

    @property
    def error(self) -> PowerError | None:
        """Why the source could not be opened; ``None`` while it can."""
        return self._error

    def trace(self) -> PowerTrace:
        """Everything that was read so far, as a copy; from any thread."""
        with self._changed:
            return self._recording.trace(self.source)

    def cover(self, until_s: float, timeout_s: float) -> bool:
        """Wait until every sensor, and its energy counter if it has one, was read at or after ``until_s``.

        What the source only looks at now and then has been looked at by then, too. False: it was not, in ``timeout_s``
        or because the source hangs. A sensor that answers nothing is asked a few times and then no longer waited for.
        """
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            while not self._recording.reached(until_s):
                now_s = time.monotonic()
                if now_s >= deadline_s or not self._alive(now_s):
                    return False
                if now_s >= until_s and isinstance(self.source, Watchful):
                    self.source.look_soon()
                # Short waits: a source that hangs wakes nobody.
                self._changed.wait(min(deadline_s - now_s, 0.2))
        return self._error is None

    def ask_to_stop(self) -> None:
        """Tell the thread to end, without waiting for it."""
        self._stop.set()

    def stop(self, timeout_s: float) -> None:
        """End sampling and close the source. One that hangs is left behind in its daemon thread."""
        self.ask_to_stop()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _alive(self, now_s: float) -> bool:
        if self._error is not None or self._stop.is_set() or not self._thread.is_alive():
            return False
        busy_since_s = self._busy_since_s
        return busy_since_s is None or now_s - busy_since_s <= gap_limit_s(self._hz)

    def _empty(self) -> Recording:
        return Recording((), self._hz, self.source.refresh_s, ClockAnchor(time.monotonic(), time.time()))

    def _fail(self, error: PowerError) -> None:
        with self._changed:
            if not self._opened.is_set():
                self._error = error
                self._stop.set()
                self._opened.set()

    def _run(self) -> None:
        try:
            if self._open():
                self._sample()
        finally:
            self.source.close()

    def _open(self) -> bool:
        none: tuple[SensorInfo, ...] = ()
        sensors, problem = _attempt(self.source.open, none)
        if problem is not None:
            self._fail(PowerError(_open_code(problem), problem.text))
            return False
        anchor = ClockAnchor(time.monotonic(), time.time())
        with self._changed:
            if self._opened.is_set():
                return False  # too late: nobody waits any longer
            self._recording = Recording(sensors, self._hz, self.source.refresh_s, anchor)
            self._opened.set()
        return True

    def _sample(self) -> None:
        start_s = time.monotonic()
        power = Pace(start_s, self._hz)
        counter_hz = self.source.counter_hz
        counters = None if counter_hz is None else Pace(start_s, max(self._hz, counter_hz))
        while True:
            pace = power if counters is None or power.due_s <= counters.due_s else counters
            if self._stop.wait(max(0.0, pace.due_s - time.monotonic())):
                return
            if pace is power:
                self._read_power(power)
            else:
                self._read_counters(pace)

    def _read_power(self, pace: Pace) -> None:
        nothing: Sequence[Reading] = ()
        begun_s = self._busy_since_s = time.monotonic()
        skipped = pace.skip(begun_s)
        due_s = pace.due_s
        readings, problem = _attempt(self.source.read, nothing)
        ended_s = time.monotonic()
        self._busy_since_s = None
        missed = skipped + pace.advance(ended_s)
        with self._changed:
            self._recording.tick((begun_s + ended_s) / 2, readings, problem)
            self._recording.pace(1000.0 * (ended_s - due_s), missed)
            self._changed.notify_all()

    def _read_counters(self, pace: Pace) -> None:
        nothing: Mapping[str, float] = {}
        begun_s = self._busy_since_s = time.monotonic()
        joules, problem = _attempt(self.source.read_counters, nothing)
        ended_s = time.monotonic()
        self._busy_since_s = None
        pace.advance(ended_s)
        with self._changed:
            self._recording.counters((begun_s + ended_s) / 2, joules, problem)
            self._changed.notify_all()


def _attempt(ask: Callable[[], _Answer], nothing: _Answer) -> tuple[_Answer, Reason | None]:
    """The answer, or ``nothing`` and why."""
    try:
        return ask(), None
    except PowerError as error:
        return nothing, Reason(error.reason, str(error))
    except Exception as error:  # a defect of one source must end neither its sampling nor the session
        # Only the type and the place: the text of a foreign error may quote a header with a password.
        frame = traceback.extract_tb(error.__traceback__)[-1]
        text = f"unexpected {type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
        return nothing, Reason("read_failed", text)


def _open_code(problem: Reason) -> str:
    return "no_power_source" if problem.code == "read_failed" else problem.code

"""A power source whose every answer a test decides."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from pytest_tokenwatt.power.source import Reading
from pytest_tokenwatt.records.power import SensorInfo


class FakeSource:
    """Gives what ``on_read`` and ``on_counters`` return; ``on_open`` may fail or wait. Knows its threads."""

    label = "fake power"
    chosen = "named by the test"
    notes: tuple[str, ...] = ("a note",)

    def __init__(
        self,
        *sensors: str,
        on_open: Callable[[], object] = lambda: None,
        on_read: Callable[[], Sequence[Reading]] | None = None,
        on_counters: Callable[[], Mapping[str, float]] | None = None,
        counter_hz: float | None = None,
        refresh_s: float | None = None,
        kind: str = "board",
        watts: float = 400.0,
        source: str = "board",
    ) -> None:
        self.source = source
        self.kind = kind
        self.refresh_s = refresh_s
        self.counter_hz = counter_hz
        self.opened = 0
        self.closed = threading.Event()
        self.threads: set[str] = set()
        self._sensors = sensors or ("GPU-a",)
        self._on_open = on_open
        self._on_read = on_read
        self._on_counters = on_counters
        self._watts = watts
        self._start_s = time.monotonic()

    def open(self) -> tuple[SensorInfo, ...]:
        self.opened += 1
        self._seen()
        self._on_open()
        return tuple(SensorInfo(sensor, limit_w=700.0) for sensor in self._sensors)

    def read(self) -> Sequence[Reading]:
        self._seen()
        if self._on_read is not None:
            return self._on_read()
        return [Reading(sensor, self._watts, reasons=4) for sensor in self._sensors]

    def read_counters(self) -> Mapping[str, float]:
        self._seen()
        if self._on_counters is not None:
            return self._on_counters()
        joules = 1000.0 + self._watts * (time.monotonic() - self._start_s)
        return dict.fromkeys(self._sensors, joules)

    def close(self) -> None:
        self._seen()
        self.closed.set()

    def _seen(self) -> None:
        self.threads.add(threading.current_thread().name)

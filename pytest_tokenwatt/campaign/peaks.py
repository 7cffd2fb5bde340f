"""The largest readings of an engine's gauges while a profile runs: KV cache in use, requests running, device memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from pytest_tokenwatt.campaign.observe import prefix_growth
from pytest_tokenwatt.engine.metrics import ServerMetrics, growth
from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.metrics.client import PrefixTokens
from pytest_tokenwatt.metrics.polling import polled_too_slowly
from pytest_tokenwatt.power.device_memory import DeviceMemory
from pytest_tokenwatt.records import SensorInfo
from pytest_tokenwatt.records.profiles import EnginePeaks

EVERY_S = 0.25
_STOP_TIMEOUT_S = 15.0
_KV_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
"""The gauge's name, and the one that older versions give it."""
_RUNNING = "vllm:num_requests_running"
_PREEMPTIONS = "vllm:num_preemptions_total"


class PeakWatch:
    """Polls while it is ``watching``; ``peaks`` afterwards are of that time. Polling never raises.

    ``gpus`` are the accelerators whose memory the driver is asked for; none for a simulated engine.
    """

    def __init__(
        self, read_metrics: Callable[[], ServerMetrics], gpus: Sequence[SensorInfo], *, simulated: bool
    ) -> None:
        self._read_metrics = read_metrics
        self._gpus = () if simulated else tuple(gpu.sensor for gpu in gpus)
        self._why_no_device = "the engine is simulated" if simulated else "the GPUs under test are not known"
        self._gauges = _Gauges()
        self._device = _Device()
        self._seconds, self._gap_s = 0.0, 0.0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Poll until the block is left."""
        self._gauges, self._device = _Gauges(), _Device()
        over = threading.Event()
        polls = [threading.Thread(target=self._poll_metrics, args=(self._gauges, over), daemon=True)]
        if self._gpus:
            polls.append(threading.Thread(target=_poll_device, args=(self._gpus, self._device, over), daemon=True))
        began_s = time.monotonic()
        for poll in polls:
            poll.start()
        try:
            yield
        finally:
            over.set()
            self._seconds = time.monotonic() - began_s
            self._gap_s = self._gauges.longest_gap_s(began_s, began_s + self._seconds)
            for poll in polls:
                # A driver in trouble may never answer: its thread is left behind.
                poll.join(_STOP_TIMEOUT_S)

    @property
    def peaks(self) -> EnginePeaks:
        """What was seen."""
        gauges, device = self._gauges, self._device
        missing = dict(gauges.missing())
        if device.peak_gib is None:
            missing["device_gib"] = device.problem or self._why_no_device
        return EnginePeaks(
            kv_usage=gauges.kv_usage,
            running=gauges.running,
            preemptions=gauges.preemptions(),
            device_gib=device.peak_gib,
            readings=gauges.readings,
            missing=missing,
            seconds=round(self._seconds, 3),
            longest_gap_s=round(self._gap_s, 3),
        )

    @property
    def prefix_tokens(self) -> PrefixTokens | None:
        """How the counters of the prefix cache grew."""
        first, last = self._gauges.first, self._gauges.last
        return None if first is None or last is None else prefix_growth(growth(first, last))

    @property
    def too_slow(self) -> str | None:
        """One line when the engine was read seldom, so that a peak may have been missed."""
        return polled_too_slowly(self.peaks)

    def _poll_metrics(self, gauges: _Gauges, over: threading.Event) -> None:
        for _ in _ticks(over):
            gauges.take(self._read_metrics())


def _ticks(over: threading.Event) -> Iterator[None]:
    """At absolute instants until ``over``; a late one is not made up.

    Closer together at first, so that a run of less than a second is read several times, too.
    """
    began_s = next_s = time.monotonic()
    while not over.is_set():
        yield
        every_s = min(EVERY_S, max(EVERY_S / 5.0, (next_s - began_s) / 4.0))
        next_s = max(next_s + every_s, time.monotonic())
        over.wait(next_s - time.monotonic())


@dataclass(slots=True)
class _Gauges:
    """The largest values so far, and the first and last readings for what only grows."""

    kv_usage: float | None = None
    running: float | None = None
    read_s: list[float] = field(default_factory=list)
    first: ServerMetrics | None = None
    last: ServerMetrics | None = None
    problem: str | None = None

    @property
    def readings(self) -> int:
        return len(self.read_s)

    def longest_gap_s(self, began_s: float, ended_s: float) -> float:
        """The longest time without a reading."""
        edges = (began_s, *self.read_s, ended_s)
        return max(after - before for before, after in pairwise(edges))

    def take(self, reading: ServerMetrics) -> None:
        if reading.problem is not None:
            self.problem = reading.problem
            return
        self.read_s.append(time.monotonic())
        self.first, self.last = self.first or reading, reading
        self.kv_usage = _larger(self.kv_usage, _usage(reading))
        self.running = _larger(self.running, reading.value(_RUNNING))

    def preemptions(self) -> float | None:
        if self.first is None or self.last is None:
            return None
        return growth(self.first, self.last).get(_PREEMPTIONS)

    def missing(self) -> Iterator[tuple[str, str]]:
        silence = self.problem or "the metrics were not read"
        named = (("kv_usage", self.kv_usage, _KV_USAGE[0]), ("running", self.running, _RUNNING))
        for name, value, metric in (*named, ("preemptions", self.preemptions(), _PREEMPTIONS)):
            if value is None:
                yield name, f"the engine has no metric {metric}" if self.readings else silence


def _usage(reading: ServerMetrics) -> float | None:
    """The share of the KV cache in use; several engines with one pool each are averaged."""
    for name in _KV_USAGE:
        engines, total = len(reading.samples.get(name, ())), reading.value(name)
        if engines and total is not None:
            return total / engines
    return None


def _larger(known: float | None, value: float | None) -> float | None:
    return value if known is None else known if value is None else max(known, value)


@dataclass(slots=True)
class _Device:
    """The largest figure of the driver, or why there is none."""

    peak_gib: float | None = None
    problem: str | None = field(default=None)


def _poll_device(uuids: Sequence[str], device: _Device, over: threading.Event) -> None:
    memory = DeviceMemory(uuids)
    try:
        memory.open()
    except PowerError as error:
        device.problem = error.what
        return
    try:
        for _ in _ticks(over):
            device.peak_gib = _larger(device.peak_gib, memory.used_gib())
    finally:
        memory.close()
    if device.peak_gib is None:
        device.problem = "the driver does not tell the memory in use"

"""The largest readings of an engine's gauges during a profile."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable

import pytest

from pytest_tokenwatt.campaign import peaks as peaks_module
from pytest_tokenwatt.campaign.peaks import PeakWatch
from pytest_tokenwatt.engine.metrics import ServerMetrics
from pytest_tokenwatt.records import SensorInfo
from pytest_tokenwatt.testing import FakeNvml

UUID = "GPU-00000000-0000-4000-8000-000000000000"


def metrics(usage: float, running: float, preempted: float, *, engines: int = 1) -> ServerMetrics:
    lines = ["# TYPE vllm:num_preemptions_total counter"]
    for engine in range(engines):
        lines.append(f'vllm:kv_cache_usage_perc{{engine="{engine}"}} {usage}')
        lines.append(f'vllm:num_requests_running{{engine="{engine}"}} {running}')
        lines.append(f'vllm:num_preemptions_total{{engine="{engine}"}} {preempted}')
    return ServerMetrics.parse("\n".join(lines))


def reader(readings: list[ServerMetrics], read: threading.Event | None = None) -> Callable[[], ServerMetrics]:
    """Gives them in turn, the last one for ever; ``read`` is set as soon as all were given."""
    given = itertools.count(1)

    def read_one() -> ServerMetrics:
        number = next(given)
        if read is not None and number > len(readings):
            read.set()
        return readings[min(number, len(readings)) - 1]

    return read_one


def watched(watch: PeakWatch, seconds: float) -> None:
    with watch.watching():
        time.sleep(seconds)


def test_peaks_are_the_largest_readings_and_preemptions_their_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks_module, "EVERY_S", 0.05)
    readings, read = [metrics(0.1, 3, 5), metrics(0.7, 9, 6), metrics(0.2, 1, 8)], threading.Event()
    watch = PeakWatch(reader(readings, read), (), simulated=False)
    with watch.watching():
        assert read.wait(30.0)
    peaks = watch.peaks
    assert (peaks.kv_usage, peaks.running, peaks.preemptions) == (0.7, 9.0, 3.0)
    assert peaks.readings >= 3
    assert peaks.missing == {"device_gib": "the GPUs under test are not known"}
    assert watch.too_slow is None


def test_engines_of_one_endpoint_share_their_pools() -> None:
    watch = PeakWatch(reader([metrics(0.5, 4, 0, engines=2)]), (), simulated=True)
    watched(watch, 0.1)
    assert watch.peaks.kv_usage == 0.5
    assert watch.peaks.running == 8.0


def test_what_the_engine_does_not_tell_is_missing_with_its_reason() -> None:
    silent = PeakWatch(reader([ServerMetrics(problem="/metrics answers 404")]), (), simulated=False)
    watched(silent, 0.1)
    assert silent.peaks.kv_usage is None
    assert silent.peaks.missing["kv_usage"] == "/metrics answers 404"
    other = PeakWatch(reader([ServerMetrics.parse("llamacpp:tokens 3")]), (), simulated=False)
    watched(other, 0.1)
    assert other.peaks.missing["running"] == "the engine has no metric vllm:num_requests_running"


@pytest.mark.slow
def test_a_slow_endpoint_is_said() -> None:
    def slow() -> ServerMetrics:
        time.sleep(0.8)
        return metrics(0.5, 1, 0)

    watch = PeakWatch(slow, (), simulated=False)
    watched(watch, 2.2)
    assert watch.too_slow is not None
    # Three readings in 2.4 s are seldom, and the two of a busy machine are few.
    assert re.search("2 are needed.* may be missed|too few to see", watch.too_slow)


def test_a_run_of_a_moment_is_read_too_seldom_to_hold_its_peak() -> None:
    def late() -> ServerMetrics:
        time.sleep(0.3)
        return metrics(0.5, 4, 0)

    watch = PeakWatch(late, (), simulated=True)
    watched(watch, 0.05)
    assert watch.too_slow is not None
    assert re.match(r"metrics came [12] times in \d.* too few to see a peak", watch.too_slow)
    assert watch.peaks.seconds is not None
    assert watch.peaks.kv_usage == 0.5


def test_a_run_of_less_than_a_second_is_read_several_times() -> None:
    read = threading.Event()
    watch = PeakWatch(reader([metrics(0.5, 4, 0)] * 3, read), (), simulated=True)
    with watch.watching():
        assert read.wait(30.0)
    peaks = watch.peaks
    assert peaks.seconds is not None
    assert peaks.longest_gap_s is not None
    assert 0 < peaks.longest_gap_s <= peaks.seconds
    # Four readings at the usual distance take three quarters of a second; a busy machine may be later.
    assert watch.too_slow is None or peaks.seconds > 0.75


def test_device_memory_is_the_drivers(fake_nvml: FakeNvml) -> None:
    fake_nvml.add_gpu().set_memory(80 * 2**30, 60 * 2**30)
    watch = PeakWatch(reader([metrics(0.5, 1, 0)]), (SensorInfo(UUID),), simulated=False)
    watched(watch, 0.4)
    assert watch.peaks.device_gib == 60.0
    unknown = PeakWatch(reader([metrics(0.5, 1, 0)]), (SensorInfo("GPU-elsewhere"),), simulated=False)
    watched(unknown, 0.3)
    assert "does not know GPU GPU-elsewhere" in unknown.peaks.missing["device_gib"]


@pytest.mark.usefixtures("fake_nvml")
def test_a_simulated_engine_has_no_device() -> None:
    watch = PeakWatch(reader([metrics(0.5, 1, 0)]), (SensorInfo(UUID),), simulated=True)
    watched(watch, 0.1)
    assert watch.peaks.missing["device_gib"] == "the engine is simulated"

"""Sampling: pace, failures, slow and hanging sources, and what is left of them in the trace."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from power_fakes import FakeSource

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.integrate import window_power
from pytest_tokenwatt.power.pace import Pace
from pytest_tokenwatt.power.recording import Recording
from pytest_tokenwatt.power.sampler import Sampler
from pytest_tokenwatt.power.source import Reading
from pytest_tokenwatt.records.base import ClockAnchor, Reason
from pytest_tokenwatt.records.power import PowerTrace, SensorInfo


@contextmanager
def sampling(source: FakeSource, hz: float = 50.0) -> Iterator[Sampler]:
    sampler = Sampler(source, hz, "fake")
    error = sampler.start(5.0)
    try:
        assert error is None, error
        yield sampler
    finally:
        sampler.stop(5.0)


def after(sampler: Sampler, seconds: float) -> PowerTrace:
    assert sampler.cover(time.monotonic() + seconds, 10.0)
    return sampler.trace()


def with_samples(sampler: Sampler, count: int) -> PowerTrace:
    """As soon as there are so many, which takes as long as the machine lets it."""
    deadline_s = time.monotonic() + 30.0
    while len((trace := sampler.trace()).sensors[0].power_s) < count:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    return trace


# --- the pace ------------------------------------------------------------------------------------------------------


def test_deadlines_do_not_drift() -> None:
    pace = Pace(100.0, 10.0)
    for tick in range(1000):
        assert pace.due_s == pytest.approx(100.0 + tick / 10.0, abs=1e-9)
        assert pace.advance(pace.due_s + 0.09) == 0


def test_ticks_that_pass_during_a_reading_are_missed() -> None:
    pace = Pace(0.0, 10.0)
    assert pace.advance(0.25) == 2
    assert pace.due_s == pytest.approx(0.3)


def test_a_late_tick_gives_way_to_a_newer_one() -> None:
    pace = Pace(0.0, 10.0)
    assert pace.skip(0.05) == 0
    assert pace.skip(0.35) == 3
    assert pace.due_s == pytest.approx(0.3)


@given(hz=st.floats(0.1, 100.0), works_s=st.lists(st.floats(0.0, 5.0), max_size=50))
def test_every_tick_is_served_or_missed(hz: float, works_s: list[float]) -> None:
    pace, now_s, missed = Pace(0.0, hz), 0.0, 0
    for work_s in works_s:
        now_s = max(now_s, pace.due_s)
        missed += pace.skip(now_s)
        now_s += work_s
        missed += pace.advance(now_s)
        assert pace.due_s > now_s - 1e-9 / hz
        assert pace.due_s <= now_s + 1.0 / hz + 1e-9
    assert pace.due_s * hz == pytest.approx(len(works_s) + missed, abs=1e-6)


# --- the trace -----------------------------------------------------------------------------------------------------


def test_every_sensor_is_read_at_every_tick_in_one_thread() -> None:
    source = FakeSource("GPU-a", "GPU-b")
    with sampling(source) as sampler:
        trace = after(sampler, 0.3)
    assert [sensor.info.sensor for sensor in trace.sensors] == ["GPU-a", "GPU-b"]
    for sensor in trace.sensors:
        assert len(sensor.power_s) == len(sensor.watts) == len(sensor.reasons) == len(sensor.stamps) >= 3
        assert set(sensor.watts) == {400.0}
        assert set(sensor.reasons) == {4}
        assert not sensor.counter_s
    assert len(trace.lateness_ms) == len(trace.sensors[0].power_s)
    assert min(trace.lateness_ms) >= 0
    assert abs(trace.anchor.wall_s - time.time()) < 60.0
    assert source.closed.is_set()
    assert source.threads == {"tokenwatt-power-fake"}
    assert source.opened == 1


def test_the_pace_is_kept_on_the_whole() -> None:
    with sampling(FakeSource(), 20.0) as sampler:
        trace = after(sampler, 0.6)
    power_s = trace.sensors[0].power_s
    ticks = len(power_s) + trace.missed
    assert ticks == pytest.approx(1 + 20.0 * (power_s[-1] - power_s[0]), abs=1.5)


def test_counters_are_read_beside_and_more_often() -> None:
    with sampling(FakeSource(counter_hz=40.0), 10.0) as sampler:
        trace = after(sampler, 0.5)
    sensor = trace.sensors[0]
    assert len(sensor.counter_s) > 1.5 * len(sensor.power_s)
    assert list(sensor.counter_j) == sorted(sensor.counter_j)
    assert list(sensor.counter_s) == sorted(sensor.counter_s)


def test_counters_are_never_read_less_often_than_power() -> None:
    with sampling(FakeSource(counter_hz=1.0), 40.0) as sampler:
        trace = after(sampler, 0.5)
    assert len(trace.sensors[0].counter_s) > 0.5 * len(trace.sensors[0].power_s)


def test_a_window_of_a_running_sampler_has_its_energy() -> None:
    with sampling(FakeSource("GPU-a", "GPU-b", counter_hz=50.0), 50.0) as sampler:
        start_s = time.monotonic() + 0.1
        end_s = start_s + 0.9
        assert sampler.cover(end_s, 10.0)
        window = window_power(sampler.trace(), start_s, end_s)
    assert window.energy_j == pytest.approx(720.0, rel=0.1)
    assert window.method == "energy_counter"
    assert window.throttle_counts == {"sw_power_cap": window.throttle_samples}


def test_a_snapshot_does_not_change_later() -> None:
    with sampling(FakeSource()) as sampler:
        first = after(sampler, 0.1)
        count = len(first.sensors[0].power_s)
        second = after(sampler, 0.1)
        assert len(first.sensors[0].power_s) == len(first.lateness_ms) == count
        assert len(second.sensors[0].power_s) > count


def test_snapshots_taken_all_the_time_are_consistent() -> None:
    with sampling(FakeSource("GPU-a", "GPU-b", counter_hz=200.0), 200.0) as sampler:
        until_s = time.monotonic() + 0.3
        while time.monotonic() < until_s:
            trace = sampler.trace()
            lengths = {len(column) for each in trace.sensors for column in (each.power_s, each.watts, each.stamps)}
            assert lengths == {len(trace.lateness_ms)}


def test_driver_counters_that_appear_later_stay_parallel() -> None:
    ticks = itertools.count()

    def read() -> Sequence[Reading]:
        tick = next(ticks)
        return [Reading("GPU-a", 400.0, throttle_ns={"sw_power_cap": tick} if tick > 2 else {}, stamp=float(tick))]

    with sampling(FakeSource(on_read=read)) as sampler:
        trace = with_samples(sampler, 4)
    column = trace.sensors[0].throttle_ns["sw_power_cap"]
    assert list(column[:4]) == [-1, -1, -1, 3]
    assert len(column) == len(trace.sensors[0].power_s)
    assert list(trace.sensors[0].stamps[:2]) == [0.0, 1.0]


# --- failures ------------------------------------------------------------------------------------------------------


def test_a_source_that_cannot_be_opened_says_so_and_is_closed() -> None:
    def fail() -> None:
        raise PowerError("gpu_count_mismatch", "2 GPUs, 1 expected", remedy="list them in hardware.gpus")

    source = FakeSource(on_open=fail)
    sampler = Sampler(source, 10.0, "board")
    error = sampler.start(5.0)
    assert error is not None
    assert error is sampler.error
    assert error.reason == "gpu_count_mismatch"
    assert str(error) == "2 GPUs, 1 expected; list them in hardware.gpus"
    assert not sampler.cover(0.0, 5.0)
    assert sampler.trace().sensors == ()
    sampler.stop(5.0)
    assert source.closed.wait(5.0)


def test_a_source_that_hangs_while_opened_is_given_up_in_time() -> None:
    let_go = threading.Event()
    source = FakeSource(on_open=lambda: let_go.wait(30.0))
    sampler = Sampler(source, 10.0, "redfish")
    error = sampler.start(0.2)
    assert error is not None
    assert error.reason == "no_power_source"
    assert "power source redfish did not answer within 0.2 s" in str(error)
    let_go.set()
    assert source.closed.wait(5.0), "one that opens too late is closed, not sampled"
    sampler.stop(5.0)
    assert sampler.trace().sensors == ()
    assert sampler.error is error


def test_an_unexpected_error_while_opening_shows_no_text_of_it() -> None:
    def fail() -> None:
        raise ValueError("Invalid header value b'Basic c2VjcmV0'")

    error = Sampler(FakeSource(on_open=fail), 10.0, "redfish").start(5.0)
    assert error is not None
    assert error.reason == "no_power_source"
    assert "ValueError at test_power_sampler.py" in str(error)
    assert "Basic" not in str(error)


def test_failed_reads_are_samples_without_watts_and_one_event() -> None:
    ticks = itertools.count()

    def read() -> Sequence[Reading]:
        if 3 <= next(ticks) < 8:
            raise PowerError("read_failed", "401 Unauthorized")
        return [Reading("GPU-a", 400.0)]

    with sampling(FakeSource(on_read=read)) as sampler:
        trace = with_samples(sampler, 10)
    missing = [math.isnan(watts) for watts in trace.sensors[0].watts]
    assert missing[:10] == [False] * 3 + [True] * 5 + [False] * 2
    assert [(event.sensor, event.reason) for event in trace.events] == [
        (None, Reason("read_failed", "401 Unauthorized"))
    ]
    assert trace.events[0].at_s == trace.sensors[0].power_s[3]
    assert trace.events[0].until_s == trace.sensors[0].power_s[7]


def test_an_unexpected_error_does_not_end_sampling() -> None:
    ticks = itertools.count()

    def read() -> Sequence[Reading]:
        if next(ticks) == 1:
            raise KeyError("password=hunter2")
        return [Reading("GPU-a", 400.0)]

    with sampling(FakeSource(on_read=read)) as sampler:
        trace = with_samples(sampler, 3)
    assert len(trace.events) == 1
    assert "KeyError" in trace.events[0].reason.text
    assert "hunter2" not in trace.events[0].reason.text
    assert trace.sensors[0].watts[-1] == 400.0


def test_one_sensor_of_two_failing_leaves_the_other_alone() -> None:
    lost = Reason("gpu_lost", "GPU-b fell off the bus")
    with sampling(
        FakeSource("GPU-a", "GPU-b", on_read=lambda: [Reading("GPU-a", 400.0), Reading("GPU-b", None, problem=lost)])
    ) as sampler:
        trace = after(sampler, 0.2)
    assert set(trace.sensors[0].watts) == {400.0}
    assert all(math.isnan(watts) for watts in trace.sensors[1].watts)
    assert [(event.sensor, event.reason) for event in trace.events] == [("GPU-b", lost)]


def test_a_sensor_that_is_passed_over_is_noticed() -> None:
    with sampling(FakeSource("GPU-a", "GPU-b", on_read=lambda: [Reading("GPU-a", 400.0)])) as sampler:
        trace = after(sampler, 0.1)
    assert [event.sensor for event in trace.events] == ["GPU-b"]
    assert "said nothing" in trace.events[0].reason.text


def test_a_problem_beside_watts_keeps_the_sample() -> None:
    changed = Reason("power_limit_changed", "from 700 to 500 W")
    with sampling(FakeSource(on_read=lambda: [Reading("GPU-a", 400.0, problem=changed)])) as sampler:
        trace = after(sampler, 0.1)
    assert set(trace.sensors[0].watts) == {400.0}
    assert [event.reason for event in trace.events] == [changed]


def test_counters_that_fail_leave_the_samples_alone() -> None:
    def fail() -> dict[str, float]:
        raise PowerError("read_failed", "the counter is gone")

    with sampling(FakeSource(counter_hz=50.0, on_counters=fail)) as sampler:
        trace = after(sampler, 0.2)
    assert not trace.sensors[0].counter_s
    assert set(trace.sensors[0].watts) == {400.0}
    assert [event.reason.text for event in trace.events] == ["the counter is gone"]


# --- slow and hanging ----------------------------------------------------------------------------------------------


def test_a_slow_read_misses_ticks_and_makes_none_up() -> None:
    ticks = itertools.count()

    def read() -> Sequence[Reading]:
        if next(ticks) == 2:
            time.sleep(0.35)
        return [Reading("GPU-a", 400.0)]

    with sampling(FakeSource(on_read=read), 20.0) as sampler:
        trace = with_samples(sampler, 8)
    power_s = list(trace.sensors[0].power_s)
    assert trace.missed >= 6
    assert trace.lateness_ms[2] >= 350.0
    assert power_s[3] - power_s[2] > 0.15, "the stamp is the middle of the call"
    assert len(power_s) - 3 <= 20.0 * (power_s[-1] - power_s[3]) + 2, "no burst makes up for the missed ticks"


def test_a_read_that_hangs_ends_neither_cover_nor_stop() -> None:
    let_go = threading.Event()
    ticks = itertools.count()

    def read() -> Sequence[Reading]:
        if next(ticks) == 1:
            let_go.wait(60.0)
        return [Reading("GPU-a", 400.0)]

    source = FakeSource(on_read=read)
    sampler = Sampler(source, 50.0, "redfish")
    assert sampler.start(5.0) is None
    begun_s = time.monotonic()
    assert not sampler.cover(begun_s + 0.2, 0.5)
    assert time.monotonic() - begun_s < 5.0
    assert len(sampler.trace().sensors[0].power_s) == 1
    sampler.stop(0.1)
    assert not source.closed.is_set()
    let_go.set()
    assert source.closed.wait(5.0)


def test_nobody_waits_long_for_a_source_that_answers_nothing() -> None:
    failed = Reason("read_failed", "NotSupported")
    with sampling(FakeSource(on_read=lambda: [Reading("GPU-a", None, problem=failed)])) as sampler:
        begun_s = time.monotonic()
        assert sampler.cover(begun_s, 60.0)
        assert time.monotonic() - begun_s < 20.0


def test_cover_waits_for_an_answer_after_a_single_failure() -> None:
    ticks = itertools.count()

    def read() -> Sequence[Reading]:
        return [Reading("GPU-a", 400.0 if next(ticks) % 2 else None)]

    with sampling(FakeSource(on_read=read)) as sampler:
        until_s = time.monotonic() + 0.1
        assert sampler.cover(until_s, 10.0)
        sensor = sampler.trace().sensors[0]
    assert any(at_s >= until_s and watts > 0 for at_s, watts in zip(sensor.power_s, sensor.watts, strict=True))


# --- events --------------------------------------------------------------------------------------------------------


def recording(hz: float = 10.0, refresh_s: float | None = None, averaging_s: float = 0.0) -> Recording:
    return Recording([SensorInfo("GPU-a", averaging_s=averaging_s)], hz, refresh_s, ClockAnchor(0.0, 0.0))


def test_an_hour_of_failures_is_one_event() -> None:
    log = recording()
    for tick in range(36_000):
        log.tick(tick / 10.0, (), Reason("read_failed", "no answer"))
    (event,) = log.trace(FakeSource()).events
    assert (event.at_s, event.until_s) == (0.0, 3599.9)


def test_a_problem_that_comes_back_is_another_event() -> None:
    log = recording()
    for tick in range(600):
        foreign = Reason("foreign_process", "process 77 on GPU-a") if tick in (100, 101, 500) else None
        log.tick(tick / 10.0, [Reading("GPU-a", 400.0, problem=foreign)], None)
    events = log.trace(FakeSource()).events
    assert [(event.at_s, event.last_s) for event in events] == [(10.0, 10.1), (50.0, 50.0)]


def test_different_problems_side_by_side_are_kept_apart() -> None:
    log = recording()
    for tick in range(100):
        log.tick(tick / 10.0, (), Reason("read_failed", "timeout" if tick % 2 else "refused"))
    assert sorted(event.reason.text for event in log.trace(FakeSource()).events) == ["refused", "timeout"]


def test_an_event_begins_when_it_may_have_begun() -> None:
    log, reason = recording(), Reason("power_limit_changed", "it changed")
    log.tick(9.0, [Reading("GPU-a", 400.0, problem=reason, since_s=4.0)], None)
    (event,) = log.trace(FakeSource()).events
    assert (event.at_s, event.last_s) == (4.0, 9.0)


def test_a_source_that_looks_now_and_then_has_to_look_behind_the_window() -> None:
    log = recording()
    log.tick(9.0, [Reading("GPU-a", 400.0, looked_s=5.0)], None)
    assert (log.reached(5.0), log.reached(6.0)) == (True, False)
    log.tick(9.1, [Reading("GPU-a", 400.0, looked_s=9.05)], None)
    assert log.reached(9.0)


def test_ever_new_problems_are_bounded_and_still_make_their_window_invalid() -> None:
    log = recording()
    for tick in range(12_000):
        log.tick(tick / 10.0, [Reading("GPU-a", None, problem=Reason("gpu_lost", f"error {tick}"))], None)
    trace = log.trace(FakeSource())
    assert len(trace.events) <= 5000
    assert "gpu_lost" in [reason.code for reason in window_power(trace, 1100.0, 1110.0).invalid]


def test_a_mean_is_covered_when_its_middle_is() -> None:
    log = recording(averaging_s=1.0)
    log.tick(10.0, [Reading("GPU-a", 400.0)], None)
    assert log.reached(9.5)
    assert not log.reached(9.6)


def test_a_slow_counter_is_covered_when_it_moves() -> None:
    fast, slow = recording(), recording(refresh_s=30.0)
    for log in (fast, slow):
        for at_s, joules in ((9.0, 1.0), (10.0, 1.0), (11.0, 1.0)):
            log.tick(at_s, [Reading("GPU-a", 400.0)], None)
            log.counters(at_s, {"GPU-a": joules}, None)
    assert fast.reached(11.0)
    assert not slow.reached(10.5)
    slow.counters(12.0, {"GPU-a": 2.0}, None)
    assert slow.reached(11.0)

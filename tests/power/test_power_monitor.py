"""Several sources at once: order, isolation, node against boards, and what is said of each."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from power_fakes import FakeSource

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.gpus import GpuQuery
from pytest_tokenwatt.power.monitor import Monitor
from pytest_tokenwatt.power.source import Reading
from pytest_tokenwatt.power.sources import SourceContext, open_source, open_sources
from pytest_tokenwatt.records.power import WindowPower
from pytest_tokenwatt.spec.serving import PowerSource as PowerSettings

HZ = 50.0
BOARD = PowerSettings(source="board", sampling_hz=HZ)
NODE = PowerSettings(source="redfish", sampling_hz=HZ, url="https://bmc.example")


@contextmanager
def monitoring(*pairs: tuple[PowerSettings, FakeSource], timeout_s: float = 5.0) -> Iterator[Monitor]:
    monitor = Monitor(pairs)
    try:
        monitor.start(timeout_s)
        yield monitor
    finally:
        monitor.stop(1.0)


def a_window(monitor: Monitor, seconds: float = 0.6, timeout_s: float = 10.0) -> tuple[WindowPower, ...]:
    start_s = time.monotonic() + 0.1
    monitor.cover(start_s + seconds, timeout_s)
    return monitor.windows(start_s, start_s + seconds)


def node(watts: float) -> FakeSource:
    return FakeSource("node-1", kind="node", watts=watts, source="redfish")


def failing(error: PowerError) -> FakeSource:
    def fail() -> None:
        raise error

    return FakeSource(on_open=fail, kind="node", source="redfish")


def test_windows_come_in_the_specs_order_with_the_gpus_share() -> None:
    with monitoring((NODE, node(600.0)), (BOARD, FakeSource(watts=450.0))) as monitor:
        windows = a_window(monitor)
    assert [window.source for window in windows] == ["redfish", "board"]
    assert [window.invalid for window in windows] == [(), ()]
    assert "GPU share of node power 75.0 %" in windows[0].notes
    assert windows[1].notes == ()


def test_of_several_nodes_none_is_held_against_all_the_boards() -> None:
    with monitoring((NODE, node(300.0)), (NODE, node(320.0)), (BOARD, FakeSource(watts=450.0))) as monitor:
        windows = a_window(monitor)
    assert [window.invalid for window in windows] == [(), (), ()]
    assert all("one node of several: not compared with the GPU boards" in window.notes for window in windows[:2])


def test_a_node_below_its_boards_is_not_believed() -> None:
    with monitoring((BOARD, FakeSource(watts=450.0)), (NODE, node(300.0))) as monitor:
        board, below = a_window(monitor)
    assert board.energy_j == pytest.approx(270.0, rel=0.01)
    assert below.energy_j is None
    assert [reason.code for reason in below.invalid] == ["node_below_gpu"]
    assert "270.0 J" in below.invalid[0].text
    assert board.invalid == ()


def test_a_source_that_did_not_open_is_in_every_window_with_its_reason() -> None:
    error = PowerError("no_power_source", "401 from the BMC", remedy="check power.username")
    with monitoring((BOARD, FakeSource()), (NODE, failing(error))) as monitor:
        board, missing = a_window(monitor)
        idle = monitor.idle(0.0, 1.0)
        records = monitor.records("power-base.csv")
    assert board.energy_j is not None
    assert (missing.source, missing.kind, missing.energy_j) == ("redfish", "node", None)
    assert [str(reason) for reason in missing.invalid] == [
        "no_power_source: 401 from the BMC; check power.username",
    ]
    assert idle[1].reason == "401 from the BMC; check power.username"
    assert records[1].invalid == missing.invalid
    assert records[1].sensors == ()
    assert records[1].file is None


def test_start_tells_of_every_source() -> None:
    error = PowerError("no_power_source", "no answer")
    monitor = Monitor([(NODE, failing(error)), (BOARD, FakeSource())])
    try:
        refused, fine = monitor.start(5.0)
    finally:
        monitor.stop(5.0)
    assert refused is not None
    assert (refused.reason, str(refused)) == ("no_power_source", "no answer")
    assert fine is None


def test_sources_open_at_the_same_time() -> None:
    both = threading.Barrier(2)

    def meet() -> None:
        both.wait(10.0)

    monitor = Monitor([(BOARD, FakeSource(on_open=meet)), (NODE, FakeSource(on_open=meet))])
    try:
        assert monitor.start(10.0) == (None, None)
    finally:
        monitor.stop(5.0)


def test_a_stalled_source_delays_no_other_one() -> None:
    let_go = threading.Event()

    def stall() -> Sequence[Reading]:
        let_go.wait(60.0)
        return [Reading("node-1", 600.0)]

    stalled = FakeSource("node-1", kind="node", source="redfish", on_read=stall)
    try:
        with monitoring((NODE, stalled), (BOARD, FakeSource(watts=450.0))) as monitor:
            begun_s = time.monotonic()
            nothing, board = a_window(monitor, timeout_s=1.5)
            assert time.monotonic() - begun_s < 10.0
            records = monitor.records()
        assert board.energy_j == pytest.approx(270.0, rel=0.01)
        assert nothing.energy_j is None
        assert records[1].missed < records[1].ticks / 2
    finally:
        let_go.set()
    assert stalled.closed.wait(5.0)


def test_a_record_says_how_sampling_went() -> None:
    with monitoring((BOARD, FakeSource("GPU-a", "GPU-b", counter_hz=40.0))) as monitor:
        start_s = time.monotonic()
        monitor.cover(start_s + 1.2, 10.0)
        idle = monitor.idle(start_s, start_s + 1.2)
        (record,) = monitor.records("power-base.csv", idle)
    assert (record.source, record.kind, record.label) == ("board", "board", "fake power")
    assert record.sampling_hz == HZ
    assert [info.sensor for info in record.sensors] == ["GPU-a", "GPU-b"]
    assert record.chosen == "named by the test"
    assert record.notes == ("a note",)
    assert record.idle_w.value == pytest.approx(800.0, rel=0.05)
    assert record.ticks >= 20
    assert record.failed == 0
    assert record.lateness_p99_ms is not None
    assert record.file == "power-base.csv"


def test_failures_are_counted() -> None:
    silent = FakeSource("GPU-a", "GPU-b", on_read=lambda: [Reading("GPU-a", 400.0), Reading("GPU-b", None)])
    with monitoring((BOARD, silent)) as monitor:
        a_window(monitor, 0.2)
        (record,) = monitor.records()
    assert record.failed == record.ticks - record.missed > 0
    assert record.idle_w.value is None
    assert record.idle_w.reason == "idle power was not measured"


def test_traces_come_in_the_specs_order() -> None:
    with monitoring((NODE, node(600.0)), (BOARD, FakeSource())) as monitor:
        a_window(monitor, 0.1)
        assert [trace.source for trace in monitor.traces()] == ["redfish", "board"]


# --- from the spec -------------------------------------------------------------------------------------------------


@pytest.fixture
def context(tmp_path: Path) -> SourceContext:
    gpus = GpuQuery(listed=None, expected=1, environ={}, pids=lambda: None)
    return SourceContext({"BMC_PASSWORD": "hunter2"}, tmp_path, "http://127.0.0.1:8000", True, gpus)


def test_none_is_no_source(context: SourceContext) -> None:
    assert open_source(PowerSettings(source="none"), context) is None
    assert open_sources([PowerSettings(source="none")], context) == ()


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        (PowerSettings(source="board"), "board"),
        (PowerSettings(source="dcgm", url="http://node:9400/metrics"), "board"),
        (PowerSettings(source="redfish", url="https://bmc.example"), "node"),
        (PowerSettings(source="ipmi"), "node"),
        (PowerSettings(source="rapl"), "cpu"),
        (PowerSettings(source="command", command=("echo", "300")), "other"),
        (PowerSettings(source="simulated"), "board"),
    ],
    ids=lambda value: value.source if isinstance(value, PowerSettings) else "",
)
def test_every_source_of_the_spec_can_be_made(settings: PowerSettings, kind: str, context: SourceContext) -> None:
    source = open_source(settings, context)
    assert source is not None
    assert (source.source, source.kind) == (settings.source, kind)


def test_a_source_that_is_refused_keeps_its_place(context: SourceContext) -> None:
    wrong = PowerSettings(source="command")
    with pytest.raises(PowerError):
        open_source(wrong, context)
    pairs = open_sources([PowerSettings(source="none"), wrong, BOARD], context)
    assert [settings.source for settings, _ in pairs] == ["command", "board"]
    monitor = Monitor(pairs[:1])
    (error,) = monitor.start(5.0)
    monitor.stop(5.0)
    assert error is not None
    assert error.reason == "no_power_source"
    assert [window.source for window in monitor.windows(0.0, 1.0)] == ["command"]


def test_a_context_shows_no_environment(context: SourceContext) -> None:
    assert "hunter2" not in repr(context)

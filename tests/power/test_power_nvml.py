"""What is put into the fake driver comes out of the real binding."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.gpus import GpuQuery
from pytest_tokenwatt.power.integrate import window_power
from pytest_tokenwatt.power.nvml import BoardSource, identify
from pytest_tokenwatt.power.sampler import Sampler
from pytest_tokenwatt.power.source import PowerSource, Reading
from pytest_tokenwatt.testing import FakeGpu, FakeNvml, running_fake_nvml

pytest_plugins = ["pytest_tokenwatt.testing"]

ENGINE = frozenset({4321})


def query(expected: int = 1, *listed: str, cuda: str | None = None, pids: frozenset[int] | None = None) -> GpuQuery:
    environ = {} if cuda is None else {"CUDA_VISIBLE_DEVICES": cuda}
    return GpuQuery(listed or None, expected, environ, lambda: pids)


@contextmanager
def opened(asked: GpuQuery, look_every_s: float = 5.0) -> Iterator[BoardSource]:
    source = BoardSource(asked, look_every_s)
    try:
        source.open()
        yield source
    finally:
        source.close()


def only(source: BoardSource) -> Reading:
    (reading,) = source.read()
    return reading


def steady(fake: FakeNvml, watts: float = 512.3) -> FakeGpu:
    """A GPU whose sensor shows its power at once."""
    gpu = fake.add_gpu()
    gpu.set_sensor(boxcar_s=0.001, refresh_s=0.0)
    gpu.set_power(watts)
    time.sleep(0.01)
    return gpu


def test_it_is_a_power_source() -> None:
    source: PowerSource = BoardSource(query())
    assert (source.source, source.kind) == ("board", "board")
    assert source.chosen == "not opened"


def test_identity(fake_nvml: FakeNvml) -> None:
    fake_nvml.set_driver("550.54.15")
    gpu = fake_nvml.add_gpu("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "NVIDIA H100 80GB HBM3", "00000000:4E:00.0")
    gpu.set_memory(85_520_809_984, 1024)
    gpu.set_memory_bus(2619, 5120)
    gpu.set_limit(650.0, default_w=700.0)
    (info,) = identify(query())
    assert info.sensor == "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
    assert info.name == "NVIDIA H100 80GB HBM3"
    assert info.bus_id == "00000000:4E:00.0"
    assert info.driver == "550.54.15"
    assert info.limit_w == 650.0
    assert info.memory_gib == pytest.approx(79.6475, abs=1e-4)
    assert info.bandwidth_tbs == pytest.approx(3.35232)


def test_opening_gives_the_same_identity(fake_nvml: FakeNvml) -> None:
    steady(fake_nvml)
    source = BoardSource(query())
    try:
        assert source.open() == identify(query())
        assert source.chosen == "all GPUs of this machine"
        assert source.notes == ()
    finally:
        source.close()


def test_what_is_not_told_is_none(fake_nvml: FakeNvml) -> None:
    gpu = fake_nvml.add_gpu()
    for symbol in ("Name", "PciInfo_v3", "MemoryInfo", "MemoryBusWidth", "EnforcedPowerLimit"):
        gpu.fail(f"nvmlDeviceGet{symbol}", 3)
    (info,) = identify(query())
    assert info.sensor == gpu.uuid
    assert (info.name, info.bus_id, info.memory_gib, info.bandwidth_tbs, info.limit_w) == (None,) * 5


@pytest.mark.parametrize(
    ("name", "architecture", "averaging_s"),
    [
        ("NVIDIA H100 80GB HBM3", 9, 1.0),
        ("NVIDIA A10", 7, 1.0),
        ("NVIDIA RTX A3000", 7, 1.0),
        ("NVIDIA A100-SXM4-80GB", 7, 0.0),
        ("NVIDIA A30", 7, 0.0),
        ("Tesla T4", 6, 0.0),
        ("Tesla V100", 0xFFFFFFFF, 0.0),
    ],
)
def test_how_long_the_sensor_averages(fake_nvml: FakeNvml, name: str, architecture: int, averaging_s: float) -> None:
    fake_nvml.add_gpu(name=name).set_architecture(architecture)
    (info,) = identify(query())
    assert info.averaging_s == averaging_s


def test_power_reasons_and_throttle_counters(fake_nvml: FakeNvml) -> None:
    gpu = steady(fake_nvml, 512.3)
    gpu.set_reasons(0x4 | 0x20)
    gpu.set_throttle(power_cap_ns=123_456_789_012, thermal_ns=5_000_000_000, sync_boost_ns=77)
    with opened(query()) as source:
        reading = only(source)
    assert reading.sensor == gpu.uuid
    assert reading.watts == 512.3
    assert reading.reasons == 0x24
    assert reading.throttle_ns == {"sw_power_cap": 123_456_789_012, "thermal": 5_000_000_000, "sync_boost": 77}
    assert reading.problem is None


def test_throttle_counters_run(fake_nvml: FakeNvml) -> None:
    steady(fake_nvml).set_throttle(power_cap_share=0.5)
    with opened(query()) as source:
        started = time.monotonic()
        first = only(source).throttle_ns["sw_power_cap"]
        time.sleep(0.2)
        grown = only(source).throttle_ns["sw_power_cap"] - first
        elapsed = time.monotonic() - started
    assert 0.5e9 * 0.2 <= grown <= 0.5e9 * elapsed


def test_power_is_the_sensors_average(fake_nvml: FakeNvml) -> None:
    gpu = fake_nvml.add_gpu()
    gpu.set_sensor(boxcar_s=0.2, refresh_s=0.0)
    gpu.set_square_wave(110.0, 620.0, 0.2)
    time.sleep(0.25)
    with opened(query()) as source:
        watts = [only(source).watts for _ in range(20)]
    assert watts == [pytest.approx(365.0, abs=0.01)] * 20


def test_the_sensors_stamp_is_that_of_its_refresh(fake_nvml: FakeNvml) -> None:
    gpu = fake_nvml.add_gpu()
    gpu.set_sensor(refresh_s=0.3)
    with opened(query()) as source:
        stamps: list[float | None] = []
        begun_s = time.monotonic()
        while len(set(stamps)) < 4 and time.monotonic() < begun_s + 20.0:
            stamps.append(only(source).stamp)
        took_s = time.monotonic() - begun_s
    assert None not in stamps
    assert len(stamps) > 20
    # Two whole refreshes lie between the first and the last of four stamps.
    assert len(set(stamps)) == 4
    assert took_s >= 2 * 0.3


def test_a_stamp_that_stands_while_power_moves_is_none(fake_nvml: FakeNvml) -> None:
    gpu = fake_nvml.add_gpu()
    gpu.set_sensor(stamped=False)
    with opened(query()) as source:
        assert [only(source).stamp for _ in range(2)] == [1.0, 1.0]
        gpu.set_sensor(refresh_s=0.0, jitter_w=20.0, stamped=False)
        stamps = []
        for _ in range(5):
            time.sleep(0.002)
            stamps.append(only(source).stamp)
    assert stamps[-1] is None


def test_a_sensor_without_stamps_has_none(fake_nvml: FakeNvml) -> None:
    gpu = fake_nvml.add_gpu()
    for field in (185, 186):
        gpu.fail("field", 3, field=field)
    with opened(query()) as source:
        assert only(source).stamp is None


def test_the_energy_counter_is_the_true_integral(fake_nvml: FakeNvml) -> None:
    gpu = fake_nvml.add_gpu()
    gpu.set_square_wave(110.0, 620.0, 0.07, duty=0.3)
    with opened(query()) as source:
        before_s = time.monotonic()
        start_j = source.read_counters()[gpu.uuid]
        time.sleep(0.3)
        end_j = source.read_counters()[gpu.uuid]
        after_s = time.monotonic()
    used_j = end_j - start_j
    # Between the calls and around them lie at most a few milliseconds of at most 620 W.
    assert used_j == pytest.approx(gpu.true_energy_j(before_s, after_s), abs=620.0 * (after_s - before_s - 0.3) + 0.01)


def test_changes_of_power_keep_the_counter_true(fake_nvml: FakeNvml) -> None:
    gpu = fake_nvml.add_gpu()
    with opened(query()) as source:
        start_s, start_j = time.monotonic(), source.read_counters()[gpu.uuid]
        gpu.set_power(600.0)
        time.sleep(0.1)
        gpu.set_power(100.0)
        time.sleep(0.1)
        end_j, end_s = source.read_counters()[gpu.uuid], time.monotonic()
    # What is not slept lies around the calls, at no more than 600 W.
    slack_j = 600.0 * (end_s - start_s - 0.2) + 0.01
    assert end_j - start_j == pytest.approx(gpu.true_energy_j(start_s, end_s), abs=slack_j)


def test_gpus_under_test_are_found_by_process_and_read_by_uuid(fake_nvml: FakeNvml) -> None:
    gpus = [fake_nvml.add_gpu() for _ in range(3)]
    gpus[0].set_processes(77)
    gpus[2].set_processes(4321)
    with opened(query(pids=ENGINE)) as source:
        assert [reading.sensor for reading in source.read()] == [gpus[2].uuid]
        assert list(source.read_counters()) == [gpus[2].uuid]
        assert source.chosen == "the GPUs that the engine's processes compute on"


def test_several_gpus_by_index_follow_the_bus_and_not_the_driver(fake_nvml: FakeNvml) -> None:
    last = fake_nvml.add_gpu(bus_id="00000000:F0:00.0")
    first = fake_nvml.add_gpu(bus_id="00000000:01:00.0")
    middle = fake_nvml.add_gpu(bus_id="00000000:20:00.0")
    assert [info.sensor for info in identify(query(2, cuda="0,1"))] == [first.uuid, middle.uuid]
    assert [info.sensor for info in identify(query(1, cuda="2"))] == [last.uuid]


def test_a_mig_device_is_its_board_with_a_statement(fake_nvml: FakeNvml) -> None:
    fake_nvml.add_gpu()
    split = fake_nvml.add_gpu()
    split.set_mig("MIG-6f1c-1", "MIG-6f1c-2")
    with opened(query(cuda="MIG-6f1c-2")) as source:
        assert only(source).sensor == split.uuid
        assert "whole board" in source.chosen
        assert "split by MIG" in source.notes[0]
    assert "split by MIG" in source.notes[0]


def test_a_changed_power_limit_is_said_once(fake_nvml: FakeNvml) -> None:
    gpu = steady(fake_nvml)
    with opened(query(), look_every_s=0.0) as source:
        assert only(source).problem is None
        gpu.set_limit(500.0)
        changed = only(source)
        assert only(source).problem is None
    assert changed.watts == 512.3
    assert changed.problem is not None
    assert changed.problem.code == "power_limit_changed"
    assert changed.problem.text == f"{gpu.uuid}: the enforced power limit changed from 700 W to 500 W"


def test_a_foreign_process_is_said_as_long_as_it_is_there(fake_nvml: FakeNvml) -> None:
    gpu = steady(fake_nvml)
    gpu.set_processes(4321)
    with opened(query(pids=ENGINE), look_every_s=0.0) as source:
        assert only(source).problem is None
        gpu.set_processes(4321, 99, 98)
        problems = [only(source).problem, only(source).problem]
        gpu.set_processes(4321)
        assert only(source).problem is None
    assert [problem.code for problem in problems if problem] == ["foreign_process"] * 2
    assert problems[0] is not None
    assert problems[0].text.endswith("processes that are not the engine's compute on it, too: PID 98, 99")


@pytest.mark.parametrize("pids", [None, frozenset({12, 13})])
def test_processes_of_another_namespace_are_unknown_and_not_foreign(
    fake_nvml: FakeNvml, pids: frozenset[int] | None
) -> None:
    steady(fake_nvml).set_processes(70_001, 70_002)
    with opened(query(pids=pids), look_every_s=0.0) as source:
        assert [only(source).problem for _ in range(3)] == [None] * 3


def test_between_two_looks_nothing_is_asked(fake_nvml: FakeNvml) -> None:
    gpu = steady(fake_nvml)
    with opened(query(), look_every_s=60.0) as source:
        assert only(source).problem is None
        gpu.set_limit(500.0)
        assert [only(source).problem for _ in range(3)] == [None] * 3


def test_what_is_seen_dates_back_to_the_look_before(fake_nvml: FakeNvml) -> None:
    gpu = steady(fake_nvml)
    gpu.set_processes(4321)
    with opened(query(pids=ENGINE), look_every_s=60.0) as source:
        before = only(source)
        gpu.set_limit(500.0)
        gpu.set_processes(4321, 99)
        assert only(source).looked_s == before.looked_s
        source.look_soon()
        changed, foreign = only(source), only(source)
    assert [each.problem.code for each in (changed, foreign) if each.problem] == [
        "power_limit_changed",
        "foreign_process",
    ]
    assert changed.since_s == foreign.since_s == before.looked_s
    assert changed.looked_s is not None
    assert before.looked_s is not None
    assert changed.looked_s > before.looked_s


def test_a_limit_that_could_not_be_read_dates_back_to_when_it_could(fake_nvml: FakeNvml) -> None:
    gpu = steady(fake_nvml)
    with opened(query(), look_every_s=0.0) as source:
        known = only(source)
        gpu.fail("nvmlDeviceGetEnforcedPowerLimit", 999)
        assert only(source).problem is None
        gpu.heal()
        gpu.set_limit(500.0)
        assert only(source).since_s == known.looked_s


@pytest.mark.slow
@pytest.mark.parametrize("code", ["power_limit_changed", "foreign_process"])
def test_a_change_in_the_last_moments_of_a_window_makes_it_invalid(fake_nvml: FakeNvml, code: str) -> None:
    gpu = steady(fake_nvml)
    gpu.set_processes(4321)
    sampler = Sampler(BoardSource(query(pids=ENGINE), look_every_s=60.0), 10.0, "board")
    assert sampler.start(10.0) is None
    try:
        assert sampler.cover(time.monotonic(), 10.0)
        start_s = time.monotonic() + 0.6
        assert sampler.cover(start_s, 10.0)
        time.sleep(1.2)
        if code == "power_limit_changed":
            gpu.set_limit(500.0)
        else:
            gpu.set_processes(4321, 99)
        end_s = time.monotonic() + 0.1
        assert sampler.cover(end_s, 10.0)
        power = window_power(sampler.trace(), start_s, end_s)
    finally:
        sampler.stop(10.0)
    assert [reason.code for reason in power.invalid] == [code]
    assert power.energy_j is None


def test_an_older_driver_has_the_reasons_under_their_former_name(fake_nvml: FakeNvml) -> None:
    gpu = steady(fake_nvml)
    gpu.set_reasons(0x40)
    gpu.fail("nvmlDeviceGetCurrentClocksEventReasons", 13)
    with opened(query()) as source:
        assert only(source).reasons == 0x40


def test_nvml_is_given_up_as_often_as_it_is_taken(fake_nvml: FakeNvml) -> None:
    steady(fake_nvml)
    source = BoardSource(query())
    source.open()
    identify(query())
    assert fake_nvml.users() == 1
    source.close()
    source.close()
    assert fake_nvml.users() == 0
    refused = BoardSource(query(7))
    with pytest.raises(PowerError):
        refused.open()
    refused.close()
    assert fake_nvml.users() == 0
    assert (list(refused.read()), refused.read_counters()) == ([], {})


WHICH_DRIVER = """
import pynvml
try:
    pynvml.nvmlInit()
    print(pynvml.nvmlSystemGetDriverVersion())
except pynvml.NVMLError as error:
    print(error.value)
"""


def test_a_process_started_meanwhile_does_not_see_the_fake(fake_nvml: FakeNvml) -> None:
    steady(fake_nvml)
    fake_nvml.set_driver("the-fake")
    command = [sys.executable, "-c", WHICH_DRIVER]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.strip()
    assert "the-fake" not in done.stdout


def test_behind_the_fixture_there_is_no_driver_left(fake_nvml_library: Path, tmp_path: Path) -> None:
    with running_fake_nvml(fake_nvml_library, tmp_path / "state") as fake:
        fake.add_gpu()
        assert len(identify(query())) == 1
    assert ctypes.CDLL("libnvidia-ml.so.1").nvmlInitWithFlags(0) == 12

"""What goes wrong with a GPU driver, each with its code and words, through the real binding."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.gpus import GpuQuery
from pytest_tokenwatt.power.nvml import BoardSource, identify
from pytest_tokenwatt.power.source import Reading
from pytest_tokenwatt.testing import FakeGpu, FakeNvml

pytest_plugins = ["pytest_tokenwatt.testing"]

POWER = "nvmlDeviceGetPowerUsage"
ENERGY = "nvmlDeviceGetTotalEnergyConsumption"


def query(expected: int = 1, *listed: str) -> GpuQuery:
    return GpuQuery(listed or None, expected, {}, lambda: None)


def two(fake: FakeNvml) -> tuple[FakeGpu, FakeGpu]:
    return fake.add_gpu(), fake.add_gpu()


def readings(source: BoardSource) -> dict[str, Reading]:
    return {reading.sensor: reading for reading in source.read()}


def said(reading: Reading) -> tuple[float | None, str, str]:
    assert reading.problem is not None
    return reading.watts, reading.problem.code, reading.problem.text


@pytest.mark.parametrize(
    ("code", "what", "remedy"),
    [
        (12, "the NVIDIA driver's library libnvidia-ml.so.1 is not here (error 12)", "install the driver"),
        (9, "the NVIDIA driver is installed but not loaded (error 9)", "modprobe nvidia"),
        (18, "kernel module and its library are of different versions (error 18)", "reboot, or reload"),
        (4, "this user may not talk to the NVIDIA driver (error 4)", "/dev/nvidiactl"),
        (999, "NVML does not start: Unknown Error (NVML error 999)", "nvidia-smi"),
    ],
)
def test_a_driver_that_does_not_start(fake_nvml: FakeNvml, code: int, what: str, remedy: str) -> None:
    fake_nvml.fail_init(code)
    for attempt in (BoardSource(query()).open, lambda: identify(query())):
        with pytest.raises(PowerError) as caught:
            attempt()
        assert caught.value.reason == "no_power_source"
        assert what in str(caught.value)
        assert remedy in (caught.value.remedy or "")


OLD_PACKAGE = {
    "pynvml/__init__.py": "from pynvml.nvml import *\n",
    "pynvml/nvml.py": "class NVMLError(Exception):\n    pass\n\ndef nvmlInit():\n    raise NVMLError(12)\n",
}


@pytest.mark.parametrize(
    ("files", "symptom"),
    [
        (OLD_PACKAGE, "it lacks nvmlDeviceGetTotalEnergyConsumption"),
        ({"pynvml/__init__.py": "import a_module_of_python_2\n"}, "it needs a_module_of_python_2"),
        ({"pynvml.py": "print 'python 2'\n"}, "its import fails with SyntaxError"),
    ],
)
def test_the_wrong_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], symptom: str
) -> None:
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PowerError, match="the former distribution named pynvml hides it") as caught:
        BoardSource(query()).open()
    for name in [name for name in sys.modules if name.partition(".")[0] == "pynvml"]:
        del sys.modules[name]
    assert caught.value.reason == "no_power_source"
    assert symptom in str(caught.value)
    assert caught.value.remedy == "pip uninstall pynvml; pip install --force-reinstall nvidia-ml-py"


def test_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(PowerError) as caught:
        BoardSource(query()).open()
    assert str(caught.value) == "the Python package nvidia-ml-py is not installed; pip install nvidia-ml-py"


def test_no_gpu(fake_nvml: FakeNvml) -> None:
    with pytest.raises(PowerError, match="lists no GPU that this process may read") as caught:
        identify(query())
    assert caught.value.reason == "no_power_source"


def test_a_gpu_that_this_user_may_not_open_is_named_with_the_mismatch(fake_nvml: FakeNvml) -> None:
    _, closed = two(fake_nvml)
    closed.fail("nvmlDeviceGetHandleByIndex_v2", 4)
    with pytest.raises(PowerError) as caught:
        identify(query(2))
    assert caught.value.reason == "gpu_count_mismatch"
    assert "the driver's GPU 1 cannot be read: Insufficient Permissions (NVML error 4)" in str(caught.value)


@pytest.mark.parametrize(
    ("code", "reason", "words"),
    [
        (3, "read_failed", "power could not be read: Not Supported (NVML error 3)"),
        (999, "read_failed", "power could not be read: Unknown Error (NVML error 999)"),
        (15, "gpu_lost", "the driver lost the GPU (NVML error 15); see dmesg for its Xid message"),
        (4, "no_permission", "this user may not read power (NVML error 4)"),
    ],
)
def test_one_gpu_of_two_fails_after_some_reads(fake_nvml: FakeNvml, code: int, reason: str, words: str) -> None:
    good, bad = two(fake_nvml)
    bad.fail(POWER, code, after=3)
    source = BoardSource(query(2))
    source.open()
    seen = [readings(source) for _ in range(4)]
    source.close()
    assert [tick[bad.uuid].problem is None for tick in seen] == [True, True, False, False]
    assert said(seen[-1][bad.uuid]) == (None, reason, f"{bad.uuid}: {words}")
    assert all(tick[good.uuid].watts == pytest.approx(300.0) and tick[good.uuid].problem is None for tick in seen)


def test_one_gpu_of_two_that_is_not_permitted_from_the_start(fake_nvml: FakeNvml) -> None:
    good, bad = two(fake_nvml)
    for symbol in (POWER, ENERGY):
        bad.fail(symbol, 4)
    source = BoardSource(query(2))
    assert len(source.open()) == 2
    seen, joules = readings(source), source.read_counters()
    source.close()
    assert said(seen[bad.uuid])[:2] == (None, "no_permission")
    assert seen[good.uuid].watts is not None
    assert list(joules) == [good.uuid]


def test_no_gpu_that_gives_its_power_is_no_power_source(fake_nvml: FakeNvml) -> None:
    for gpu in two(fake_nvml):
        gpu.fail(POWER, 3)
    source = BoardSource(query(2))
    with pytest.raises(PowerError, match=r"no GPU under test gives its power: .*; .*Not Supported") as caught:
        source.open()
    source.close()
    assert caught.value.reason == "no_power_source"


def test_zero_watts_is_no_reading(fake_nvml: FakeNvml) -> None:
    good, bad = two(fake_nvml)
    bad.set_sensor(boxcar_s=0.001, refresh_s=0.0)
    bad.set_power(0.0)
    time.sleep(0.01)
    source = BoardSource(query(2))
    source.open()
    seen = readings(source)
    source.close()
    assert said(seen[bad.uuid]) == (None, "read_failed", f"{bad.uuid}: the driver says 0 W, which is no reading")
    assert seen[good.uuid].watts is not None


@pytest.mark.parametrize(
    ("symbol", "code"),
    [
        ("nvmlDeviceGetCurrentClocksEventReasons", 999),
        ("nvmlDeviceGetFieldValues", 3),
        ("nvmlDeviceGetFieldValues", 13),
        ("nvmlDeviceGetViolationStatus", 3),
        ("nvmlDeviceGetComputeRunningProcesses_v3", 3),
        ("nvmlDeviceGetEnforcedPowerLimit", 3),
        (ENERGY, 3),
    ],
)
def test_an_item_that_fails_takes_nothing_else_along(fake_nvml: FakeNvml, symbol: str, code: int) -> None:
    gpu = fake_nvml.add_gpu()
    gpu.set_reasons(0x4)
    gpu.fail(symbol, code)
    source = BoardSource(query(), look_every_s=0.0)
    source.open()
    (reading,) = source.read()
    joules = source.read_counters()
    source.close()
    assert reading.watts == pytest.approx(300.0)
    assert reading.problem is None
    assert reading.reasons == (None if "Reasons" in symbol else 0x4)
    assert ("thermal" in reading.throttle_ns) == ("Violation" not in symbol)
    assert ("sw_power_cap" in reading.throttle_ns) == ("FieldValues" not in symbol)
    assert (gpu.uuid in joules) == (symbol != ENERGY)


def test_one_field_that_is_not_supported_leaves_the_others(fake_nvml: FakeNvml) -> None:
    gpu = fake_nvml.add_gpu()
    gpu.fail("field", 3, field=76)
    source = BoardSource(query())
    source.open()
    (reading,) = source.read()
    source.close()
    assert set(reading.throttle_ns) == {"sw_power_cap", "thermal"}
    assert reading.stamp is not None


@pytest.mark.parametrize(
    "spoil", [FakeGpu.counter_absent, lambda gpu: gpu.counter_constant(0.0)], ids=["absent", "zero with success"]
)
def test_a_missing_energy_counter_is_absent_and_stated(fake_nvml: FakeNvml, spoil: Callable[[FakeGpu], None]) -> None:
    good, bad = two(fake_nvml)
    spoil(bad)
    source = BoardSource(query(2))
    source.open()
    joules = [source.read_counters() for _ in range(3)]
    source.close()
    assert [list(each) for each in joules] == [[good.uuid]] * 3
    assert source.notes == (f"no energy counter on {bad.uuid}: energy is integrated from power",)


def test_a_frozen_counter_stands_and_a_reset_one_falls_back(fake_nvml: FakeNvml) -> None:
    frozen, reset = two(fake_nvml)
    source = BoardSource(query(2))
    source.open()
    frozen.counter_frozen()
    before = source.read_counters()
    reset.counter_reset(5.0)
    time.sleep(0.05)
    after = source.read_counters()
    source.close()
    assert after[frozen.uuid] == before[frozen.uuid]
    assert after[reset.uuid] < 1000.0 < before[reset.uuid]


def test_a_counter_that_fails_for_a_while_has_a_hole(fake_nvml: FakeNvml) -> None:
    gpu = fake_nvml.add_gpu()
    source = BoardSource(query())
    source.open()
    gpu.fail(ENERGY, 999)
    hole = source.read_counters()
    gpu.heal()
    assert (hole, list(source.read_counters()), source.notes) == ({}, [gpu.uuid], ())
    source.close()


def test_a_slow_read_holds_up_its_own_thread_alone(fake_nvml: FakeNvml) -> None:
    slow = fake_nvml.add_gpu()
    source = BoardSource(query())
    source.open()
    slow.delay(POWER, 1.0)
    started = time.monotonic()
    thread = threading.Thread(target=source.read, daemon=True)
    thread.start()
    identify(query())
    assert thread.is_alive(), "the other call had to wait for it"
    thread.join(10)
    assert time.monotonic() - started >= 1.0
    source.close()

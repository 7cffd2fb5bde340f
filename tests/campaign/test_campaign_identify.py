"""Asking the driver which GPUs are under test, without sampling them."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_tokenwatt.campaign.desk import LabOptions
from pytest_tokenwatt.campaign.identify import driver_trouble, identify_gpus
from pytest_tokenwatt.lab import Lab
from pytest_tokenwatt.power.gpus import GpuQuery
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.testing import FakeNvml

QUERY = GpuQuery(None, 1, {}, lambda: None)


def test_the_driver_names_the_gpus(fake_nvml: FakeNvml) -> None:
    gpu = fake_nvml.add_gpu()
    found, why = identify_gpus(QUERY)
    assert ([info.sensor for info in found], why) == ([gpu.uuid], None)
    assert fake_nvml.users() == 0


def test_without_a_driver_it_is_said_why(fake_nvml: FakeNvml) -> None:
    fake_nvml.fail_init(18)
    found, why = identify_gpus(QUERY)
    assert found == ()
    assert "different versions (error 18)" in str(why)


def test_a_driver_that_does_not_answer_holds_up_nobody(fake_nvml: FakeNvml) -> None:
    fake_nvml.add_gpu().delay("nvmlDeviceGetName", 0.5)
    found, why = identify_gpus(QUERY, timeout_s=0.1)
    assert found == ()
    assert why == "the NVIDIA driver did not answer within 0.1 s (see nvidia-smi)"
    # Before the fixture takes the driver away.
    for thread in threading.enumerate():
        if thread.name == "tokenwatt-gpus":
            thread.join(10.0)


def test_the_preflight_asks_whether_a_driver_answers(fake_nvml: FakeNvml) -> None:
    assert driver_trouble() is None
    assert fake_nvml.users() == 0
    fake_nvml.fail_init(12)
    assert "libnvidia-ml.so.1 is not here (error 12)" in str(driver_trouble())


@pytest.mark.parametrize(
    ("engine", "power", "warned"),
    [
        ("command: [no-such-engine, --port, '{port}']", "board", True),
        ("command: [no-such-engine, --port, '{port}']", "simulated", False),
        ("endpoint: 'http://gpu-node-7:8000/v1'", "board", False),
    ],
)
def test_boards_of_this_machine_want_its_driver(
    tmp_path: Path, fake_nvml: FakeNvml, engine: str, power: str, warned: bool
) -> None:
    fake_nvml.fail_init(12)
    spec = tmp_path / "spec.yaml"
    spec.write_text(f"engine: {{{engine}}}\nslo: {{ttft_p90_ms: 9}}\npower: {{source: {power}}}\n", encoding="utf-8")
    lab = Lab(load_spec(spec, {}), LabOptions(tmp_path, ("pytest",)), SimpleNamespace(line=lambda _: None))
    found = [problem for problem in lab.preflight(lab.gates) if problem.key == "power"]
    assert [problem.severity for problem in found] == (["warning"] if warned else [])
    assert all("source board cannot be read" in problem.what and problem.line == 3 for problem in found)

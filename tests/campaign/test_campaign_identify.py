"""Asking the driver which GPUs are under test, without sampling them."""

from __future__ import annotations

import threading

from pytest_tokenwatt.campaign.identify import identify_gpus
from pytest_tokenwatt.power.gpus import GpuQuery
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
    fake_nvml.add_gpu().delay("nvmlDeviceGetName", 1.0)
    found, why = identify_gpus(QUERY, timeout_s=0.2)
    assert found == ()
    assert why == "the NVIDIA driver did not answer within 0.2 s (see nvidia-smi)"
    # Before the fixture takes the driver away.
    for thread in threading.enumerate():
        if thread.name == "tokenwatt-gpus":
            thread.join(10.0)

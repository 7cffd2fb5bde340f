"""What is known of an engine start once its accelerators are."""

from __future__ import annotations

import pytest

from pytest_tokenwatt.campaign.machine import Machine
from pytest_tokenwatt.records import SensorInfo
from pytest_tokenwatt.records.profiles import Precision


@pytest.mark.parametrize(
    ("name", "label"), [("NVIDIA A100-SXM4-80GB", None), ("NVIDIA H200", "W8A8KV16"), (None, "W8A8KV16")]
)
def test_what_a_board_cannot_compute_in_was_not_read(name: str | None, label: str | None) -> None:
    machine = Machine(precision=Precision(8.0, 8.0, 16.0, "W8A8KV16", unconfirmed="FP8"))
    known = machine.on([SensorInfo("GPU-1", name=name)])
    assert known.precision.label == label
    assert ("activations" in known.precision.missing) is (label is None)

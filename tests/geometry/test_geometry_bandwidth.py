"""Rated bandwidth: who is asked first, and what counts as a match."""

from __future__ import annotations

import pytest

from pytest_tokenwatt.geometry.bandwidth import rated_bandwidth
from pytest_tokenwatt.records import RatedBandwidth


@pytest.mark.parametrize(
    ("name", "memory_mib", "tbs"),
    [
        ("NVIDIA A100-SXM4-40GB", 40960, 1.555),
        ("NVIDIA A100-SXM4-80GB", 81920, 2.039),
        ("NVIDIA A100 80GB PCIe", 81920, 1.935),
        ("NVIDIA H100 80GB HBM3", 81559, 3.35),
        ("NVIDIA H100 PCIe", 81559, 2.0),
        ("NVIDIA H100 NVL", 95830, 3.9),
        ("NVIDIA H200", 143771, 4.8),
        ("NVIDIA GH200 480GB", 97871, 4.0),
        ("NVIDIA B200", 183359, 8.0),
        ("NVIDIA L40S", 46068, 0.864),
        ("NVIDIA L4", 23034, 0.300),
        ("NVIDIA A10", 23028, 0.600),
        ("NVIDIA RTX 6000 Ada Generation", 49140, 0.960),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 97887, 1.792),
    ],
)
def test_the_data_sheet_is_found_by_the_drivers_name_and_memory(name: str, memory_mib: int, tbs: float) -> None:
    found = rated_bandwidth(None, name, memory_mib / 1024, 9.9)

    assert found == RatedBandwidth(tbs, f"data sheet of {name}")


def test_the_spec_comes_first() -> None:
    found = rated_bandwidth(1.5, "NVIDIA H100 80GB HBM3", 79.6, 3.3)

    assert found is not None
    assert (found.tbs, found.source.split(":")[0]) == (1.5, "spec")


@pytest.mark.parametrize(
    ("name", "memory_gib"),
    [
        ("NVIDIA H100", 79.6),
        ("nvidia h100 80gb hbm3", 79.6),
        ("NVIDIA H100 80GB HBM3", 93.6),
        ("NVIDIA H100 80GB HBM3", 39.6),
        ("NVIDIA H100 80GB HBM3", None),
        (None, 79.6),
    ],
)
def test_anything_but_an_exact_match_is_the_drivers_figure(name: str | None, memory_gib: float | None) -> None:
    found = rated_bandwidth(None, name, memory_gib, 3.36)

    assert found is not None
    assert found.tbs == 3.36
    assert found.source.startswith("driver")
    assert rated_bandwidth(None, name, memory_gib, None) is None
    assert rated_bandwidth(None, name, memory_gib, 0.0) is None


def test_a_simulated_board_is_called_one() -> None:
    assert rated_bandwidth(None, "NVIDIA H100 80GB HBM3", 80, 0.0325, simulated=True) == RatedBandwidth(
        0.0325, "simulated"
    )

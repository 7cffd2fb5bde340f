"""Rated memory bandwidth of an accelerator, and who says so."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pytest_tokenwatt.records import RatedBandwidth

RATED_TBS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "NVIDIA A100-SXM4-40GB": (40, 1.555),
        "NVIDIA A100-PCIE-40GB": (40, 1.555),
        "NVIDIA A100-SXM4-80GB": (80, 2.039),
        "NVIDIA A100 80GB PCIe": (80, 1.935),
        "NVIDIA H100 80GB HBM3": (80, 3.35),
        "NVIDIA H100 PCIe": (80, 2.0),
        "NVIDIA H100 NVL": (94, 3.9),
        "NVIDIA H200": (141, 4.8),
        "NVIDIA H200 NVL": (141, 4.8),
        "NVIDIA GH200 480GB": (96, 4.0),
        "NVIDIA GH200 120GB": (96, 4.0),
        "NVIDIA B200": (180, 8.0),
        "NVIDIA L40S": (48, 0.864),
        "NVIDIA L4": (24, 0.300),
        "NVIDIA A10": (24, 0.600),
        "NVIDIA RTX 6000 Ada Generation": (48, 0.960),
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": (96, 1.792),
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": (96, 1.792),
    }
)
"""By the driver's name: memory as sold in GB, and data-sheet bandwidth in TB/s.

The Server Edition of the RTX PRO 6000 is not among them: its memory is clocked lower.
"""

_DRIVER = "driver: 2 x memory clock x bus width / 8"
_SIMULATED = "simulated"
# Drivers tell GiB and take reserved memory off: an "80 GB" H100 has 79.6 GiB, a "24 GB" L4 with ECC 22.5, a "141 GB"
# H200 140.4.
_LEAST_SHARE = 0.9
_MOST_SHARE = 1.03


def rated_bandwidth(
    spec_tbs: float | None,
    name: str | None,
    memory_gib: float | None,
    driver_tbs: float | None,
    *,
    simulated: bool = False,
) -> RatedBandwidth | None:
    """Of one accelerator, in TB/s (10**12 B/s): the spec's figure, else the data sheet's, else the driver's.

    The data sheet is looked up by exact name and memory (GiB); one of the two unknown is no match. ``simulated``: name
    and driver are the embedded engine's, so ``driver_tbs`` is its own figure. ``None`` when nobody tells.
    """
    if spec_tbs is not None:
        return RatedBandwidth(spec_tbs, "spec: hardware.rated_bw_tbs_per_gpu")
    if not simulated:
        listed = _listed(name, memory_gib)
        if listed is not None:
            return RatedBandwidth(listed, f"data sheet of {name}")
    if driver_tbs is None or not driver_tbs > 0:
        return None
    return RatedBandwidth(driver_tbs, _SIMULATED if simulated else _DRIVER)


def _listed(name: str | None, memory_gib: float | None) -> float | None:
    if name is None or name not in RATED_TBS or memory_gib is None:
        return None
    sold, tbs = RATED_TBS[name]
    return tbs if _LEAST_SHARE * sold <= memory_gib <= _MOST_SHARE * sold else None

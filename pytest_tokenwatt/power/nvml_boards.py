"""What the driver says that its GPUs are: the list to choose from, and the identity of each that was chosen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from pytest_tokenwatt.power.board import Board
from pytest_tokenwatt.power.nvml_binding import attempt, describe
from pytest_tokenwatt.records.power import SensorInfo

_MEMORY_CLOCK = 2  # NVML_CLOCK_MEM
_AMPERE = 7  # NVML_DEVICE_ARCH_AMPERE; newer ones are greater
_UNKNOWN_ARCHITECTURE = 0xFFFFFFFF
# GA100 is the one chip of its generation whose power is instantaneous.
_GA100 = re.compile(r"\bA(100|800|30)X?\b")


def list_boards(nvml: ModuleType) -> tuple[tuple[Board, ...], tuple[str, ...]]:
    """All boards that can be read, and a sentence on each that cannot. Raises ``NVMLError`` when there is no list."""
    boards: list[Board] = []
    unreadable: list[str] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            boards.append(_board(nvml, nvml.nvmlDeviceGetHandleByIndex(index)))
        except nvml.NVMLError as error:
            unreadable.append(f"the driver's GPU {index} cannot be read: {describe(error)}")
    return tuple(boards), tuple(unreadable)


def sensor_info(nvml: ModuleType, handle: Any, uuid: str) -> SensorInfo:
    """The board's identity; ``None`` for each item that it does not tell."""
    memory = attempt(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    driver = attempt(nvml, nvml.nvmlSystemGetDriverVersion)
    name = _text(attempt(nvml, nvml.nvmlDeviceGetName, handle))
    return SensorInfo(
        sensor=uuid,
        name=name,
        memory_gib=memory.total / 2**30 if memory is not None and memory.total else None,
        bandwidth_tbs=_bandwidth_tbs(nvml, handle),
        limit_w=limit_w(nvml, handle),
        driver=_text(driver),
        bus_id=_bus_id(nvml, handle),
        averaging_s=_averaging_s(nvml, handle, name),
    )


def limit_w(nvml: ModuleType, handle: Any) -> float | None:
    """The power limit in force."""
    milliwatts = attempt(nvml, nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    return milliwatts / 1000 if milliwatts else None


def compute_pids(nvml: ModuleType, handle: Any) -> frozenset[int] | None:
    """The processes with a compute context, in the driver's PID namespace; ``None`` when it does not tell."""
    processes = attempt(nvml, nvml.nvmlDeviceGetComputeRunningProcesses_v3, handle)
    return None if processes is None else frozenset(int(process.pid) for process in processes)


def _board(nvml: ModuleType, handle: Any) -> Board:
    mode = attempt(nvml, nvml.nvmlDeviceGetMigMode, handle)
    split = mode is not None and bool(mode[0])
    return Board(
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)) or "",
        name=_text(attempt(nvml, nvml.nvmlDeviceGetName, handle)),
        bus_id=_bus_id(nvml, handle),
        pids=compute_pids(nvml, handle),
        mig=split,
        mig_uuids=tuple(_mig_uuids(nvml, handle)) if split else (),
    )


def _mig_uuids(nvml: ModuleType, handle: Any) -> Iterator[str]:
    """Slots without a MIG device answer NotFound."""
    for slot in range(attempt(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        device = attempt(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, slot)
        uuid = None if device is None else _text(attempt(nvml, nvml.nvmlDeviceGetUUID, device))
        if uuid:
            yield uuid


def _bandwidth_tbs(nvml: ModuleType, handle: Any) -> float | None:
    """Two transfers a clock over the whole bus: 2 · clock · width / 8."""
    clock_mhz = attempt(nvml, nvml.nvmlDeviceGetMaxClockInfo, handle, _MEMORY_CLOCK)
    width_bits = attempt(nvml, nvml.nvmlDeviceGetMemoryBusWidth, handle)
    return 2 * clock_mhz * 1e6 * width_bits / 8 / 1e12 if clock_mhz and width_bits else None


def _averaging_s(nvml: ModuleType, handle: Any, name: str | None) -> float:
    """Power is a mean over 1 s on Ampere and newer, but for GA100; before that it is of the moment (NVML's manual)."""
    architecture = attempt(nvml, nvml.nvmlDeviceGetArchitecture, handle)
    averages = architecture is not None and _AMPERE <= architecture < _UNKNOWN_ARCHITECTURE
    return 1.0 if averages and not _GA100.search(name or "") else 0.0


def _bus_id(nvml: ModuleType, handle: Any) -> str | None:
    info = attempt(nvml, nvml.nvmlDeviceGetPciInfo, handle)
    return None if info is None else _text(info.busId)


def _text(value: str | bytes | None) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value

"""The GPUs of this machine as the NVIDIA driver tells of them, all of them and in its order."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import ModuleType

from pytest_tokenwatt.errors import PowerError

TIMEOUT_S = 15.0
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Gpu:
    """One board; ``None`` for what the driver does not tell.

    ``used_gib`` is memory in use by whomever, ``pids`` the processes with a compute context in the driver's PID
    namespace; ``counts_energy`` says whether its energy counter answers with a figure.
    """

    uuid: str
    name: str | None
    driver: str | None
    memory_gib: float | None
    used_gib: float | None
    power_w: float | None
    limit_w: float | None
    pids: frozenset[int] | None
    counts_energy: bool

    def __str__(self) -> str:
        facts = [
            self.name,
            None if self.memory_gib is None else f"{self.memory_gib:.0f} GiB",
            None if self.power_w is None else f"{self.power_w:.0f} W now",
            None if self.limit_w is None else f"limit {self.limit_w:.0f} W",
        ]
        return ", ".join(fact for fact in facts if fact) or self.uuid


@dataclass(frozen=True, slots=True)
class Boards:
    """What the driver listed; ``trouble`` says why nothing could be asked, ``unreadable`` which boards could not."""

    gpus: tuple[Gpu, ...] = ()
    trouble: str | None = None
    unreadable: tuple[str, ...] = ()


def list_gpus(timeout_s: float = TIMEOUT_S) -> Boards:
    """Ask the driver. One in trouble may never answer: its call is then left behind in a daemon thread."""
    found: list[Boards] = []
    asking = threading.Thread(target=lambda: found.append(_ask()), name="tokenwatt-boards", daemon=True)
    asking.start()
    asking.join(timeout_s)
    silence = f"the NVIDIA driver did not answer within {timeout_s:g} s; see nvidia-smi and dmesg"
    return found[0] if found else Boards(trouble=silence)


def _ask() -> Boards:
    from pytest_tokenwatt.power.nvml_binding import attempt, describe, load
    from pytest_tokenwatt.power.nvml_boards import list_boards

    try:
        nvml = load()
    except PowerError as error:
        return Boards(trouble=str(error))
    try:
        boards, unreadable = list_boards(nvml)
        return Boards(tuple(_gpu(nvml, board.uuid, board.pids) for board in boards), unreadable=unreadable)
    except nvml.NVMLError as error:
        return Boards(trouble=f"the NVIDIA driver does not list its GPUs: {describe(error)}; see nvidia-smi")
    finally:
        attempt(nvml, nvml.nvmlShutdown)


def _gpu(nvml: ModuleType, uuid: str, pids: frozenset[int] | None) -> Gpu:
    from pytest_tokenwatt.power.nvml_binding import attempt
    from pytest_tokenwatt.power.nvml_boards import sensor_info

    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    info = sensor_info(nvml, handle, uuid)
    memory = attempt(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    milliwatts = attempt(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
    return Gpu(
        uuid=uuid,
        name=info.name,
        driver=info.driver,
        memory_gib=info.memory_gib,
        used_gib=None if memory is None else memory.used / _GIB,
        power_w=milliwatts / 1000 if milliwatts else None,
        limit_w=info.limit_w,
        pids=pids,
        # A counter that stands at zero is none.
        counts_energy=bool(attempt(nvml, nvml.nvmlDeviceGetTotalEnergyConsumption, handle)),
    )

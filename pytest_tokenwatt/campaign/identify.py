"""The driver of this machine: does it answer, and which GPUs are under test when nothing samples them?"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.gpus import GpuQuery
from pytest_tokenwatt.records import SensorInfo

T = TypeVar("T")

_TIMEOUT_S = 15.0


def identify_gpus(query: GpuQuery, timeout_s: float = _TIMEOUT_S) -> tuple[tuple[SensorInfo, ...], str | None]:
    """The GPUs under test as the driver names them, without sampling; else why they are not known.

    A driver in trouble may never answer: then its call is left behind in a daemon thread, and the run goes on.
    """
    return _in_time(lambda: _ask(query), timeout_s) or ((), _silence(timeout_s))


def driver_trouble(timeout_s: float = _TIMEOUT_S) -> str | None:
    """Why the NVIDIA driver of this machine cannot be asked for power; ``None`` when it answers."""
    told = _in_time(_knock, timeout_s)
    return _silence(timeout_s) if told is None else told[0]


def _in_time(ask: Callable[[], T], timeout_s: float) -> T | None:
    found: list[T] = []
    asking = threading.Thread(target=lambda: found.append(ask()), name="tokenwatt-gpus", daemon=True)
    asking.start()
    asking.join(timeout_s)
    return found[0] if found else None


def _silence(timeout_s: float) -> str:
    return f"the NVIDIA driver did not answer within {timeout_s:g} s (see nvidia-smi)"


def _knock() -> tuple[str | None]:
    from pytest_tokenwatt.power.nvml_binding import attempt, load

    try:
        nvml = load()
    except PowerError as error:
        return (str(error),)
    attempt(nvml, nvml.nvmlShutdown)
    return (None,)


def _ask(query: GpuQuery) -> tuple[tuple[SensorInfo, ...], str | None]:
    from pytest_tokenwatt.power.nvml import identify

    try:
        return identify(query), None
    except PowerError as error:
        return (), str(error)

"""Which GPUs are under test, asked of the driver when nothing samples them."""

from __future__ import annotations

import threading

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.gpus import GpuQuery
from pytest_tokenwatt.records import SensorInfo

_TIMEOUT_S = 15.0


def identify_gpus(query: GpuQuery, timeout_s: float = _TIMEOUT_S) -> tuple[tuple[SensorInfo, ...], str | None]:
    """The GPUs under test as the driver names them, without sampling; else why they are not known.

    A driver in trouble may never answer: then its call is left behind in a daemon thread, and the run goes on.
    """
    found: list[tuple[tuple[SensorInfo, ...], str | None]] = []
    asking = threading.Thread(target=lambda: found.append(_ask(query)), name="tokenwatt-gpus", daemon=True)
    asking.start()
    asking.join(timeout_s)
    return found[0] if found else ((), f"the NVIDIA driver did not answer within {timeout_s:g} s (see nvidia-smi)")


def _ask(query: GpuQuery) -> tuple[tuple[SensorInfo, ...], str | None]:
    from pytest_tokenwatt.power.nvml import identify

    try:
        return identify(query), None
    except PowerError as error:
        return (), str(error)

"""Memory in use on the GPUs under test, by the driver's own count."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.nvml_binding import attempt, load

_GIB = 2**30


class DeviceMemory:
    """Asks the driver. All calls must come from one thread."""

    def __init__(self, uuids: Sequence[str]) -> None:
        self._uuids = tuple(uuids)
        self._nvml: ModuleType | None = None
        self._handles: list[Any] = []

    def open(self) -> None:
        """Find the GPUs. Raises ``PowerError`` when the driver does not answer or does not know one of them."""
        nvml = load()
        self._nvml = nvml
        for uuid in self._uuids:
            handle = attempt(nvml, nvml.nvmlDeviceGetHandleByUUID, uuid)
            if handle is None:
                self.close()
                raise PowerError("no_power_source", f"the driver does not know GPU {uuid}")
            self._handles.append(handle)

    def used_gib(self) -> float | None:
        """Used memory summed over the GPUs, whoever uses it; ``None`` when one does not tell. Zero is no reading."""
        if self._nvml is None:
            return None
        told = [attempt(self._nvml, self._nvml.nvmlDeviceGetMemoryInfo, handle) for handle in self._handles]
        used = [memory.used / _GIB for memory in told if memory is not None and memory.used]
        return sum(used) if used and len(used) == len(told) else None

    def close(self) -> None:
        """Let go of the driver; safe to call again."""
        if self._nvml is not None:
            attempt(self._nvml, self._nvml.nvmlShutdown)
            self._nvml = None

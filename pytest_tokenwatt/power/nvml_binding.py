"""The driver's own library through nvidia-ml-py: loaded on use, and what its failures mean."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.records.base import Reason

T = TypeVar("T")

NOT_SUPPORTED = 3
NO_PERMISSION = 4
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
VERSION_MISMATCH = 18
ABSENT = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND})
"""Codes of what this board or driver will never answer."""

# Functions that the former distribution named pynvml lacks, beside one that anything of that name has.
_NEEDED = (
    "nvmlInit",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetComputeRunningProcesses_v3",
)
_ELSEWHERE = "for an engine on another machine use power: {source: dcgm} or {source: redfish}"
_INIT = {
    LIBRARY_NOT_FOUND: (
        "the NVIDIA driver's library libnvidia-ml.so.1 is not here (error 12)",
        f"install the driver, in a container run it with --gpus and the utility capability; {_ELSEWHERE}",
    ),
    DRIVER_NOT_LOADED: (
        "the NVIDIA driver is installed but not loaded (error 9)",
        "load it (modprobe nvidia) and see dmesg for why it was not",
    ),
    VERSION_MISMATCH: (
        "the NVIDIA driver's kernel module and its library are of different versions (error 18)",
        "reboot, or reload the nvidia modules: the driver was updated while it was in use",
    ),
    NO_PERMISSION: (
        "this user may not talk to the NVIDIA driver (error 4)",
        "give it read and write access to /dev/nvidiactl and /dev/nvidia*",
    ),
}


def load() -> ModuleType:
    """The binding, initialised; each success wants one ``nvmlShutdown``.

    Raises ``PowerError("no_power_source")``: no or the wrong Python package, no driver, or one that does not answer.
    """
    nvml = _binding()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        what, remedy = _INIT.get(code_of(error), (f"NVML does not start: {describe(error)}", "see nvidia-smi"))
        raise PowerError("no_power_source", what, remedy=remedy) from None
    return nvml


def _binding() -> ModuleType:
    try:
        module = importlib.import_module("pynvml")
    except ModuleNotFoundError as error:
        if error.name == "pynvml":
            raise PowerError(
                "no_power_source",
                "the Python package nvidia-ml-py is not installed",
                remedy="pip install nvidia-ml-py",
            ) from None
        raise _wrong_package(f"it needs {error.name}") from error
    # The former distribution is years old: on a newer Python its very import may fail in any way.
    except Exception as error:
        raise _wrong_package(f"its import fails with {type(error).__name__}") from error
    lacking = [name for name in _NEEDED if not hasattr(module, name)]
    if lacking:
        raise _wrong_package(f"it lacks {lacking[0]}")
    return module


def _wrong_package(symptom: str) -> PowerError:
    return PowerError(
        "no_power_source",
        f"the module pynvml is not that of nvidia-ml-py ({symptom}): the former distribution named pynvml hides it",
        remedy="pip uninstall pynvml; pip install --force-reinstall nvidia-ml-py",
    )


def code_of(error: Exception) -> int:
    """NVML's return code of an ``NVMLError``."""
    return int(getattr(error, "value", 999))


def describe(error: Exception) -> str:
    """The driver's words with the code, as in "Not Supported (NVML error 3)"."""
    return f"{str(error).rstrip('.')} (NVML error {code_of(error)})"


def attempt(nvml: ModuleType, ask: Callable[..., T], *arguments: Any) -> T | None:
    """What the driver answers, or ``None`` where it does not: for what may be missing without harm."""
    try:
        return ask(*arguments)
    except nvml.NVMLError:
        return None


def problem(error: Exception, gpu: str, what: str) -> Reason:
    """A failed read of one GPU as a reason: ``gpu_lost``, ``no_permission`` or ``read_failed``."""
    code = code_of(error)
    if code == GPU_IS_LOST:
        return Reason("gpu_lost", f"{gpu}: the driver lost the GPU (NVML error 15); see dmesg for its Xid message")
    if code == NO_PERMISSION:
        return Reason("no_permission", f"{gpu}: this user may not read {what} (NVML error 4)")
    return Reason("read_failed", f"{gpu}: {what} could not be read: {describe(error)}")

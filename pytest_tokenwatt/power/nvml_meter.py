"""What is read of one GPU at every tick; what fails is kept to the item and the GPU that it concerns."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from pytest_tokenwatt.power.nvml_binding import ABSENT, GPU_IS_LOST, code_of, problem
from pytest_tokenwatt.power.source import Reading
from pytest_tokenwatt.records.base import Reason

# Fields whose meaning no driver version changed: nanoseconds of the power cap and of sync boost, and averaged and
# instantaneous power, of which only the time stamp is used, and only that of the first that answers.
_COUNTERS = {74: "sw_power_cap", 76: "sync_boost"}
_STAMPS = (185, 186)
# Where each type of a field's value lies (nvmlValueType_t).
_MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
_THERMAL_POLICY = 1  # NVML_PERF_POLICY_THERMAL
THERMAL = "thermal"
"""The violation counter does not tell software from hardware slowdown."""


class Meter:
    """Reads one GPU. An item that this board or driver does not have is not asked for again."""

    def __init__(self, nvml: ModuleType, handle: Any, gpu: str) -> None:
        self._nvml = nvml
        self._handle = handle
        self._gpu = gpu
        self._ask_reasons: Callable[[Any], int] | None = nvml.nvmlDeviceGetCurrentClocksEventReasons
        self._fields: list[int] = [*_COUNTERS, *_STAMPS]
        self._thermal = True
        self._counter = True
        self._last: tuple[float, float] | None = None
        self._stamped = True

    def read(self) -> Reading:
        """Power, clock-event reasons, throttle counters and the sensor's own time stamp."""
        watts, failure = self._power()
        if failure is not None and failure.code == "gpu_lost":
            return Reading(self._gpu, None, problem=failure)
        reasons = self._reasons()
        throttle_ns, stamp = self._field_values()
        self._add_thermal(throttle_ns)
        return Reading(self._gpu, watts, reasons, throttle_ns, failure, self._trusted(watts, stamp))

    def counter_j(self) -> float | None:
        """Cumulative joules; ``None`` without an energy counter. One that stands at zero is none.

        Raises ``NVMLError`` when a counter that there is cannot be read.
        """
        if not self._counter:
            return None
        try:
            millijoules = self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)
        except self._nvml.NVMLError as error:
            if code_of(error) not in ABSENT:
                raise
            self._counter = False
            return None
        return millijoules / 1000 if millijoules > 0 else None

    def _power(self) -> tuple[float | None, Reason | None]:
        try:
            milliwatts = self._nvml.nvmlDeviceGetPowerUsage(self._handle)
        except self._nvml.NVMLError as error:
            return None, problem(error, self._gpu, "power")
        if milliwatts <= 0:
            return None, Reason("read_failed", f"{self._gpu}: the driver says 0 W, which is no reading")
        return milliwatts / 1000, None

    def _reasons(self) -> int | None:
        while self._ask_reasons is not None:
            try:
                return int(self._ask_reasons(self._handle))
            except self._nvml.NVMLError as error:
                if code_of(error) not in ABSENT:
                    return None
                self._ask_reasons = self._older_reasons(self._ask_reasons)
        return None

    def _older_reasons(self, asked: Callable[[Any], int]) -> Callable[[Any], int] | None:
        """Drivers before 535 have the same bits under the former name."""
        former: Callable[[Any], int] = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        return former if asked is not former else None

    def _field_values(self) -> tuple[dict[str, int], float | None]:
        if not self._fields:
            return {}, None
        try:
            values = self._nvml.nvmlDeviceGetFieldValues(self._handle, self._fields)
        except self._nvml.NVMLError as error:
            if code_of(error) in ABSENT:
                self._fields = []
            return {}, None
        throttle_ns: dict[str, int] = {}
        stamp: float | None = None
        for value in values:
            if value.nvmlReturn == GPU_IS_LOST:
                continue
            if value.nvmlReturn == 0 and value.fieldId in _COUNTERS:
                throttle_ns[_COUNTERS[value.fieldId]] = int(_number(value))
            elif value.nvmlReturn == 0 and value.timestamp > 0 and stamp is None:
                stamp = float(value.timestamp)
            else:
                self._fields = [field for field in self._fields if field != value.fieldId]
        return throttle_ns, stamp

    def _add_thermal(self, throttle_ns: dict[str, int]) -> None:
        if not self._thermal:
            return
        try:
            status = self._nvml.nvmlDeviceGetViolationStatus(self._handle, _THERMAL_POLICY)
        except self._nvml.NVMLError as error:
            self._thermal = code_of(error) == GPU_IS_LOST
            return
        throttle_ns[THERMAL] = int(status.violationTime)

    def _trusted(self, watts: float | None, stamp: float | None) -> float | None:
        """The time stamp, unless it once stood still while the power moved: then it is none of the sensor's."""
        if not self._stamped or stamp is None or watts is None:
            return None
        if self._last is not None and self._last[0] == stamp and self._last[1] != watts:
            self._stamped = False
            return None
        self._last = (stamp, watts)
        return stamp


def _number(value: Any) -> float:
    number: float = getattr(value.value, _MEMBERS.get(value.valueType, "ullVal"))
    return number

"""The pretended board: what it says of itself, and its sensors in real time."""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_tokenwatt.records import SensorInfo
from pytest_tokenwatt.sim.energy import EnergyMeter
from pytest_tokenwatt.sim.faults import Faults
from pytest_tokenwatt.sim.power import StepPower
from pytest_tokenwatt.sim.profile import Profile
from pytest_tokenwatt.sim.steptime import Batch

LABEL = "simulated GPU board (embedded engine)"

_HW_THERMAL_SLOWDOWN = 0x40
_MOST_KNOTS = 8192
_MARGIN_S = 1.0


def board_info(profile: Profile) -> SensorInfo:
    """The board of a profile, as a driver would describe it."""
    return SensorInfo(
        sensor=f"SIM-{profile.name}-0",
        name=profile.board.name,
        memory_gib=profile.board.memory_gib,
        bandwidth_tbs=profile.machine.bandwidth / 1e12,
        limit_w=profile.board.power.limit_w,
    )


class LiveBoard:
    """The board under a running engine. Instants are seconds of the event loop's clock, none before an earlier one."""

    def __init__(self, profile: Profile, kv_dtype: str, faults: Faults, start_s: float) -> None:
        self._info = board_info(profile)
        self._faults = faults
        self._start_s = start_s
        self._average_s = profile.board.power.sensor_average_s
        self._power = StepPower(profile, kv_dtype, clock=1 / faults.throttle)
        self._meter = EnergyMeter(profile.board.power, start_s)
        self._first_j = self._energy_j(start_s)

    def note(self, start_s: float, end_s: float, batch: Batch) -> None:
        """A step begins, and is meant to end at ``end_s``."""
        self._meter.add(start_s, end_s, self._power(batch))
        if len(self._meter) > _MOST_KNOTS:
            self._meter.forget(start_s - self._average_s - _MARGIN_S)

    def report(self, now_s: float) -> dict[str, Any]:
        """The reply of ``/tokenwatt/power``: watts, cumulative joules and throttling at this instant."""
        now = np.array([now_s])
        faults = self._faults
        throttle_ns = {"sw_power_cap": int(self._meter.capped_ns(now)[0])}
        reasons = int(self._meter.reasons(now)[0])
        if faults.throttle > 1:
            reasons |= _HW_THERMAL_SLOWDOWN
            throttle_ns["hw_thermal_slowdown"] = round((now_s - self._start_s) * 1e9)
        sensor = {
            "sensor": self._info.sensor,
            "name": self._info.name,
            "memory_gib": self._info.memory_gib,
            "limit_w": self._info.limit_w,
            "bandwidth_tbs": self._info.bandwidth_tbs,
            "watts": 0.0 if faults.power_zero else float(self._meter.watts(now)[0]),
            "energy_j": self._first_j if faults.power_counter_frozen else self._energy_j(now_s),
            "reasons": reasons,
            "throttle_ns": throttle_ns,
        }
        return {"simulated": True, "label": LABEL, "sensors": [sensor]}

    def _energy_j(self, at_s: float) -> float:
        return float(self._meter.energy_j(np.array([at_s]))[0])

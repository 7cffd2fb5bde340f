"""Where a chassis has its power: the places that Redfish knows, in the order in which they are trusted.

The schemas are EnvironmentMetrics, Power, PowerSubsystem, PowerSupplyMetrics and Sensor of DMTF's DSP0268.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pytest_tokenwatt.power.http import HttpFailure
from pytest_tokenwatt.power.redfish_bmc import Bmc, Keys, Resource, listed, name_of, part, target, walk
from pytest_tokenwatt.power.redfish_control import CONSUMED, names_of, pick_entries
from pytest_tokenwatt.power.source import Reading
from pytest_tokenwatt.power.watts import number, reading

# Fujitsu's iRMC has the second one; others repeat the standard's name.
_OEM_NAMES = (CONSUMED, "CurrentPowerConsumptionW")
_GONE = ("Absent", "Disabled", "UnavailableOffline")
_SPARE = ("StandbySpare", "StandbyOffline")
_POWER_LIKE = re.compile(r"power|pwr|watt|total", re.IGNORECASE)
_TOTAL = re.compile(r"total|system|chassis|node|server", re.IGNORECASE)
_MOST_SENSORS = 40


@dataclass(frozen=True, slots=True)
class Place:
    """One value of one resource; ``idle`` where zero is a fact (a supply in standby)."""

    path: str
    keys: Keys
    idle: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """The way to a chassis' power: one place, or several that are added up; ``remark`` goes to the report."""

    label: str
    places: tuple[Place, ...]
    remark: str | None = None

    def read(self, bmc: Bmc, sensor: str) -> Reading:
        """The power now; without a value of every place there is no sum. Raises ``HttpFailure``."""
        found = [_value(resource, place.keys) for resource, place in zip(self._fetch(bmc), self.places, strict=True)]
        readings = [
            Reading(sensor, 0.0)
            if place.idle and number(told) == 0
            else reading(sensor, told, f"{bmc.host}{place.path}", stamp=stamp)
            for (told, stamp), place in zip(found, self.places, strict=True)
        ]
        if len(readings) == 1:
            return readings[0]
        unread = next((each for each in readings if each.watts is None), None)
        total_w = sum(each.watts or 0.0 for each in readings)
        return unread or reading(sensor, total_w, f"the sum of {self.label}")

    def _fetch(self, bmc: Bmc) -> list[Resource]:
        return bmc.get_all([place.path for place in self.places])


@dataclass(frozen=True, slots=True)
class Found:
    """What a chassis offers: a route, if any, whether it gave a reading, and what was in the way."""

    route: Route | None
    reads: bool
    failures: tuple[HttpFailure, ...]
    hints: tuple[str, ...] = ()


def find_route(bmc: Bmc, chassis: Resource) -> Found:
    """The first route that gives a reading, else the first that exists.

    Raises ``HttpFailure`` for refused credentials: more requests would only lock the account.
    """
    waiting: Route | None = None
    failures: list[HttpFailure] = []
    hints: list[str] = []
    for find in (_environment, _power_control, _oem, _supplies, _sensors):
        try:
            route = find(bmc, chassis, hints)
            if route is None:
                continue
            if route.read(bmc, "").watts is not None:
                return Found(route, True, tuple(failures))
            waiting = waiting or route
        except HttpFailure as failure:
            if failure.status == 401:
                raise
            failures.append(failure)
    return Found(waiting, False, tuple(failures), tuple(hints))


def _environment(bmc: Bmc, chassis: Resource, hints: list[str]) -> Route | None:
    del hints
    path = target(chassis.get("EnvironmentMetrics"))
    metrics = bmc.get(path) if path else {}
    if path is None or "PowerWatts" not in metrics:
        return None
    energy = number(part(metrics, "EnergykWh").get("Reading"))
    remark = "the BMC also counts EnergykWh, in steps that are too coarse for a window" if energy else None
    keys = ("PowerWatts", "Reading") if isinstance(metrics["PowerWatts"], Mapping) else ("PowerWatts",)
    return Route("EnvironmentMetrics.PowerWatts", (Place(path, keys),), remark)


def _power_control(bmc: Bmc, chassis: Resource, hints: list[str]) -> Route | None:
    path = target(chassis.get("Power"))
    entries = listed(bmc.get(path), "PowerControl") if path else []
    pick = pick_entries(entries)
    if path is None or pick is None:
        if named := names_of(entries):
            hints.append(f"Power.PowerControl does not tell which of its entries is the whole: {named}")
        return None
    places = tuple(Place(path, ("PowerControl", position, CONSUMED)) for position in pick.positions)
    return Route(f"Power.PowerControl {pick.why}", places)


def _oem(bmc: Bmc, chassis: Resource, hints: list[str]) -> Route | None:
    """The value that lies highest below ``Oem``, or (iLO 4) beside the standard's; two at one height tell nothing."""
    del hints
    path = target(chassis.get("Power"))
    own = target({"@odata.id": chassis.get("@odata.id")})
    for where in filter(None, (path, own)):
        resource = chassis if where == own else bmc.get(where)
        found = sorted(filter(_is_oem, walk(resource)), key=len)
        if found and (len(found) == 1 or len(found[1]) > len(found[0])):
            return Route(f"OEM {'.'.join(map(str, found[0]))}", (Place(where, found[0]),))
    return None


def _is_oem(keys: Keys) -> bool:
    return keys[-1] in _OEM_NAMES and (len(keys) == 1 or "Oem" in keys) and "PowerSupplies" not in keys


def _supplies(bmc: Bmc, chassis: Resource, hints: list[str]) -> Route | None:
    del hints
    subsystem = target(chassis.get("PowerSubsystem"))
    collection = target(bmc.get(subsystem).get("PowerSupplies")) if subsystem else None
    supplies = bmc.get_all(bmc.members(collection)) if collection else []
    places = []
    for supply in supplies:
        state = part(supply, "Status").get("State")
        metrics = target(supply.get("Metrics"))
        if state in _GONE:
            continue
        if metrics is None:
            # Without one of them the sum would be short.
            return None
        places.append(Place(metrics, ("InputPowerWatts", "Reading"), idle=state in _SPARE))
    if not places:
        return None
    return Route(f"PowerSubsystem, input of {len(places)} power supplies", tuple(places))


def _sensors(bmc: Bmc, chassis: Resource, hints: list[str]) -> Route | None:
    collection = target(chassis.get("Sensors"))
    paths = [path for path in bmc.members(collection) if _POWER_LIKE.search(name_of(path))] if collection else []
    sensors = zip(paths[:_MOST_SENSORS], bmc.get_all(paths[:_MOST_SENSORS]), strict=True)
    power = {path: sensor for path, sensor in sensors if sensor.get("ReadingType") == "Power"}
    total = [path for path, sensor in power.items() if _TOTAL.search(f"{name_of(path)} {sensor.get('Name', '')}")]
    chosen = total if len(total) == 1 else list(power) if len(power) == 1 else []
    if not chosen:
        if power:
            hints.append(f"none of the power sensors is the total: {', '.join(map(name_of, power))}")
        return None
    return Route(f"sensor {name_of(chosen[0])}", (Place(chosen[0], ("Reading",)),))


def _value(resource: Resource, keys: Keys) -> tuple[Any, float | None]:
    """The value, and the time stamp beside it."""
    holder: Any = None
    told: Any = resource
    for key in keys:
        holder, told = told, _step(told, key)
    return told, _stamp(holder.get("ReadingTime")) if isinstance(holder, Mapping) else None


def _step(told: Any, key: str | int) -> Any:
    if isinstance(key, int):
        return told[key] if isinstance(told, list) and key < len(told) else None
    return told.get(key) if isinstance(told, Mapping) else None


def _stamp(told: object) -> float | None:
    try:
        return datetime.fromisoformat(told).timestamp() if isinstance(told, str) else None
    except (ValueError, OverflowError):
        return None

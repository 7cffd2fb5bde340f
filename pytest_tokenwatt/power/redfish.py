"""Power of a whole machine as its BMC tells it over Redfish."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.http import HttpFailure, build_access
from pytest_tokenwatt.power.redfish_bmc import SERVICE_ROOT, Bmc, Resource, name_of, target
from pytest_tokenwatt.power.redfish_routes import Found, Route, find_route
from pytest_tokenwatt.power.source import Reading
from pytest_tokenwatt.power.watts import NO_SOURCE, READ_FAILED, as_missing
from pytest_tokenwatt.records.power import SensorInfo
from pytest_tokenwatt.spec.serving import PowerSource

if TYPE_CHECKING:
    from pytest_tokenwatt.power.sources import SourceContext

OPEN_S = 20.0
"""Longest time for finding the power at the start; BMCs answer slowly."""
READ_S = 5.0
"""Longest time for one reading."""
_AGAIN_S = 8.0
_MACHINES = ("RackMount", "Blade", "StandAlone", "Sled", "Drawer")
_NAME_IT = "name the one under test in power.chassis"


class RedfishSource:
    """The power of one chassis of a BMC, with HTTP Basic authentication in every request.

    Where the power is (``EnvironmentMetrics``, ``Power.PowerControl``, OEM, ``PowerSubsystem``, ``Sensors``) is found
    once; it is looked for again when it is gone, and as long as it has not given a reading.
    """

    source = "redfish"
    kind = "node"
    label = "node power (Redfish)"
    refresh_s: float | None = 60.0
    counter_hz: float | None = None

    def __init__(self, settings: PowerSource, context: SourceContext) -> None:
        if settings.url is None:
            raise PowerError(NO_SOURCE, "power.url is missing", remedy="add the address of the BMC: url: https://…")
        self._url = settings.url
        self._settings = settings
        self._context = context
        self._bmc: Bmc | None = None
        self._chassis = ""
        self._sensor = ""
        self._route: Route | None = None
        self._settled = False
        self._cautions: tuple[str, ...] = ()

    @property
    def chosen(self) -> str:
        """Which chassis, and where its power is."""
        return f"chassis {name_of(self._chassis)}: {self._route.label if self._route else 'nothing yet'}"

    @property
    def notes(self) -> tuple[str, ...]:
        """Statements for the report."""
        remark = self._route.remark if self._route else None
        return (*self._cautions, remark) if remark else self._cautions

    def open(self) -> tuple[SensorInfo, ...]:
        """The chassis. Raises ``PowerError`` (``no_power_source``) when its power cannot be found."""
        access = build_access(self._settings, self._context.environ, self._context.spec_dir)
        self._cautions = access.notes
        bmc = self._bmc = Bmc(self._url, access)
        bmc.begin(OPEN_S)
        try:
            chassis, found = self._choose(bmc)
        except HttpFailure as failure:
            raise as_missing(failure) from None
        self._keep(chassis, found)
        name = chassis.get("Model") or chassis.get("Name")
        return (SensorInfo(sensor=self._sensor, name=str(name) if name else None),)

    def read(self) -> Sequence[Reading]:
        """The chassis' power now. Raises ``PowerError`` when the BMC does not answer, or not with power."""
        if self._bmc is None:
            raise PowerError(READ_FAILED, "the redfish source is not open")
        if self._route is not None and self._settled:
            self._bmc.begin(READ_S)
            try:
                return [self._route.read(self._bmc, self._sensor)]
            except HttpFailure as failure:
                if failure.status != 404:
                    raise
        return [self._again(self._bmc)]

    def read_counters(self) -> Mapping[str, float]:
        """Nothing: what BMCs count as energy is too coarse for a window."""
        return {}

    def close(self) -> None:
        """Close the connections."""
        if self._bmc is not None:
            self._bmc.close()
            self._bmc = None

    def _again(self, bmc: Bmc) -> Reading:
        bmc.begin(_AGAIN_S)
        chassis = bmc.get(self._chassis)
        found = find_route(bmc, chassis)
        if found.route is None:
            gone = _no_power([self._chassis], [found])
            raise PowerError(READ_FAILED, gone.what, remedy=gone.remedy)
        self._keep(chassis, found)
        return found.route.read(bmc, self._sensor)

    def _keep(self, chassis: Resource, found: Found) -> None:
        self._chassis = target(chassis) or self._chassis
        self._route, self._settled = found.route, found.reads
        self._sensor = f"{self._bmc.host if self._bmc else ''}/{name_of(self._chassis)}"

    def _choose(self, bmc: Bmc) -> tuple[Resource, Found]:
        paths = self._wanted(bmc.members(f"{SERVICE_ROOT}/Chassis"))
        chassis = dict(zip(paths, bmc.get_all(paths), strict=True))
        machines = [path for path in paths if chassis[path].get("ChassisType") in _MACHINES]
        rest = [path for path in paths if path not in machines]
        # A machine has boards, GPUs and backplanes as chassis of their own, each with its power; they come second.
        for group in filter(None, (machines, rest)):
            looks = {path: find_route(bmc, chassis[path]) for path in group}
            powered = [path for path, found in looks.items() if found.route is not None]
            if len(powered) > 1:
                raise _several({path: chassis[path] for path in powered})
            if powered:
                return {**chassis[powered[0]], "@odata.id": powered[0]}, looks[powered[0]]
            if group is rest or not rest or any(map(_obstacles, looks.values())):
                # The power of a part is no substitute for that of a machine that could not be read.
                raise _no_power(group, looks.values())
        raise _no_power(paths, ())

    def _wanted(self, paths: Sequence[str]) -> list[str]:
        if not paths:
            raise PowerError(NO_SOURCE, f"{self._url} lists no chassis", remedy="check power.url")
        wanted = self._settings.chassis
        if wanted is None:
            return list(paths)
        found = [path for path in paths if name_of(path).lower() == wanted.lower()]
        if not found:
            what = f"{self._url} has no chassis {wanted}; there are {', '.join(map(name_of, paths))}"
            raise PowerError(NO_SOURCE, what, remedy=_NAME_IT)
        return found


def _several(chassis: Mapping[str, Resource]) -> PowerError:
    listed = ", ".join(f"{name_of(path)} ({each.get('ChassisType', 'no type')})" for path, each in chassis.items())
    return PowerError(NO_SOURCE, f"several chassis have power: {listed}", remedy=_NAME_IT)


def _obstacles(found: Found) -> list[HttpFailure]:
    return [failure for failure in found.failures if failure.status != 404]


def _no_power(paths: Iterable[str], looks: Iterable[Found]) -> PowerError:
    """What was in the way, the most telling first: a failed request, an ambiguity, or simply nothing."""
    seen = list(looks)
    failure = next((failure for found in seen for failure in _obstacles(found)), None)
    if failure is not None:
        return as_missing(failure)
    hint = next((f"; {hint}" for found in seen for hint in found.hints), "")
    what = f"chassis {', '.join(map(name_of, paths))}: there is no power that can be read{hint}"
    return PowerError(NO_SOURCE, what, remedy="read it with power: {source: ipmi} or {source: command} instead")

"""Power of the embedded engine, which says itself what its simulated GPUs draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.http import Access, HttpFailure, HttpReader, parse_object
from pytest_tokenwatt.power.source import Reading
from pytest_tokenwatt.power.watts import NO_SOURCE, READ_FAILED, missing, number, reading
from pytest_tokenwatt.records.power import SensorInfo
from pytest_tokenwatt.spec.serving import PowerSource

if TYPE_CHECKING:
    from pytest_tokenwatt.power.sources import SourceContext

_WORD = "simulated"


class SimulatedSource:
    """Asks the engine under test for the power of its simulated GPUs; any other engine is refused."""

    source = "simulated"
    kind = "board"
    refresh_s: float | None = None
    counter_hz: float | None = 4.0

    def __init__(self, settings: PowerSource, context: SourceContext) -> None:  # noqa: ARG002 - all sources alike
        self._url = f"{context.endpoint_root}/tokenwatt/power"
        self._http: HttpReader | None = None
        self._sensors: tuple[SensorInfo, ...] = ()
        self.label = "simulated GPU board power"

    @property
    def chosen(self) -> str:
        """How the sensors were found."""
        return f"all {len(self._sensors)} simulated GPU(s) of the embedded engine"

    @property
    def notes(self) -> tuple[str, ...]:
        """Statements for the report."""
        return ("power is simulated: no sensor was read",)

    def open(self) -> tuple[SensorInfo, ...]:
        """The simulated GPUs. Raises ``PowerError`` (``no_power_source``) for any engine but the embedded one."""
        self._http = HttpReader(Access())
        try:
            told = self._ask()
        except HttpFailure as failure:
            # Also 200 with a page: gateways answer every path.
            raise _not_simulated(failure.what) from None
        if told.get("simulated") is not True:
            raise _not_simulated(f"GET {self._url} does not say that it is simulated")
        self._sensors = tuple(_info(entry) for entry in _entries(told))
        if not self._sensors:
            raise _not_simulated(f"GET {self._url} lists no sensors")
        label = str(told.get("label") or self.label)
        self.label = label if _WORD in label.lower() else f"{label} ({_WORD})"
        return self._sensors

    def read(self) -> Sequence[Reading]:
        """Watts, clock-event reasons and throttle times of each GPU. Raises ``PowerError`` without an answer."""
        entries = self._by_sensor()
        return [_reading(info.sensor, entries.get(info.sensor)) for info in self._sensors]

    def read_counters(self) -> Mapping[str, float]:
        """Cumulative joules by GPU. Raises ``PowerError`` without an answer."""
        counted = {sensor: number(entry.get("energy_j")) for sensor, entry in self._by_sensor().items()}
        return {sensor: joules for sensor, joules in counted.items() if joules is not None}

    def close(self) -> None:
        """Close the connection."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def _by_sensor(self) -> Mapping[str, Mapping[str, Any]]:
        return {str(entry["sensor"]): entry for entry in _entries(self._ask())}

    def _ask(self) -> dict[str, Any]:
        if self._http is None:
            raise PowerError(READ_FAILED, "the simulated source is not open")
        return parse_object(self._url, self._http.get(self._url))


def _not_simulated(what: str) -> PowerError:
    remedy = "power: {source: simulated} goes with the embedded engine only; name the machine's own source"
    return PowerError(NO_SOURCE, what, remedy=remedy)


def _entries(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    listed = told.get("sensors")
    return (
        [entry for entry in listed if isinstance(entry, dict) and "sensor" in entry] if isinstance(listed, list) else []
    )


def _info(entry: Mapping[str, Any]) -> SensorInfo:
    return SensorInfo(
        sensor=str(entry["sensor"]),
        name=entry.get("name"),
        memory_gib=number(entry.get("memory_gib")),
        bandwidth_tbs=number(entry.get("bandwidth_tbs")),
        limit_w=number(entry.get("limit_w")),
    )


def _reading(sensor: str, entry: Mapping[str, Any] | None) -> Reading:
    if entry is None:
        return missing(sensor, f"the engine no longer lists {sensor}")
    found = reading(sensor, entry.get("watts"), "the engine")
    times, reasons = entry.get("throttle_ns"), entry.get("reasons")
    return Reading(
        sensor=sensor,
        watts=found.watts,
        reasons=reasons if isinstance(reasons, int) else None,
        throttle_ns={name: int(spent) for name, spent in times.items()} if isinstance(times, dict) else {},
        problem=found.problem,
    )

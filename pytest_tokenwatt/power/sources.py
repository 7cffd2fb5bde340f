"""From the spec's ``power:`` entries to sources. Nothing is read here, and only what is asked for is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.gpus import GpuQuery
from pytest_tokenwatt.power.source import PowerSource, Reading
from pytest_tokenwatt.records.power import SensorInfo
from pytest_tokenwatt.spec.serving import PowerSource as PowerSettings

_KINDS = {"redfish": "node", "ipmi": "node", "rapl": "cpu", "command": "other"}


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What sources need beside their settings.

    ``environ`` is where the variables that hold passwords are looked up (kept out of the repr), ``spec_dir`` what
    relative paths start from, ``endpoint_root`` the engine's address without /v1. ``simulated``: the engine is the
    embedded one. ``gpus`` says how the GPUs under test are found.
    """

    environ: Mapping[str, str] = field(repr=False)
    spec_dir: Path
    endpoint_root: str
    simulated: bool
    gpus: GpuQuery = field(repr=False)


class RefusedSource:
    """A source whose settings are wrong: it stands in its place and fails to open with the reason."""

    refresh_s: float | None = None
    counter_hz: float | None = None
    chosen = ""
    notes: tuple[str, ...] = ()

    def __init__(self, source: str, error: PowerError) -> None:
        self.source = source
        self.kind = _KINDS.get(source, "board")
        self.label = f"power source {source}"
        self._error = error

    def open(self) -> tuple[SensorInfo, ...]:
        """Raises the ``PowerError`` that refused the settings."""
        raise self._error

    def read(self) -> Sequence[Reading]:
        """Raises it too."""
        raise self._error

    def read_counters(self) -> Mapping[str, float]:
        """Raises it too."""
        raise self._error

    def close(self) -> None:
        """Nothing to give up."""


def open_sources(
    settings: Sequence[PowerSettings], context: SourceContext
) -> tuple[tuple[PowerSettings, PowerSource], ...]:
    """The sources in the spec's order, without ``none``; one that is refused fails when it is opened."""
    pairs: list[tuple[PowerSettings, PowerSource]] = []
    for each in settings:
        source: PowerSource | None
        try:
            source = open_source(each, context)
        except PowerError as error:
            source = RefusedSource(each.source, error)
        if source is not None:
            pairs.append((each, source))
    return tuple(pairs)


def open_source(settings: PowerSettings, context: SourceContext) -> PowerSource | None:
    """The source that ``settings`` names, not opened yet; ``None`` for ``none``.

    Raises ``PowerError`` (``no_power_source``) for what can be seen to be wrong before anything is read.
    """
    if settings.source == "none":
        return None
    if settings.source == "board":
        from pytest_tokenwatt.power.nvml import BoardSource

        return BoardSource(context.gpus)
    return _by_settings(settings, context)


def _by_settings(settings: PowerSettings, context: SourceContext) -> PowerSource:
    match settings.source:
        case "redfish":
            from pytest_tokenwatt.power.redfish import RedfishSource

            return RedfishSource(settings, context)
        case "dcgm":
            from pytest_tokenwatt.power.dcgm import DcgmSource

            return DcgmSource(settings, context)
        case "ipmi":
            from pytest_tokenwatt.power.ipmi import IpmiSource

            return IpmiSource(settings, context)
        case "command":
            from pytest_tokenwatt.power.command import CommandSource

            return CommandSource(settings, context)
        case "rapl":
            from pytest_tokenwatt.power.rapl import RaplSource

            return RaplSource(settings, context)
        case _:
            from pytest_tokenwatt.power.simulated import SimulatedSource

            return SimulatedSource(settings, context)

"""How power was read: the sources of a configuration, and those of the whole run in a published report's words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pytest_tokenwatt.records import ConfigRecord, PowerRecord, Reason, SensorInfo
from pytest_tokenwatt.report.validity import validity
from pytest_tokenwatt.spec.model import Configuration, Scenario

_PACE = ("ticks", "missed", "failed")
NOT_ASKED = Reason("no_power_source", "the spec asks for no power source")


def power_block(records: Sequence[ConfigRecord], scenario: Scenario) -> dict[str, Any]:
    """The first source, whose figures count, and any ``further`` ones; ``None`` where it gave nothing at all."""
    read = [record.power for record in records if record.power and was_read(record.power[0])]
    if not read:
        return dict.fromkeys(("source", "kind", "sampling_hz", "window"))
    first, *further = read[0]
    block = {**_named(first), "window": f"{scenario.measurement.window_s:g} s steady state"}
    return {**block, "further": [_named(source) for source in further]} if further else block


def _named(source: PowerRecord) -> dict[str, Any]:
    return {"source": source.label, "kind": source.kind, "sampling_hz": source.sampling_hz}


def was_read(source: PowerRecord) -> bool:
    """Whether any reading gave something."""
    return source.ticks - source.missed > source.failed


def power_sources(record: ConfigRecord) -> list[dict[str, Any]]:
    """Every source of a configuration with its sensors, its pace, and whether it is to be believed."""
    return [_source(source) for source in record.power]


def _source(source: PowerRecord) -> dict[str, Any]:
    return {
        "source": source.source,
        "kind": source.kind,
        "label": source.label,
        "sampling_hz": source.sampling_hz,
        "sensors": [_sensor(sensor) for sensor in source.sensors],
        "chosen": source.chosen,
        "idle_power_w": source.idle_w.value,
        **{name: getattr(source, name) if source.counted else None for name in _PACE},
        "lateness_p99_ms": source.lateness_p99_ms,
        "file": source.file,
        "validity": validity(source.invalid),
        "notes": list(source.notes),
    }


def _sensor(sensor: SensorInfo) -> dict[str, Any]:
    return {
        "sensor": sensor.sensor,
        "name": sensor.name,
        "memory_gib": sensor.memory_gib,
        "limit_w": sensor.limit_w,
        "bus_id": sensor.bus_id,
    }


def power_is_asked(configuration: Configuration) -> bool:
    """Whether the spec names a source for this configuration."""
    return any(source.source != "none" for source in configuration.power)


def no_energy(record: ConfigRecord, configuration: Configuration) -> Iterator[Reason]:
    """Why a configuration whose rate was confirmed has no energy record at all."""
    faults = [fault for source in record.power[:1] for fault in source.invalid]
    if not power_is_asked(configuration):
        yield NOT_ASKED
    elif faults:
        yield from faults
    else:
        yield Reason("no_power_source", "no power was read in the confirming windows")

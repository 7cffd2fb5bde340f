"""The machine under test: what its driver named, and what the spec declares where nothing was read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_tokenwatt.records import ConfigRecord, SensorInfo
from pytest_tokenwatt.report.describe import declared_gpus, joined, raw
from pytest_tokenwatt.spec.model import Configuration, Spec

VENDORS = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}


def hardware(spec: Spec, records: Sequence[ConfigRecord], configuration: Configuration) -> dict[str, Any]:
    """Accelerators and their bandwidth; the count is the declared one (with an adapter) where none was read."""
    adapter = raw(spec.raw, "hardware", "adapter")
    found = next((record.gpus for record in records if record.gpus), ())
    tbs, source = _bandwidth(spec, records)
    return {
        "vendor": VENDORS.get(adapter.lower(), adapter) if adapter else _vendor(found),
        "accelerator": _accelerator(records),
        "count": len(found) or (declared_gpus(spec, configuration) if adapter else None),
        "rated_bw_tbs_per_gpu": tbs,
        "rated_bw_source": source,
        "driver": driver(records),
        "host": raw(spec.raw, "hardware", "host"),
    }


def driver(records: Sequence[ConfigRecord]) -> str | None:
    """The version of the accelerators' driver."""
    return joined(gpu.driver for record in records for gpu in record.gpus)


def gpu_ids(records: Sequence[ConfigRecord]) -> list[str] | None:
    """Identifiers of all accelerators that were measured on."""
    return list(dict.fromkeys(gpu.sensor for record in records for gpu in record.gpus)) or None


def card_count(record: ConfigRecord, spec: Spec) -> int:
    """Accelerators that a configuration ran on: those that were read, else the declared ones."""
    return read_gpus(record) or declared_gpus(spec, spec.configuration(record.key))


def read_gpus(record: ConfigRecord) -> int:
    """Accelerators that the driver (or the embedded engine) named for a configuration; 0: not known."""
    boards = [len(source.sensors) for source in record.power if source.kind == "board"]
    return len(record.gpus) or next((count for count in boards if count), 0)


def _accelerator(records: Sequence[ConfigRecord]) -> str | None:
    return joined(_name(record, gpu) for record in records for gpu in record.gpus)


def _name(record: ConfigRecord, gpu: SensorInfo) -> str | None:
    """The accelerator's name, which nobody shall take for a real one when it is simulated."""
    simulated = record.identity is not None and record.identity.simulated
    if gpu.name is None or not simulated or "simulated" in gpu.name.lower():
        return gpu.name
    return f"{gpu.name} (simulated)"


def _vendor(gpus: Sequence[SensorInfo]) -> str | None:
    """The vendor that the accelerators' names begin with."""
    names = {(gpu.name or "").split(" ", 1)[0].lower() for gpu in gpus}
    return joined(VENDORS.get(name) for name in names)


def _bandwidth(spec: Spec, records: Sequence[ConfigRecord]) -> tuple[float | None, str | None]:
    rated = next((record.rated_bandwidth for record in records if record.rated_bandwidth is not None), None)
    if rated is not None:
        return rated.tbs, rated.source
    declared = spec.hardware.rated_bw_tbs_per_gpu
    return declared, None if declared is None else "spec"

"""The machine and the engine of a lab report: accelerators, power sources, and what was served."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pytest_tokenwatt.records import Figure, PowerRecord, RatedBandwidth, SensorInfo, ServedIdentity
from pytest_tokenwatt.store.replay.fields import Fields
from pytest_tokenwatt.store.replay.stored_spec import kv_cache

_LAUNCH = ("command", "args", "up", "env", "image_digest", "kernels", "endpoint", "method", "prompt", "api")


def gpus(report: Fields, row: Fields) -> tuple[SensorInfo, ...]:
    """The accelerators by name; those without a stored UUID are numbered."""
    hardware = report.block("hardware")
    name, driver = hardware.text("accelerator"), hardware.text("driver")
    boards = [source.sensors for source in power(report, row) if source.kind == "board" and source.sensors]
    if boards:
        return tuple(replace(sensor, driver=driver) for sensor in boards[0])
    uuids = report.block("provenance").texts("gpu_uuids")
    if name is None and not uuids:
        return ()
    count = min(hardware.count("count") or 1, _MOST)
    sensors = uuids or tuple(f"gpu-{number}" for number in range(count))
    return tuple(SensorInfo(sensor=sensor, name=name, driver=driver) for sensor in sensors)


_MOST = 4096
"""More accelerators than any report is of: a broken count must not fill the memory."""


def rated_bandwidth(report: Fields) -> RatedBandwidth | None:
    """The rated memory bandwidth of one accelerator."""
    hardware = report.block("hardware")
    tbs = hardware.number("rated_bw_tbs_per_gpu", least=0.0)
    return None if tbs is None else RatedBandwidth(tbs, hardware.text("rated_bw_source") or "lab report")


def identity(report: Fields, row: Fields) -> ServedIdentity | None:
    """What was served: as our own reports store it, else from the engine's line and the spec."""
    told = report.block("provenance").block("engines").block(row.wanted("key"))
    if told.data:
        if told.data.get("model_ids") is None:
            return None
        return ServedIdentity(
            model_ids=told.texts("model_ids"),
            version=told.text("version"),
            root=told.text("root"),
            max_model_len=told.count("max_model_len"),
            cache_config=told.block("cache_config").words(),
            simulated=told.flag("simulated") or False,
        )
    model = report.block("spec").block("engine").text("model")
    version, cache = _version(report, row), kv_cache(row)
    if version is None and cache is None:
        return None
    cache_config = {"cache_dtype": cache.lower()} if cache else {}
    return ServedIdentity((model,) if model else (), version, cache_config=cache_config)


def _version(report: Fields, row: Fields) -> str | None:
    """The version behind the engine's name in ``vLLM 0.31.0 · KV BF16``."""
    software = report.block("software")
    engine, name = (row.text("engine") or "").split("·")[0].strip(), software.text("engine")
    if name and engine.startswith(f"{name} "):
        return engine.removeprefix(f"{name} ").strip() or None
    return software.text("engine_version")


def fingerprint(report: Fields, key: str) -> str | None:
    """The fingerprint of the engine; ``None`` in reports of others."""
    return report.block("provenance").block("engines").block(key).text("fingerprint")


def launch(report: Fields, key: str) -> dict[str, Any]:
    """How the engine was started, as far as our own reports say."""
    told = report.block("provenance").block("engines").block(key).block("launch").data
    return {name: value for name, value in told.items() if name in _LAUNCH}


def power(report: Fields, row: Fields) -> tuple[PowerRecord, ...]:
    """The power sources of a configuration."""
    rows = row.rows("power")
    if rows:
        return tuple(_source(source) for source in rows)
    told = report.block("power")
    label = told.text("source")
    if label is None or row.number("node_power_kw") is None:
        return ()
    asked = report.block("spec").rows("power")
    return (
        PowerRecord(
            source=(asked[0].text("source") if asked else None) or told.text("kind") or "board",
            kind=told.text("kind") or "board",
            label=label,
            sampling_hz=told.number("sampling_hz", least=0.0) or 0.0,
            sensors=(),
            chosen="",
            idle_w=Figure(None, "W", reason="not stored"),
            # A power is stored, so that something was read; how often is not.
            ticks=1,
            missed=0,
            failed=0,
            lateness_p99_ms=None,
            invalid=(),
            counted=False,
        ),
    )


def _source(row: Fields) -> PowerRecord:
    idle, counted = row.number("idle_power_w"), not row.null("ticks")
    return PowerRecord(
        source=row.text("source") or "",
        kind=row.text("kind") or "",
        label=row.text("label") or "",
        sampling_hz=row.number("sampling_hz", least=0.0) or 0.0,
        sensors=tuple(_sensor(sensor) for sensor in row.rows("sensors")),
        chosen=row.text("chosen") or "",
        idle_w=Figure(idle, "W", reason="not stored" if idle is None else None),
        ticks=(row.count("ticks") or 0) if counted else 1,
        missed=row.count("missed") or 0,
        failed=row.count("failed") or 0,
        lateness_p99_ms=row.number("lateness_p99_ms"),
        invalid=row.reasons(),
        notes=row.texts("notes"),
        file=row.text("file"),
        counted=counted,
    )


def _sensor(row: Fields) -> SensorInfo:
    return SensorInfo(
        sensor=row.text("sensor") or "",
        name=row.text("name"),
        memory_gib=row.number("memory_gib", least=0.0),
        limit_w=row.number("limit_w", least=0.0),
        bus_id=row.text("bus_id"),
    )

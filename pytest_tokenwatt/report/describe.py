"""The blocks of a lab report that say what was measured: software, model, SLO, workload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_tokenwatt.geometry.config import model_shape
from pytest_tokenwatt.records import ConfigRecord, ServedIdentity
from pytest_tokenwatt.spec.model import Configuration, LengthMix, Scenario, Spec

MIXES = {"chat-mix-v1": (LengthMix(median=1024, p90=4096), LengthMix(median=256, p90=1024))}


def raw(mapping: Mapping[str, Any], *path: str) -> str | None:
    """The text at a key path of a mapping as written, variables unexpanded; ``None`` when there is none."""
    value: Any = mapping
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value or None if isinstance(value, str) else None


def joined(values: Iterable[str | None]) -> str | None:
    """Different values side by side in their order; ``None`` without any."""
    return " / ".join(dict.fromkeys(value for value in values if value)) or None


def declared_gpus(spec: Spec, configuration: Configuration) -> int:
    """How many accelerators the spec says that a configuration runs on."""
    block = configuration.model
    declared = block.replicas * block.tensor_parallel * block.pipeline_parallel * block.data_parallel
    return len(spec.hardware.gpus) if spec.hardware.gpus else declared


def software(pairs: Sequence[tuple[ConfigRecord, Configuration]]) -> dict[str, Any]:
    """Engine, served version and image; several different ones stand side by side in the order of configurations."""
    return {
        "engine": joined(engine_name(configuration, record.identity) for record, configuration in pairs),
        "engine_version": joined(record.identity.version for record, _ in pairs if record.identity),
        "kernels": joined(raw(configuration.raw, "engine", "kernels") for _, configuration in pairs),
    }


def model(spec: Spec, pairs: Sequence[tuple[ConfigRecord, Configuration]]) -> dict[str, Any]:
    """Name, shape, quantisation and parallelism of the model."""
    return {
        "name": joined(_model_name(record, configuration) for record, configuration in pairs),
        "shape": joined(_shape(spec, record, configuration) for record, configuration in pairs),
        "quantization": _quantization(pairs),
        "parallelism": joined(_parallelism(configuration) for _, configuration in pairs),
    }


def slo(scenario: Scenario) -> dict[str, float]:
    """The bounds in ms by name, such as ``ttft_p99_ms``."""
    return {bound.name: float(bound.bound_ms) for bound in scenario.bounds}


def workload(configuration: Configuration, scenario: Scenario) -> dict[str, Any]:
    """Trace, lengths and arrivals in words."""
    block = scenario.workload
    trace_input, trace_output = MIXES.get(block.trace, (None, None))
    trace = raw(configuration.raw, "workload", "trace") or block.trace
    return {
        "trace": Path(trace).name,
        "input_tokens": _length(block.input_tokens or trace_input),
        "output_tokens": _length(block.output_tokens or trace_output, block.max_output_tokens),
        "arrival": f"Poisson, {_rates(configuration, scenario)}",
    }


def engine_text(record: ConfigRecord, configuration: Configuration) -> str | None:
    """Engine, version and KV cache type of one configuration: ``vLLM 0.31.0 · KV BF16``."""
    identity = record.identity
    engine = " ".join(filter(None, [engine_name(configuration, identity), identity.version if identity else None]))
    cache = kv_dtype(record, configuration)
    return " · ".join(filter(None, [engine, f"KV {cache}" if cache else None])) or None


def engine_name(configuration: Configuration, identity: ServedIdentity | None) -> str | None:
    """The spec's name of the engine, else what its metrics give away."""
    if identity is not None and identity.simulated:
        return "embedded engine (simulated)"
    named = raw(configuration.raw, "engine", "name")
    return named or ("vLLM" if identity is not None and identity.cache_config else None)


def kv_dtype(record: ConfigRecord, configuration: Configuration) -> str | None:
    """Type of the KV cache: as served, unless the engine only says that it chose itself; then as declared."""
    served = record.identity.cache_config.get("cache_dtype") if record.identity else None
    if served and served != "auto":
        return served.upper()
    return _dtype(raw(configuration.raw, "model", "kv_dtype"))


def _dtype(declared: str | None) -> str | None:
    return declared.upper() if declared and "${" not in declared else None


def _model_name(record: ConfigRecord, configuration: Configuration) -> str | None:
    named = raw(configuration.raw, "model", "name")
    served = record.identity.model_ids[0] if record.identity and record.identity.model_ids else None
    path = raw(configuration.raw, "engine", "model") or served
    return named or (path.rstrip("/").rsplit("/", 1)[-1] if path else None)


def _shape(spec: Spec, record: ConfigRecord, configuration: Configuration) -> str | None:
    block = configuration.model
    places = [spec.resolve(place) for place in (block.config, block.path) if place]
    root = record.identity.root if record.identity else None
    return model_shape(block, [*places, *([Path(root)] if root else [])])


def _quantization(pairs: Sequence[tuple[ConfigRecord, Configuration]]) -> str | None:
    named = joined(raw(configuration.raw, "model", "quantization") for _, configuration in pairs)
    if named:
        return named
    weights = {_dtype(raw(configuration.raw, "model", "weight_dtype")) for _, configuration in pairs} - {None}
    caches = {kv_dtype(record, configuration) for record, configuration in pairs} - {None}
    weight_text = (
        "weights vary by configuration" if len(weights) > 1 else "".join(f"{each} weights" for each in weights)
    )
    if len(caches) > 1:
        return "; ".join(filter(None, [weight_text, "KV cache varies by configuration"]))
    return ", ".join(filter(None, [weight_text, *(f"{each} KV cache" for each in caches)])) or None


def _parallelism(configuration: Configuration) -> str:
    block = configuration.model
    degrees = [("PP", block.pipeline_parallel), ("DP", block.data_parallel), ("EP", block.expert_parallel or 1)]
    further = [f"{name}{degree}" for name, degree in degrees if degree > 1]
    replicas = f"{block.replicas} replica" if block.replicas == 1 else f"{block.replicas} replicas"
    return " × ".join([replicas, f"TP{block.tensor_parallel}", *further])


def _length(length: int | LengthMix | None, most: int | None = None) -> str:
    if isinstance(length, LengthMix):
        text = f"median {length.median:,g} · p90 {length.p90:,g}"
    else:
        text = "as in the trace" if length is None else f"{length:,}"
    return text if most is None else f"{text} · at most {most:,}"


def _rates(configuration: Configuration, scenario: Scenario) -> str:
    at_rps = configuration.gates.slo.at_rps
    rates = scenario.sweep.rates or ((at_rps,) if at_rps is not None else ())
    if not rates:
        return "rate swept to SLO boundary"
    return f"fixed {'rate' if len(rates) == 1 else 'rates'} {', '.join(f'{rate:g}' for rate in rates)} req/s"

"""What reports and submissions say of the engine itself: start-up log, precision, audits."""

from __future__ import annotations

from typing import Any

from pytest_tokenwatt.records import Reason
from pytest_tokenwatt.records.audit import AuditRecord
from pytest_tokenwatt.records.profiles import Precision, Startup
from pytest_tokenwatt.spec.traffic import ONLINE_SLO
from pytest_tokenwatt.store.replay.fields import Fields

_SIZES = (
    *("weights_gib", "kv_cache_gib", "kv_cache_tokens", "kv_bytes_per_token", "cuda_graph_gib"),
    *("activation_gib", "non_torch_gib", "load_seconds", "engine_init_seconds"),
)
_WORDS = ("kv_cache_dtype", "speculative_config", "vllm_version", "dtype", "quantization")
_BITS = ("weights", "activations", "kv", "weights_average")
_AUDITED, _MISSING, _INVALID = "audited", "missing", "invalid"
_COUNTS = ("picked", "samples", "empty", "empty_alone", "empty_reference")
_FIGURES = (
    *("engine_mean", "bf16_mean", "gap", "gap_median", "gap_max"),
    *("engine_top1", "bf16_top1", "top1_gap", "length_ratio", "length_ratio_min"),
)


def startup(block: Fields) -> Startup | None:
    """What the start-up log told; ``None`` where none was read."""
    if not block.data:
        return None
    most = block.block("max_concurrency")
    sizes: dict[str, Any] = {name: block.number(name, least=0.0) for name in _SIZES}
    words: dict[str, Any] = {name: block.text(name) for name in _WORDS}
    return Startup(
        **sizes,
        **words,
        max_concurrency_sequences=most.number("sequences", least=0.0),
        max_concurrency_tokens=most.count("tokens_per_request"),
        missing=block.block("missing").words(),
        notes=block.texts("notes"),
    )


def precision(block: Fields, stored_gib: float | None, declared: str | None = None) -> Precision | None:
    """The precision as it was read; ``None`` where nothing of it is stored."""
    bits: dict[str, Any] = {name: block.number(name, least=0.0) for name in _BITS}
    label = block.text("label")
    if label is None and stored_gib is None and all(value is None for value in bits.values()):
        return None
    return Precision(
        **bits,
        label=label,
        stored_gib=stored_gib,
        declared=block.text("declared") or declared,
        sources=block.block("sources").words(),
        missing=block.block("missing").words(),
    )


def audits(block: Fields, first: str) -> dict[str, AuditRecord]:
    """Audits by timed run; ``online_slo`` are those of the goodput windows, ``first`` the scenario they are of."""
    found = {_own_name(name, first): audit for name, audit in block.blocks() if audit.text("status") != _MISSING}
    return {name: _audit(name, audit) for name, audit in found.items()}


def _own_name(name: str, first: str) -> str:
    if name == ONLINE_SLO:
        return first
    return name.replace(ONLINE_SLO, "goodput", 1) if name.startswith(f"{ONLINE_SLO}[") else name


def _audit(name: str, block: Fields) -> AuditRecord:
    counts: dict[str, int | None] = {each: block.count(each) for each in _COUNTS}
    figures: dict[str, Any] = {each: block.number(each) for each in _FIGURES}
    lacking = [each for each, count in counts.items() if count is None]
    status, reasons = block.text("status") or _INVALID, block.reasons()
    if lacking and status == _AUDITED:
        status, reasons = _INVALID, (Reason("not_stored", f"{name}: {', '.join(lacking)} not stored"),)
    numbers: dict[str, Any] = {each: count or 0 for each, count in counts.items()}
    return AuditRecord(
        run=block.text("run") or name,
        status=status,
        **numbers,
        **figures,
        invalid=reasons,
        notes=block.texts("notes"),
    )

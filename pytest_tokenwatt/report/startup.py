"""What was read of an engine before it was measured: its start-up log, and the precision that runs."""

from __future__ import annotations

from typing import Any

from pytest_tokenwatt.records import ConfigRecord
from pytest_tokenwatt.records.profiles import Precision, Startup
from pytest_tokenwatt.report.subject import Subject
from pytest_tokenwatt.report.told import Told, explained, finite, one, why

_SIZES = (
    *("cuda_graph_gib", "engine_init_seconds", "kv_bytes_per_token", "kv_cache_gib", "kv_cache_tokens"),
    *("load_seconds", "weights_gib", "activation_gib", "non_torch_gib"),
)
_WORDS = ("kv_cache_dtype", "speculative_config", "vllm_version", "dtype", "quantization")
_BITS = ("weights", "activations", "kv", "weights_average", "stored_gib")
_SILENT = "the start-up log does not tell"
_UNREAD = "no start-up log was read"


def startup(record: ConfigRecord) -> Told:
    """The start-up log's figures; ``None`` where no log was read."""
    found = None if record.startup is None else _startup(record.startup)
    return one("startup", found, why(record.invalid, _UNREAD))


def _startup(found: Startup) -> dict[str, Any]:
    """``max_concurrency``: so many sequences of so many tokens fit into the pool."""
    most = {
        "sequences": finite(found.max_concurrency_sequences),
        "tokens_per_request": found.max_concurrency_tokens,
    }
    told = {
        "sequences": found.missing.get("max_concurrency_sequences", ""),
        "tokens_per_request": found.missing.get("max_concurrency_tokens", ""),
    }
    fields = {
        **{name: finite(getattr(found, name)) for name in _SIZES},
        **{name: getattr(found, name) for name in _WORDS},
        "max_concurrency": explained(most, told, _SILENT),
        "notes": list(found.notes),
    }
    return explained(fields, found.missing, _SILENT)


def precision(subject: Subject) -> Told:
    """Bits as they were read, beside the configuration's own label (``declared``, ``None`` without one)."""
    read, declared = subject.record.precision, subject.configuration.precision
    found = read or Precision()
    fields = {
        **{name: finite(getattr(found, name)) for name in _BITS},
        "label": found.label,
        "declared": found.declared or declared,
        "sources": dict(found.sources),
    }
    known = {"declared": "the configuration declares none", **found.missing}
    return Told({"precision": explained(fields, known, _why_unread(subject, read))})


def _why_unread(subject: Subject, read: Precision | None) -> str:
    return why(subject.record.invalid) if read is None else "neither the engine nor its checkpoint tells"


def stored_gib(subject: Subject) -> Told:
    """The size of the checkpoint in GiB."""
    read = subject.record.precision
    reason = (read.missing.get("stored_gib") if read else None) or _why_unread(subject, read)
    return one("stored_gib", finite(read.stored_gib) if read else None, reason)

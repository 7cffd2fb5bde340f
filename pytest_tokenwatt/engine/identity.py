"""Is this the engine that was asked for, and what does it say of itself?"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_tokenwatt.engine import startargs
from pytest_tokenwatt.engine.control import ControlClient
from pytest_tokenwatt.engine.http import HttpError
from pytest_tokenwatt.engine.metrics import ServerMetrics
from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.records import ServedIdentity
from pytest_tokenwatt.spec.model import Configuration

SIMULATED_OWNER = "tokenwatt-simulated"
"""``owned_by`` of the models that the embedded engine lists."""

_ASK_TIMEOUT_S = 20.0
_CACHE_INFO = "vllm:cache_config_info"
# Where an engine listens and how it logs says nothing about what it does.
_VOLATILE_ARGS = frozenset(
    (
        *("host", "port", "uds", "root_path", "middleware", "allowed_origins", "allowed_methods", "allowed_headers"),
        *("ssl_keyfile", "ssl_certfile", "ssl_ca_certs", "ssl_cert_reqs", "api_key"),
        *("model", "model_tag", "served_model_name", "fingerprint_mode"),
        *("uvicorn_log_level", "disable_uvicorn_access_log", "log_config_file", "disable_log_stats"),
        *("enable_log_requests", "max_log_len", "log_error_stack"),
    )
)
_VOLATILE_PARTS = ("master_addr", "_port", "rpc_", "instance_id")
# Derived from the memory that was free; when they are asked for, the start-up arguments hold them.
_DERIVED_CACHE = frozenset(
    (
        *("num_gpu_blocks", "num_cpu_blocks", "kv_cache_memory_bytes", "kv_cache_size_tokens"),
        *("kv_cache_max_concurrency", "engine"),
    )
)


def served_model(configuration: Configuration, models: Sequence[Any], endpoint: str) -> Mapping[str, Any]:
    """The served entry that the spec means. Raises ``EngineError`` (``wrong_model``) when there is none, or several.

    ``engine.model`` must be among the served ids; without it ``model.path`` is looked for, then the only one served
    is taken (adapters, which name a parent, do not count).
    """
    entries = {str(entry["id"]): entry for entry in models if isinstance(entry, dict) and entry.get("id")}
    wanted = configuration.engine.model
    for name in (wanted, configuration.model.path):
        if name in entries:
            return dict(entries[name])
    ids = ", ".join(entries) or "no model"
    if wanted:
        near = difflib.get_close_matches(wanted, entries, n=1, cutoff=0.0)
        remedy = (
            f"set engine.model: {near[0]}, or start the engine with that model" if near else "start it with a model"
        )
        raise EngineError("wrong_model", f"{endpoint} serves {ids}, the spec asks for {wanted}", remedy=remedy)
    base = [entry for entry in entries.values() if not entry.get("parent")]
    if len(base) == 1:
        return dict(base[0])
    what = "so which one is meant is unclear" if base else "so there is nothing to measure"
    raise EngineError("wrong_model", f"{endpoint} serves {ids}, {what}", remedy="name the model in engine.model")


async def read_identity(
    client: ControlClient, models: Sequence[Any], served: Mapping[str, Any], log: Sequence[str], metrics: ServerMetrics
) -> ServedIdentity:
    """What the engine says of itself; a server that says nothing but its model ids gives just those.

    ``log`` are the first lines of the engine's log, if it has one.
    """
    length = served.get("max_model_len")
    return ServedIdentity(
        model_ids=tuple(str(entry["id"]) for entry in models if isinstance(entry, dict) and entry.get("id")),
        version=await _version(client),
        root=str(served["root"]) if served.get("root") else None,
        max_model_len=length if isinstance(length, int) and length > 0 else None,
        cache_config=metrics.labels(_CACHE_INFO) or {},
        start_args=await _start_args(client, log),
        simulated=served.get("owned_by") == SIMULATED_OWNER,
    )


def check_version(wanted: str | None, served: str | None, endpoint: str) -> None:
    """Raise ``EngineError`` (``wrong_version``) unless the served version is the wanted one.

    A local part (``+cpu``) that the spec leaves out does not count, as in PEP 440.
    """
    if wanted is None or (served is not None and wanted.removeprefix("v") in (served, served.partition("+")[0])):
        return
    says = f"is version {served}" if served else "does not tell its version"
    raise EngineError(
        "wrong_version",
        f"{endpoint} {says}, the spec asks for {wanted}",
        remedy="start that version or set engine.version",
    )


def fingerprint(identity: ServedIdentity) -> str | None:
    """A hash that two engine starts share when they serve the same thing in the same way; ``None``: not known.

    It covers version, model root, cache configuration and start-up arguments; not where the engine listens, how it
    logs, what the model is called, nor cache sizes that depend on the memory that happened to be free. Without cache
    configuration and arguments there is none: version and model do not tell configurations apart.
    """
    cache = {name: value for name, value in identity.cache_config.items() if name not in _DERIVED_CACHE}
    args = {name: value for name, value in identity.start_args.items() if not _is_volatile(name)}
    if not cache and not identity.start_args:
        return None
    told = json.dumps([identity.version, identity.root, cache, args], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:32]


def _is_volatile(name: str) -> bool:
    last = name.rpartition(".")[2]
    return last in _VOLATILE_ARGS or any(part in last for part in _VOLATILE_PARTS)


async def _version(client: ControlClient) -> str | None:
    told = await _get(client, "/version")
    version = told.get("version") if isinstance(told, dict) else None
    return str(version) if version else None


async def _start_args(client: ControlClient, log: Sequence[str]) -> dict[str, str]:
    told = await _get(client, "/server_info?config_format=json")
    return startargs.from_server_info(told) or startargs.from_log(log)


async def _get(client: ControlClient, path: str) -> Any:
    try:
        answer = await client.http.get(client.access.root + path, _ASK_TIMEOUT_S)
    except HttpError:
        return None
    return answer.json() if answer.status == 200 else None

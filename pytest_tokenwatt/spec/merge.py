"""How a configuration's or a scenario's blocks are laid over those above them.

Mappings merge deeply, ``engine.args`` append, other lists and scalars replace. Naming another way to start the engine
replaces the one above: ``command`` drops ``endpoint up down logs``, and ``endpoint`` or ``up`` drop ``command args``.
Works on data as written and on expanded data alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OVERRIDABLE = ("engine", "model", "workload", "power", "gates")
"""Blocks that a configuration may override."""

_ATTACHED = ("endpoint", "up", "down", "logs")
_LAUNCHED = ("command", "args")


def merged(base: Any, over: Any) -> Any:
    """``over`` laid over ``base``; a missing (``None``) side leaves the other one."""
    if over is None:
        return base
    if not isinstance(base, Mapping) or not isinstance(over, Mapping):
        return over
    result = dict(base)
    for key, value in over.items():
        both = isinstance(result.get(key), Mapping) and isinstance(value, Mapping)
        result[key] = merged(result[key], value) if both else value
    return result


def merged_engine(base: Any, over: Any) -> Any:
    """As ``merged``, with ``args`` appended and the start method replaced as a whole."""
    if not isinstance(base, Mapping) or not isinstance(over, Mapping):
        return merged(base, over)
    kept = _without_other_method(base, over)
    result = merged(kept, over)
    first, second = kept.get("args"), over.get("args")
    if isinstance(first, list) and isinstance(second, list):
        result["args"] = [*first, *second]
    return result


def _without_other_method(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    dropped: tuple[str, ...] = ()
    if over.get("command") is not None:
        dropped = _ATTACHED
    elif over.get("endpoint") is not None or over.get("up") is not None:
        dropped = _LAUNCHED if base.get("command") is not None else ()
    return {key: value for key, value in base.items() if key not in dropped}


def merged_blocks(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """The overridable blocks of a configuration."""
    blocks = {}
    for name in OVERRIDABLE:
        merge = merged_engine if name == "engine" else merged
        block = merge(base.get(name), over.get(name))
        if block is not None:
            blocks[name] = block
    return blocks

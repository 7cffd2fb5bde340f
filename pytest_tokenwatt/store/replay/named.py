"""Configurations of a stored spec: every record has one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

ROLES = ("baseline", "tuned", "other")


def named(spec: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The spec of single runs with an entry of ``configs`` for each of ``entries`` whose key it does not have.

    A spec without ``configs`` lets a missing baseline pass as recorded, and still does once it has them.
    """
    gates = spec.get("gates")
    if spec.get("configs") is None and (gates is None or isinstance(gates, Mapping)):
        written = dict(gates or {})
        if written.get("on_missing_baseline") is None:
            spec = {**spec, "gates": {**written, "on_missing_baseline": "record"}}
    return with_entries(spec, entries)


def with_entries(spec: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The spec with those of ``entries`` in ``configs`` whose key it does not have."""
    written = spec.get("configs")
    if written is not None and not isinstance(written, list):
        return dict(spec)
    known = [entry.get("key") for entry in written or () if isinstance(entry, Mapping)]
    lacking = [dict(entry) for entry in entries if entry["key"] not in known]
    return {**spec, "configs": [*(written or ()), *lacking]} if lacking else dict(spec)


def config_entry(key: str, role: str, label: str, like: str | None = None) -> dict[str, Any]:
    """One entry of ``configs``."""
    return {"key": key, "role": role, "label": label, **({"like": like} if like else {})}


def role_of(key: str, role: str | None, like: str | None = None) -> str:
    """The role of a configuration: where it is not said, the key if it is one."""
    if role is not None:
        return role
    if like is not None:
        return "other"
    return key if key in ROLES else "tuned"

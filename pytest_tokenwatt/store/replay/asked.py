"""Blocks of a spec made of the figures that a file stores, for files that store no limits."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from pytest_tokenwatt.spec.traffic import CAPPED, ONLINE_SLO, Profile, Profiles
from pytest_tokenwatt.store.replay.fields import Fields
from pytest_tokenwatt.store.replay.profiles import budgets

USUAL = ("serve", "interactive", "long_context", "offline")
"""Profiles whose settings a spec need not give."""
_MISSING = "missing"


def drift_block(kl: Fields) -> dict[str, Any]:
    """``drift`` with every corpus; texts are not needed to judge stored figures again."""
    corpora = [
        {"name": name, "file": name, **({"windows": windows} if (windows := corpus.count("windows")) else {})}
        for name, corpus in kl.block("ppl").blocks()
    ]
    counts = {name: count for name in ("sequences", "tokens") if (count := kl.count(name))}
    sequences = {"sequences": counts["sequences"]} if "sequences" in counts else {}
    return {**sequences, **({"control": False} if not kl.block("identity").data else {}), "perplexity": corpora}


def audit_block(audits: Fields) -> dict[str, Any] | None:
    """``audit`` where any timed run was audited."""
    found = [audit for _, audit in audits.blocks() if audit.text("status") != _MISSING]
    picked = [count for audit in found if (count := audit.count("picked"))]
    return ({"picked": max(picked)} if picked else {}) if found else None


def budget_block(reruns: Fields) -> dict[str, Any] | None:
    """``budget`` where any profile was run again."""
    factors = [run.factor for run in budgets(reruns).values()]
    return {"factor": max(factors)} if factors else None


def profiles_block(names: list[str], peaks: Fields) -> dict[str, Any] | None:
    """``profiles`` by name: the usual ones with their usual settings, others with the least a spec may have."""
    found = {name: _profile(name, peaks.block(name)) for name in names if name != ONLINE_SLO}
    return found or None


def _profile(name: str, peak: Fields) -> dict[str, Any]:
    if name in USUAL:
        return {}
    if name == CAPPED:
        return {"kv_gib": peak.number("kv_gib", least=0.0) or 1.0}
    return {"concurrency": 1, "input_tokens": 1, "output_tokens": 1, "requests": 1}


def profile_settings(block: Any) -> dict[str, Any]:
    """The settings of every profile of a spec's ``profiles``, usual ones filled in; none of a broken one."""
    try:
        found = _adapter().validate_python(block or None)
    except ValidationError:
        return {}
    return {name: profile.model_dump() for name, profile in found.items()}


@cache
def _adapter() -> TypeAdapter[dict[str, Profile]]:
    return TypeAdapter(Profiles)


def missing_blocks(spec: dict[str, Any], rows: list[Fields]) -> dict[str, Any]:
    """Blocks that a report's spec does not have although its entries (``rows``) hold figures of them."""

    def first(name: str) -> Fields:
        found = (row.block(name) for row in rows)
        return next((block for block in found if block.data), Fields("", {}))

    kl, peaks = first("kl"), first("peak_memory")
    names = list(dict.fromkeys([*first("efficiency").data, *peaks.data]))
    blocks = {
        "profiles": profiles_block(names, peaks),
        "drift": drift_block(kl) if kl.data else None,
        "audit": audit_block(first("timed_audit")),
        "budget": budget_block(first("budget")),
    }
    return {name: block for name, block in blocks.items() if block is not None and spec.get(name) is None}


def unknown_settings(names: list[str]) -> list[str]:
    """A note on profiles whose settings nothing tells."""
    strange = [name for name in names if name not in (*USUAL, CAPPED, ONLINE_SLO)]
    return [f"settings of {', '.join(strange)}: not stored"] if strange else []

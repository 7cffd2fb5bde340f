"""Which entries of ``Power.PowerControl`` are the power of the whole chassis."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tokenwatt.power.watts import number

CONSUMED = "PowerConsumedWatts"

_WHOLE = re.compile(r"\b(total|system|server|chassis|node|enclosure)\b", re.IGNORECASE)
_PART = re.compile(
    r"sub-?\s?system|\b(cpu|processor|socket|memory|dram|dimm|gpu|accelerator|fan|cooling|storage|drive|disk|pcie?|nic)s?\d*\b",
    re.IGNORECASE,
)
_SUPPLY = re.compile(r"\b(psu?\d*|power\s?suppl(y|ies))\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Pick:
    """Positions of the entries that are added up, and why these."""

    positions: tuple[int, ...]
    why: str


def pick_entries(entries: Sequence[Mapping[str, Any]]) -> Pick | None:
    """The entries that are the whole; ``None`` when none has power or it cannot be told.

    In this order: the one that is named as the whole; power supplies alone, added up; the only one that is not named
    as a part; member 0 if it draws more than all others together. Nothing else is added up: totals and parts stand
    side by side, and a sum would count the parts twice.
    """
    told = [position for position, entry in enumerate(entries) if CONSUMED in entry]
    names = {position: str(entries[position].get("Name") or "") for position in told}
    supplies = [position for position in told if _SUPPLY.search(names[position])]
    parts = [position for position in told if _PART.search(names[position])]
    neutral = [position for position in told if position not in supplies and position not in parts]
    whole = [position for position in neutral if _WHOLE.search(names[position])]
    if len(whole) == 1:
        return Pick(tuple(whole), f'"{names[whole[0]]}"')
    if supplies and len(supplies) == len(told):
        return Pick(tuple(supplies), f"sum of {len(supplies)} power supplies")
    if len(neutral) == 1:
        return Pick(tuple(neutral), _only(names[neutral[0]], len(told)))
    return _outweighing(entries, told)


def names_of(entries: Sequence[Mapping[str, Any]]) -> str:
    """The entries with power as a message lists them."""
    return ", ".join(
        f'{entry.get("MemberId", position)} "{entry.get("Name", "")}"'
        for position, entry in enumerate(entries)
        if CONSUMED in entry
    )


def _only(name: str, count: int) -> str:
    shown = f'"{name}"' if name else "the entry without a name"
    return shown if count == 1 else f"{shown}, the only one of {count} that is not a part"


def _outweighing(entries: Sequence[Mapping[str, Any]], told: Sequence[int]) -> Pick | None:
    watts = {position: number(entries[position][CONSUMED]) for position in told}
    first = next((position for position in told if str(entries[position].get("MemberId", position)) == "0"), None)
    others = [watts[position] or 0.0 for position in told if position != first]
    own = watts.get(first) if first is not None else None
    if first is None or own is None or not all(others) or own <= sum(others):
        return None
    return Pick((first,), f"member 0, which draws more than the other {len(others)} together")

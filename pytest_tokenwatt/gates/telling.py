"""Reasons that several profiles, sides or gates share, each said once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from pytest_tokenwatt.records import Reason
from pytest_tokenwatt.records.profiles import PeakMemory

_ABOUT = re.compile(r"(?:[\w.@-]+(?:, [\w.@-]+)*: )?(?:(?:candidate|baseline)(?: and baseline)?: )?")
"""What a reason of several profiles or sides begins with."""


def said_once(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """The distinct ones among "serve: …", "interactive: …": "serve, interactive: …"."""
    names: dict[tuple[str, str], list[str]] = {}
    for reason in reasons:
        name, colon, rest = reason.text.partition(": ")
        named = colon and " " not in name
        told = names.setdefault((reason.code, rest if named else reason.text), [])
        if named and name not in told:
            told.append(name)
    return tuple(Reason(code, f"{', '.join(told)}: {text}" if told else text) for (code, text), told in names.items())


def gates_once(first: Mapping[str, Reason]) -> Iterator[Reason]:
    """The first reason of each gate with its name: "memory: serve: …"; of one cause of several "memory, budget: …"."""
    shared: dict[tuple[str, str], list[str]] = {}
    for gate, reason in first.items():
        shared.setdefault((reason.code, _ABOUT.sub("", reason.text, count=1)), []).append(gate)
    for (code, cause), gates in shared.items():
        text = first[gates[0]].text if len(gates) == 1 else cause
        yield Reason(code, f"{', '.join(gates)}: {text}")


def why_no_peak(ours: PeakMemory, theirs: PeakMemory) -> str:
    """Why a peak is not known, once where it is the same on both sides; empty when both are known."""
    sides = {"candidate": ours, "baseline": theirs}
    told = {
        side: memory.missing.get("peak_gib", "the peak is not known")
        for side, memory in sides.items()
        if memory.peak_gib is None
    }
    if len(told) == 2 and len(set(told.values())) == 1:
        return f"candidate and baseline: {told['baseline']}"
    return "; ".join(f"{side}: {why}" for side, why in told.items())

"""Reasons that several profiles or gates share, each said once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from pytest_tokenwatt.records import Reason

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

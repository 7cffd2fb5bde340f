"""Reasons that several profiles or gates share, each said once."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_tokenwatt.records import Reason


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

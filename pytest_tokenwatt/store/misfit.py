"""Values of a record that cannot be meant, and the way to every part of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pytest_tokenwatt.store.replay.loading import joined

Said: TypeAlias = tuple[str, str]
"""A key, and what contradicts its value."""
ASIDE = frozenset({"spec", "launch", "stored"})
"""Blocks as the user wrote them, and what another tool states: differences, checked where they are read."""
_RELATIVE = 1e-6
_ABSOLUTE = 1e-9
"""How far sums may be off that were added up in another order."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """A value that cannot be meant: its key path, and what was expected and found there."""

    place: str
    what: str


def parts(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every dataclass within ``value``, itself included, by its key path as it is stored."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield place, value
        for field in dataclasses.fields(value):
            if field.name not in ASIDE:
                yield from parts(getattr(value, field.name), joined(place, field.name))
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from parts(inner, joined(place, key))
    elif isinstance(value, tuple):
        for number, inner in enumerate(value):
            yield from parts(inner, f"{place}[{number}]")


def unless(key: str, found: float | None, wanted: float | None, of: str) -> Iterator[Said]:
    """Whether a figure is what its parts make of it; one that is not told contradicts nothing."""
    if found is None:
        return
    if wanted is None:
        yield key, f"{found:g}, but its parts are not known"
    elif not math.isclose(found, wanted, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE):
        yield key, f"{found:g}, but {of} is {wanted:g}"

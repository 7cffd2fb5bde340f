"""Typed reading of a ``config.json`` whose keys may be absent, null, or of another kind than expected."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SHOWN = 40
_LARGEST = 2**40


class GeometryUnknown(Exception):
    """The geometry cannot be told; the message says which key is missing or not understood. Never leaves geometry."""


@dataclass(frozen=True, slots=True)
class Keys:
    """A model's settings. Several names are spellings of one setting: the first that is not null counts."""

    values: Mapping[str, Any]

    def get(self, *names: str) -> Any:
        """The first value that is not null, or ``None``."""
        return next((self.values[name] for name in names if self.values.get(name) is not None), None)

    def whole(self, *names: str) -> int | None:
        """A whole number of at least 0; ``None`` when absent."""
        value = self.get(*names)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
            raise self.wrong(names, "a whole number")
        return value

    def count(self, *names: str) -> int:
        """A whole number of at least 1, which must be there."""
        value = self.whole(*names)
        if value is None:
            raise GeometryUnknown(f"{names[0]} is missing")
        if value < 1:
            raise self.wrong(names, "at least 1")
        return value

    def size(self, name: str) -> float | None:
        """A positive number, such as bytes; ``None`` when absent."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LARGEST**2:
            raise self.wrong((name,), "a positive number")
        return float(value) if math.isfinite(value) else None

    def flag(self, *names: str, default: bool) -> bool:
        """True or false."""
        value = self.get(*names)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(names, "true or false")
        return value

    def text(self, *names: str) -> str:
        """A string in lower case; empty when absent."""
        value = self.get(*names)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.wrong(names, "a string")
        return value.lower()

    def sequence(self, *names: str) -> list[Any] | None:
        """A list; ``None`` when absent."""
        value = self.get(*names)
        if value is not None and not isinstance(value, list):
            raise self.wrong(names, "a list")
        return value

    def nested(self, *names: str) -> Keys | None:
        """A mapping; ``None`` when absent or empty."""
        value = self.get(*names)
        if value is not None and not isinstance(value, Mapping):
            raise self.wrong(names, "a mapping")
        return Keys(value) if value else None

    def wrong(self, names: tuple[str, ...], wanted: str) -> GeometryUnknown:
        """What to raise when the value is not what was ``wanted``."""
        name = next((name for name in names if self.values.get(name) is not None), names[0])
        shown = repr(self.values.get(name))
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + " …"
        return GeometryUnknown(f"{name} is {shown}, not {wanted}")

"""Fields of a report together with the reasons of those that are null."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_tokenwatt.records import ConfigRecord, Reason

NOT_MEASURED = "not measured in this run"
NOT_STORED = "not stored"
OWN = "the baseline is what others are compared with"
NO_BASELINE = "there is no baseline to compare with"


@dataclass(frozen=True, slots=True)
class Told:
    """``fields`` of a report; ``missing`` says why one is null, by its path below them (``speeds.serve``)."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    def renamed(self, old: str, new: str) -> Told:
        """The same with the field ``old`` called ``new``."""
        fields = {new if key == old else key: value for key, value in self.fields.items()}
        return Told(fields, {_renamed(path, old, new): why for path, why in self.missing.items()})


def _renamed(path: str, old: str, new: str) -> str:
    head, dot, rest = path.partition(".")
    return f"{new}{dot}{rest}" if head == old else path


def together(parts: Iterable[Told]) -> Told:
    """All fields and reasons of several parts, in their order."""
    found = list(parts)
    fields = {name: value for part in found for name, value in part.fields.items()}
    return Told(fields, {path: why for part in found for path, why in part.missing.items()})


def one(name: str, value: Any, reason: str) -> Told:
    """A single field, with the reason in case it is null."""
    return Told({name: value}, {name: reason} if value is None else {})


def by_name(name: str, values: Mapping[str, Any], reasons: Mapping[str, str]) -> Told:
    """A field that holds one value for each profile; ``reasons`` are of those without."""
    missing = {f"{name}.{key}": reasons[key] for key, value in values.items() if value is None}
    return Told({name: dict(values)}, missing)


def explained(fields: Mapping[str, Any], known: Mapping[str, str], otherwise: str) -> dict[str, Any]:
    """``fields`` with a reason for each null under ``missing``: the known one, or ``otherwise``."""
    nulls = [name for name, value in fields.items() if value is None]
    return {**fields, "missing": {name: known.get(name) or otherwise for name in nulls}}


def finite(value: float | None) -> float | None:
    """The value unless it is no number that JSON can hold."""
    return value if value is not None and math.isfinite(value) else None


def why(faults: Iterable[Reason], otherwise: str = NOT_MEASURED) -> str:
    """Reasons in one line."""
    return "; ".join(map(str, faults)) or otherwise


def why_not_compared(record: ConfigRecord) -> str:
    """Why a configuration has no figure against the baseline at all."""
    if record.role == "baseline":
        return OWN
    return why(record.invalid, NO_BASELINE)

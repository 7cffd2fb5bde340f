"""Reading a report that may lack anything: what is absent or of another type is ``None`` or empty."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_tokenwatt.report.html.material import GateWords

NOTHING: Mapping[str, Any] = {}


def at(value: Any, *keys: str) -> Any:
    """What lies under the keys, one within the other; ``None`` where there is nothing."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def mapping(value: Any, *keys: str) -> Mapping[str, Any]:
    """The mapping under the keys, else an empty one."""
    found = at(value, *keys)
    return found if isinstance(found, Mapping) else NOTHING


def items(value: Any, *keys: str) -> Sequence[Any]:
    """The list under the keys, else an empty one."""
    found = at(value, *keys)
    return found if isinstance(found, list | tuple) else ()


def mappings(value: Any, *keys: str) -> list[Mapping[str, Any]]:
    """The mappings in the list under the keys."""
    return [each for each in items(value, *keys) if isinstance(each, Mapping)]


def number(value: Any, *keys: str) -> float | None:
    """The finite number under the keys."""
    found = at(value, *keys)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        return None
    return float(found)


def text(value: Any, *keys: str) -> str:
    """The string under the keys, else an empty one."""
    found = at(value, *keys)
    return found if isinstance(found, str) else ""


def texts(value: Any, *keys: str) -> list[str]:
    """The strings in the list under the keys."""
    return [each for each in items(value, *keys) if isinstance(each, str)]


def pair(value: Any, *keys: str) -> tuple[float | None, float | None]:
    """The interval under the keys: ``[low, high]`` or ``{low, high}``; ``None`` for an open or unknown end."""
    found = at(value, *keys)
    if isinstance(found, Mapping):
        return number(found, "low"), number(found, "high")
    if isinstance(found, list | tuple) and len(found) == 2:
        return number({"end": found[0]}, "end"), number({"end": found[1]}, "end")
    return None, None


def reasons(value: Any, *keys: str) -> list[str]:
    """Reasons in the list under the keys as ``sentence (code)``."""
    found = []
    for each in items(value, *keys):
        if isinstance(each, str):
            found.append(each)
        elif isinstance(each, Mapping):
            sentence, code = text(each, "text"), text(each, "code")
            found.append(f"{sentence} ({code})" if sentence and code else sentence or code)
    return [each for each in found if each]


def worded(gate: Mapping[str, Any]) -> GateWords | None:
    """Value and rule of a gate in words; ``None`` in reports without them."""
    words = GateWords(text(gate, "text"), text(gate, "rule"))
    return words if words.value or words.rule else None

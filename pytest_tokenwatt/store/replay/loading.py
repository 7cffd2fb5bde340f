"""JSON files of unknown origin: one mapping of plain finite values, or one readable message."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.spec.builder import one_line

MAX_BYTES = 256 << 20
MAX_DEPTH = 60
REMEDY = "name a run record, a run directory, a lab report or a submission record"


def load_mapping(path: Path) -> dict[str, Any]:
    """The mapping that a JSON file holds.

    Raises ``UsageError`` when the file is absent, no JSON, or no mapping, and when it holds what JSON cannot or nobody
    can print: NaN, infinity, numbers beyond 64 bits, half a character, more than ``MAX_DEPTH`` levels.
    """
    try:
        content = json.loads(_text(path), parse_constant=_refuse, object_pairs_hook=_once)
    except RecursionError:
        raise _error(path, f"is nested more than {MAX_DEPTH} levels deep") from None
    except ValueError as error:
        raise _error(path, f"is not a JSON file: {one_line(str(error))}") from None
    if not isinstance(content, dict):
        raise _error(path, f"holds {_kind(content)} where a mapping is wanted")
    _check(path, content)
    return content


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            raise _error(path, "is not a regular file" if path.exists() else "there is no such file")
        if path.stat().st_size > MAX_BYTES:
            raise _error(path, f"has more than {MAX_BYTES >> 20} MiB, which no record needs")
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise _error(path, f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise _error(path, "is not UTF-8 text") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"the key {next(name for name in names if names.count(name) > 1)!r} stands twice in one mapping"
        )
    return found


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON number")


def _kind(content: Any) -> str:
    return "a list" if isinstance(content, list) else "a single value"


def _check(path: Path, content: dict[str, Any]) -> None:
    """Walks without recursion, since the depth is not known yet."""
    waiting: list[tuple[str, int, Any]] = [("", 0, content)]
    while waiting:
        place, depth, value = waiting.pop()
        fault = _fault(depth, value)
        if fault is not None:
            raise _error(path, f"{place}: {fault}" if place else fault)
        if isinstance(value, dict):
            if any(_broken(key) for key in value):
                raise _error(path, f"{place}: a key holds half a character".removeprefix(": "))
            waiting += [(joined(place, key), depth + 1, inner) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{place}[{number}]", depth + 1, inner) for number, inner in enumerate(value)]


def _fault(depth: int, value: Any) -> str | None:
    if depth > MAX_DEPTH:
        return f"is nested more than {MAX_DEPTH} levels deep"
    if isinstance(value, str) and _broken(value):
        return "holds half a character (an unpaired surrogate)"
    if isinstance(value, float) and not math.isfinite(value):
        return "is no finite number"
    if isinstance(value, int | float) and not _fits(value):
        return "is a number beyond all measure"
    return None


def _fits(value: float) -> bool:
    """Nanoseconds since 1970 are the largest numbers of a record; squares of what is within must stay finite."""
    return -(1 << 63) <= value < 1 << 63


def _broken(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def joined(place: str, key: str) -> str:
    """The key path of ``key`` below ``place``, on one line."""
    part = one_line(key)
    return f"{place}.{part}" if place else part


def _error(path: Path, what: str) -> UsageError:
    return UsageError(what, where=str(path), remedy=REMEDY)

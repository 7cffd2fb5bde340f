"""Dataclasses as plain JSON values and back, led by their type hints."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

T = TypeVar("T")


class CodecError(ValueError):
    """A stored value does not fit its type; ``place`` is its key path, such as ``scenarios.default.rate_rps``."""

    def __init__(self, place: str, what: str) -> None:
        self.place = place
        self.what = what
        super().__init__(f"{place}: {what}" if place else what)


def encode(value: Any) -> Any:
    """``value`` as dicts, lists, strings, numbers, booleans and ``None``; numpy scalars become Python's."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): encode(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [encode(inner) for inner in value]
    return value


def decode(kind: type[T], value: Any, *, unknown: Callable[[str], object]) -> T:
    """The dataclass ``kind`` that ``encode`` made ``value`` from.

    ``unknown`` is called with the key path of every key that ``kind`` does not have; those are left out. Raises
    ``CodecError`` with the key path of the first value that is missing or of another type.
    """
    result: T = _Decoder(unknown).decode(kind, value, "")
    return result


class _Decoder:
    def __init__(self, unknown: Callable[[str], object]) -> None:
        self._unknown = unknown

    def decode(self, hint: Any, value: Any, place: str) -> Any:
        if hint is Any:
            return value
        origin = get_origin(hint)
        if origin in (Union, types.UnionType):
            return self._optional(hint, value, place)
        if origin is tuple:
            inner = get_args(hint)[0]
            items = enumerate(_expect(list, "a list", value, place))
            return tuple(self.decode(inner, item, f"{place}[{index}]") for index, item in items)
        if origin is Mapping:
            inner = get_args(hint)[1]
            stored = _expect(dict, "a mapping", value, place)
            return {key: self.decode(inner, item, _join(place, key)) for key, item in stored.items()}
        if dataclasses.is_dataclass(hint):
            return self._dataclass(hint, value, place)
        return _scalar(hint, value, place)

    def _optional(self, hint: Any, value: Any, place: str) -> Any:
        inner = [arg for arg in get_args(hint) if arg is not types.NoneType]
        return None if value is None else self.decode(inner[0], value, place)

    def _dataclass(self, kind: Any, value: Any, place: str) -> Any:
        stored = _expect(dict, "a mapping", value, place)
        fields = {field.name: field for field in dataclasses.fields(kind)}
        for key in stored.keys() - fields.keys():
            self._unknown(_join(place, key))
        hints = _hints(kind)
        known = {name: self.decode(hints[name], stored[name], _join(place, name)) for name in fields if name in stored}
        for name, field in fields.items():
            if name not in known and field.default is field.default_factory is dataclasses.MISSING:
                raise CodecError(_join(place, name), "the key is missing")
        return kind(**known)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _scalar(hint: Any, value: Any, place: str) -> Any:
    if issubclass(hint, Enum):
        try:
            return hint(value)
        except ValueError as error:
            raise CodecError(place, f"{value!r} is none of {', '.join(map(str, hint))}") from error
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    raise CodecError(place, f"expected {hint.__name__}, found {value!r:.60}")


def _expect(kind: type[T], name: str, value: Any, place: str) -> T:
    if not isinstance(value, kind):
        raise CodecError(place, f"expected {name}, found {value!r:.60}")
    return value


def _join(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key

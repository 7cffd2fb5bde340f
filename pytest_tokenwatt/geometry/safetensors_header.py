"""Names, types and sizes of the tensors in a safetensors file, from its header alone."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

_LARGEST_HEADER = 100_000_000
"""The limit that the format itself sets."""
_LENGTH = struct.Struct("<Q")

BITS: Mapping[str, int] = MappingProxyType(
    {
        "F64": 64,
        "F32": 32,
        "F16": 16,
        "BF16": 16,
        "F8_E4M3": 8,
        "F8_E5M2": 8,
        "F8_E8M0": 8,
        "F8_E4M3FNUZ": 8,
        "F8_E5M2FNUZ": 8,
        "F6_E2M3": 6,
        "F6_E3M2": 6,
        "F4": 4,
        "I64": 64,
        "I32": 32,
        "I16": 16,
        "I8": 8,
        "U64": 64,
        "U32": 32,
        "U16": 16,
        "U8": 8,
        "BOOL": 8,
    }
)
"""Bits of one element by the format's name of its type."""


class HeaderUnreadable(Exception):
    """The file is not what it should be; the message, of one line, names it and says how. Never leaves geometry."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One stored tensor: its type as the file names it, its elements by axis, and its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    stored_bytes: int

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return prod(self.shape)


def read_safetensors(file: Path) -> list[TensorInfo]:
    """All tensors of one file. Raises ``HeaderUnreadable``, also when tensors lie beyond the file's end."""
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            length = _header_length(file, stream.read(_LENGTH.size), size)
            header = json.loads(stream.read(length))
    except (OSError, ValueError, RecursionError) as error:
        raise HeaderUnreadable(f"{file} cannot be read: {error}") from None
    if not isinstance(header, dict):
        raise HeaderUnreadable(f"{file} has a header that is no mapping")
    room = size - _LENGTH.size - length
    return [_tensor(file, name, told, room) for name, told in header.items() if name != "__metadata__"]


def _header_length(file: Path, start: bytes, size: int) -> int:
    if len(start) < _LENGTH.size:
        raise HeaderUnreadable(f"{file} is cut: it has {size} bytes, too few for a header")
    length = int(_LENGTH.unpack(start)[0])
    if length > min(_LARGEST_HEADER, size - _LENGTH.size):
        raise HeaderUnreadable(f"{file} is cut or no safetensors file: its header would have {length} bytes")
    return length


def _tensor(file: Path, name: str, told: Any, room: int) -> TensorInfo:
    try:
        dtype, shape, (begin, end) = told["dtype"], tuple(told["shape"]), told["data_offsets"]
        whole = all(type(number) is int and number >= 0 for number in (*shape, begin, end))
    except (KeyError, TypeError, ValueError):
        raise HeaderUnreadable(f"{file} has a header without type, shape or place of {name}") from None
    if not whole or not isinstance(dtype, str) or begin > end:
        raise HeaderUnreadable(f"{file} has a header that makes no sense at {name}")
    if end > room:
        raise HeaderUnreadable(f"{file} is cut: {name} lies {end - room} bytes beyond its end")
    if dtype in BITS and prod(shape) * BITS[dtype] > 8 * (end - begin):
        raise HeaderUnreadable(f"{file} has a header that gives {name} fewer bytes than its shape needs")
    return TensorInfo(name, dtype, shape, end - begin)

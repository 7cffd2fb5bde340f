"""Names, types and sizes of the tensors in a GGUF file, from what stands before its data."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from pytest_tokenwatt.geometry.safetensors_header import HeaderUnreadable, TensorInfo

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_LARGEST_NAME = 1 << 16
_MOST_AXES = 8
_MOST_DEPTH = 4
_STRING, _ARRAY = 8, 9
_VALUE_BYTES = MappingProxyType({0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8})

GGML_TYPES: Mapping[int, tuple[str, int, int, int]] = MappingProxyType(
    {
        0: ("F32", 32, 1, 4),
        1: ("F16", 16, 1, 2),
        2: ("Q4_0", 4, 32, 18),
        3: ("Q4_1", 4, 32, 20),
        6: ("Q5_0", 5, 32, 22),
        7: ("Q5_1", 5, 32, 24),
        8: ("Q8_0", 8, 32, 34),
        10: ("Q2_K", 2, 256, 84),
        11: ("Q3_K", 3, 256, 110),
        12: ("Q4_K", 4, 256, 144),
        13: ("Q5_K", 5, 256, 176),
        14: ("Q6_K", 6, 256, 210),
        15: ("Q8_K", 8, 256, 292),
        20: ("IQ4_NL", 4, 32, 18),
        23: ("IQ4_XS", 4, 256, 136),
        30: ("BF16", 16, 1, 2),
        39: ("MXFP4", 4, 32, 17),
    }
)
"""By ggml's number of a type: its name, bits of a weight without scales, weights and bytes of a block."""


class _Reader:
    """Reads forward through a file, never beyond its end."""

    def __init__(self, file: Path, stream: BinaryIO, size: int) -> None:
        self._file, self._stream, self._size = file, stream, size

    def number(self, form: str) -> int:
        packing = struct.Struct("<" + form)
        return int(packing.unpack(self.take(packing.size))[0])

    def take(self, count: int) -> bytes:
        taken = self._stream.read(count) if count <= self._size else b""
        if len(taken) != count:
            raise HeaderUnreadable(f"{self._file} is cut within its header")
        return taken

    def text(self) -> str:
        length = self.number("Q")
        if length > _LARGEST_NAME:
            raise HeaderUnreadable(f"{self._file} has a name of {length} bytes in its header")
        return self.take(length).decode("utf-8", "replace")

    def skip(self, count: int) -> None:
        if count > self._size - self._stream.tell():
            raise HeaderUnreadable(f"{self._file} is cut within its header")
        self._stream.seek(count, 1)

    def skip_value(self, kind: int, depth: int = 0) -> None:
        """Pass over one setting; settings are not needed, and the tokenizer's are long."""
        if kind in _VALUE_BYTES:
            self.skip(_VALUE_BYTES[kind])
        elif kind == _STRING:
            self.skip(self.number("Q"))
        elif kind == _ARRAY and depth < _MOST_DEPTH:
            self._skip_array(depth)
        else:
            raise HeaderUnreadable(f"{self._file} has a setting of type {kind} in its header, which is not known")

    def _skip_array(self, depth: int) -> None:
        kind, count = self.number("I"), self.number("Q")
        if kind in _VALUE_BYTES:
            self.skip(_VALUE_BYTES[kind] * count)
            return
        if count > self._size:  # each further element takes a byte at least
            raise HeaderUnreadable(f"{self._file} is cut within its header")
        for _ in range(count):
            self.skip_value(kind, depth + 1)


def read_gguf(file: Path) -> list[TensorInfo]:
    """All tensors of one file. Raises ``HeaderUnreadable``, also when tensors would lie beyond the file's end."""
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            tensors = _tensors(file, _Reader(file, stream, size))
            data = size - stream.tell()
    except (OSError, ValueError, OverflowError) as error:
        raise HeaderUnreadable(f"{file} cannot be read: {error}") from None
    if sum(tensor.stored_bytes for tensor in tensors) > data:
        raise HeaderUnreadable(f"{file} is cut: its tensors need more than the {data} bytes behind its header")
    return tensors


def _tensors(file: Path, reader: _Reader) -> list[TensorInfo]:
    if reader.take(len(_MAGIC)) != _MAGIC or reader.number("I") not in _VERSIONS:
        raise HeaderUnreadable(f"{file} is no GGUF file of version 2 or 3")
    tensors, settings = reader.number("Q"), reader.number("Q")
    for _ in range(settings):
        reader.text()
        reader.skip_value(reader.number("I"))
    return [_tensor(file, reader) for _ in range(tensors)]


def _tensor(file: Path, reader: _Reader) -> TensorInfo:
    name, axes = reader.text(), reader.number("I")
    if axes > _MOST_AXES:
        raise HeaderUnreadable(f"{file} has a tensor of {axes} axes in its header")
    shape = tuple(reader.number("Q") for _ in range(axes))
    kind = reader.number("I")
    reader.number("Q")  # where it lies
    if kind not in GGML_TYPES:
        raise HeaderUnreadable(f"{file}: {name} has the ggml type {kind}, which is not known")
    dtype, _, weights, block_bytes = GGML_TYPES[kind]
    return TensorInfo(name, dtype, shape, -(-prod(shape) // weights) * block_bytes)

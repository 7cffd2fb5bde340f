"""Columns of numpy arrays for values that may be absent: instants, counts and repeated strings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
NANOSECONDS = 1e9
ABSENT_INSTANT = np.iinfo(np.int64).min
ABSENT_COUNT = -1
"""Counts of tokens, bytes and status codes are never negative."""


def instants(values: Iterable[float | None], origin_s: float) -> Array:
    """Seconds of the monotonic clock as int64 nanoseconds from ``origin_s``: the clock's own resolution."""
    stamps = [ABSENT_INSTANT if value is None else round((value - origin_s) * NANOSECONDS) for value in values]
    return np.array(stamps, dtype=np.int64)


def read_instants(column: Array, origin_s: float) -> list[float | None]:
    """The seconds that ``instants`` stored, within a nanosecond."""
    seconds = column / NANOSECONDS + origin_s
    return [None if stamp == ABSENT_INSTANT else float(at) for stamp, at in zip(column, seconds, strict=True)]


def counts(values: Iterable[int | None]) -> Array:
    """Whole numbers of at least 0 as int64."""
    return np.array([ABSENT_COUNT if value is None else value for value in values], dtype=np.int64)


def read_counts(column: Array) -> list[int | None]:
    """The numbers that ``counts`` stored."""
    return [None if value == ABSENT_COUNT else int(value) for value in column]


class Strings:
    """Strings that repeat a lot, each stored once; a column holds their numbers."""

    def __init__(self, table: Sequence[str] = ()) -> None:
        self._numbers = {text: number for number, text in enumerate(table)}

    def column(self, values: Iterable[str | None]) -> Array:
        """Numbers of ``values``, which join the table."""
        numbers = [None if text is None else self._numbers.setdefault(text, len(self._numbers)) for text in values]
        return counts(numbers)

    def read(self, column: Array) -> Iterator[str | None]:
        """The strings that ``column`` stored."""
        table = list(self._numbers)
        return (None if number is None else table[number] for number in read_counts(column))

    def blob(self) -> Array:
        """The table as JSON bytes (an array of strings would need pickle or fixed widths)."""
        return blob(list(self._numbers))


def to_planes(values: Array) -> Array:
    """int64 values of shape (n,) as uint8 of shape (8, n): first all lowest bytes, last all highest ones."""
    return np.ascontiguousarray(values.astype("<i8").view(np.uint8).reshape(-1, 8).T)


def from_planes(planes: Array) -> Array:
    """The values that ``to_planes`` stored."""
    return np.ascontiguousarray(planes.T).view("<i8").reshape(-1)


def blob(value: Any) -> Array:
    """``value`` as the bytes of its JSON."""
    return np.frombuffer(json.dumps(value, allow_nan=False).encode("ascii"), dtype=np.uint8)


def read_blob(column: Array) -> Any:
    """The value that ``blob`` stored. Raises ``ValueError`` when it is no JSON."""
    return json.loads(column.tobytes())

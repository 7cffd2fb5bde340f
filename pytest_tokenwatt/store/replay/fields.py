"""Values of a stored file by key, each checked by type; a message names the file and the key path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records import Reason
from pytest_tokenwatt.store.replay.loading import joined

_REMEDY = "correct the file, or write it again"


@dataclass(frozen=True, slots=True)
class Fields:
    """One mapping of a file that ``load_mapping`` read; ``where`` is the file, ``place`` the mapping's key path.

    Readers give ``None`` (or nothing) for a key that is absent or null, and raise ``UsageError`` for a value of
    another type or outside its range.
    """

    where: str
    data: Mapping[str, Any]
    place: str = ""

    def has(self, key: str) -> bool:
        """Whether the key stands there, with a value or null."""
        return key in self.data

    def null(self, key: str) -> bool:
        """Whether the key stands there as null: a figure that is known to be unknown."""
        return key in self.data and self.data[key] is None

    def number(self, key: str, *, least: float | None = None, most: float | None = None) -> float | None:
        """A finite number; booleans and texts are none."""
        value = self.data.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(key, f"expected a number, found {shown(value)}")
        if (least is not None and value < least) or (most is not None and value > most):
            bounds = [f"{sign} {bound:g}" for sign, bound in ((">=", least), ("<=", most)) if bound is not None]
            raise self.wrong(key, f"expected a number {' and '.join(bounds)}, found {value:g}")
        return float(value)

    def count(self, key: str) -> int | None:
        """A whole number, at least 0."""
        value = self.number(key, least=0.0)
        if value is not None and not value.is_integer():
            raise self.wrong(key, f"expected a whole number, found {value:g}")
        return None if value is None else int(value)

    def flag(self, key: str) -> bool | None:
        """True or false."""
        value = self.data.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, f"expected true or false, found {shown(value)}")
        return value

    def text(self, key: str) -> str | None:
        """A text; an empty one is none."""
        value = self.data.get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, f"expected a text, found {shown(value)}")
        return value or None

    def wanted(self, key: str) -> str:
        """A text that must be there."""
        value = self.text(key)
        if value is None:
            raise self.wrong(key, "the key is missing" if key not in self.data else "expected a text")
        return value

    def block(self, key: str) -> Fields:
        """A mapping; an empty one where there is none."""
        value = self.data.get(key)
        if value is not None and not isinstance(value, dict):
            raise self.wrong(key, f"expected a mapping, found {shown(value)}")
        return Fields(self.where, value or {}, joined(self.place, key))

    def blocks(self) -> Iterator[tuple[str, Fields]]:
        """All values as mappings by key, nulls left out."""
        yield from ((key, self.block(key)) for key, value in self.data.items() if value is not None)

    def rows(self, key: str) -> list[Fields]:
        """A list of mappings; one mapping counts as a list of one."""
        value = self.data.get(key)
        if isinstance(value, dict):
            return [self.block(key)]
        found = []
        for number, item in enumerate(self._list(key)):
            place = f"{joined(self.place, key)}[{number}]"
            if not isinstance(item, dict):
                raise UsageError(f"{place}: expected a mapping, found {shown(item)}", where=self.where, remedy=_REMEDY)
            found.append(Fields(self.where, item, place))
        return found

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts."""
        items = self._list(key)
        for number, item in enumerate(items):
            if not isinstance(item, str):
                raise self.wrong(f"{key}[{number}]", f"expected a text, found {shown(item)}")
        return tuple(items)

    def series(self, key: str) -> tuple[float, ...]:
        """A list of numbers."""
        items = self._list(key)
        found = Fields(self.where, {f"{key}[{number}]": item for number, item in enumerate(items)}, self.place)
        numbers = tuple(found.numbers().values())
        if len(numbers) < len(items):
            raise self.wrong(key, "expected numbers alone")
        return numbers

    def pair(self, key: str) -> tuple[float, float] | None:
        """A list of two numbers."""
        items = self._list(key)
        if not items:
            return None
        ends = Fields(self.where, {f"{key}[{number}]": item for number, item in enumerate(items)}, self.place)
        low, high = ends.number(f"{key}[0]"), ends.number(f"{key}[1]")
        if len(items) != 2 or low is None or high is None:
            raise self.wrong(key, "expected two numbers")
        return low, high

    def numbers(self, *, least: float | None = None) -> dict[str, float]:
        """All values as numbers by key, nulls left out."""
        found = {key: self.number(key, least=least) for key in self.data}
        return {key: value for key, value in found.items() if value is not None}

    def words(self) -> dict[str, str]:
        """All values as texts by key, nulls and empty ones left out."""
        found = {key: self.text(key) for key in self.data}
        return {key: value for key, value in found.items() if value is not None}

    def reasons(self) -> tuple[Reason, ...]:
        """What speaks against this block by its ``validity``."""
        validity = self.block("validity")
        found = [Reason(row.wanted("code"), row.text("text") or "") for row in validity.rows("reasons")]
        if not found and validity.flag("valid") is False:
            found = [Reason("invalid", "it was stored as invalid without a reason")]
        return tuple(found)

    def wrong(self, key: str, what: str) -> UsageError:
        """The error for the value of ``key``."""
        return UsageError(f"{joined(self.place, key)}: {what}", where=self.where, remedy=_REMEDY)

    def _list(self, key: str) -> Sequence[Any]:
        value = self.data.get(key)
        if value is not None and not isinstance(value, list):
            raise self.wrong(key, f"expected a list, found {shown(value)}")
        return value or []


def shown(value: Any) -> str:
    """A value in a message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

"""What a page is made of. Everything here is text to be escaped, except the SVG of a picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_tokenwatt.report.html.palette import Mark


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table. ``state`` is a verdict to be shown as one, ``small`` a second line."""

    text: str
    numeric: bool = False
    state: str = ""
    small: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose first column names the rows. ``head`` has one entry a column."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    kind: str = "table"


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure: ``svg`` is finished markup, ``caption`` says what is drawn and how it was condensed."""

    name: str
    svg: str
    caption: str


@dataclass(frozen=True, slots=True)
class Pictures:
    """Figures side by side where the page is wide enough, with the key to their marks above them."""

    pictures: tuple[Picture, ...]
    legend: tuple[tuple[Mark, str], ...] = ()
    kind: str = "pictures"


@dataclass(frozen=True, slots=True)
class Line:
    """A paragraph; ``quiet`` for what is missing and why."""

    text: str
    quiet: bool = False
    kind: str = "line"


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list."""

    lines: tuple[str, ...]
    kind: str = "bullets"


@dataclass(frozen=True, slots=True)
class Code:
    """Text as it stands, with a name for readers who cannot see the box."""

    name: str
    text: str
    kind: str = "code"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A gate that did not pass, as a card of its own with its reasons."""

    state: str
    gate: str
    config: str
    facts: str
    reasons: tuple[str, ...]
    kind: str = "verdict"


@dataclass(frozen=True, slots=True)
class Folded:
    """Parts that are shown on request, and in print."""

    summary: str
    parts: tuple[Part, ...]
    kind: str = "folded"


Part = Table | Pictures | Line | Bullets | Code | Verdict | Folded


@dataclass(frozen=True, slots=True)
class Section:
    """One chapter of the page; ``name`` is its anchor."""

    name: str
    title: str
    parts: tuple[Part, ...]


def words(*texts: str) -> tuple[Cell, ...]:
    """Cells of words."""
    return tuple(Cell(text) for text in texts)


def figures(texts: Iterable[str]) -> tuple[Cell, ...]:
    """Cells of numbers, set flush right."""
    return tuple(Cell(text, numeric=True) for text in texts)


def present(parts: Iterable[Part | None]) -> tuple[Part, ...]:
    """The parts that there are."""
    return tuple(part for part in parts if part is not None)


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Table | None:
    """A table, or ``None`` where none of its rows has more than a name; columns without any content are left out."""
    listed = [tuple(row) for row in rows]
    if not any(_says(cell) for row in listed for cell in row[min(1, len(head) - 1) :]):
        return None
    kept = [place for place in range(len(head)) if place == 0 or any(_says(row[place]) for row in listed)]
    return Table(caption, tuple(head[place] for place in kept), tuple(tuple(row[p] for p in kept) for row in listed))


def _says(cell: Cell) -> bool:
    return bool(cell.state or cell.small or cell.text not in ("", "–"))

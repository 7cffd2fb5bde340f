"""GitHub-flavoured Markdown out of foreign words: they stay words, whatever they look like, and keep to a length.

GitHub turns more into links and mentions than its Markdown says, on the text that comes out of it: an entity for ``@``
still pings, so a blank without a width stands behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from pytest_tokenwatt.report.text import one_line

APART = "&#8203;"
"""A blank without a width: parts what GitHub would take for a mention, a link or an emoji."""
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "\\": "&#92;", "`": "&#96;"}
_PIECE = re.compile(
    r"(?P<entity>[&<>|\\`])"
    # Dollars begin mathematics, on the same line even behind a backslash.
    r"|(?P<dollar>\$)"
    r"|(?P<apart>@|\#(?=\d)|(?i:gh-)(?=\d)|:(?=//)|(?i:www)(?=\.)|:(?=(?!\d\d\D)[\w+-]+:))"
    r"|(?P<escaped>[*\[\]~#]|(?<![^\W_])_|_(?![^\W_])|^[-+](?=[ -]|$))"
    r"|(?P<number>^\d+(?=[.)](?: |$)))"
    r"|[\w ]|.",
    re.DOTALL,
)
_MORE = "…"


def escaped(words: str, room: int = 400) -> str:
    """``words`` on one line as they are to be read; at most ``room`` letters of Markdown, with dots where cut."""
    # One letter more than there is room for is enough to tell that it has to be cut.
    line = " ".join(one_line(words).split())[: room + 1]
    pieces = [_piece(match) for match in _PIECE.finditer(line)]
    fitting = sum(length <= room for length in accumulate(map(len, pieces)))
    return "".join(pieces) if fitting == len(pieces) else f"{''.join(pieces[:fitting])}{_MORE}"


def _piece(match: re.Match[str]) -> str:
    text = match.group()
    kind = match.lastgroup
    if kind == "entity":
        return _ENTITIES[text]
    if kind == "dollar":
        return "<span>$</span>"
    if kind == "apart":
        return f"\\#{APART}" if text == "#" else f"{text}{APART}"
    if kind == "number":
        return f"{text}\\"
    return f"\\{text}" if kind == "escaped" else text


def row(cells: Iterable[str]) -> str:
    """A row of a table of escaped cells."""
    return f"| {' | '.join(cells)} |"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table of escaped cells, as many in each row as there are headings."""
    yield row(headings)
    yield row("---" for _ in headings)
    yield from map(row, rows)


def fenced(text: str, room: int) -> list[str]:
    """``text`` as a block of code whose fence is longer than any inside it; at most ``room`` letters of it."""
    lines = [one_line(line) for line in text[:room].splitlines()]
    longest = max((len(ticks) for line in lines for ticks in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, *lines, *([_MORE] if len(text) > room else []), fence]


def details(summary: str, lines: Iterable[str]) -> list[str]:
    """``lines`` folded away below ``summary``."""
    return ["<details>", f"<summary>{summary}</summary>", "", *lines, "", "</details>"]


def fitting(lines: Iterable[str], room: int) -> tuple[list[str], int]:
    """The first lines that take no more than ``room`` letters together, and how many others there are."""
    found = list(lines)
    ends = accumulate(len(line) + 1 for line in found)
    kept = sum(end <= room for end in ends)
    return found[:kept], len(found) - kept

"""Wrapping for a terminal: first between the parts of a value, and never between a number and its unit.

Widths are columns, of which wide letters take two and combining ones none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len, chop_cells

_PARTS = re.compile(r"(?<=,)\s+(?![^\[]*\])|\s+(?=\()")
"""Blanks behind a comma that is not inside an interval, and blanks before a parenthesis."""
_TIGHT = re.compile(r"(?<=\d) (?=[%a-zA-Z])|(?<=[<>=≤≥±×]) (?=\S)|(?<=\+/-) (?=\S)")
"""Blanks between a number and its unit, a sign and its number."""
_LOOSE = re.compile(r" (?=±|\+/-)|(?<=,) (?=[^\[]*\])")
"""Blanks between a figure and its error, and between the ends of an interval: to be broken before the tight ones."""
_BLANKS = (" ", "\N{NARROW NO-BREAK SPACE}", "\N{NO-BREAK SPACE}")
_BOUND = str.maketrans(dict.fromkeys(_BLANKS[1:], " "))
_CUT = "..."


def parts(text: str) -> list[str]:
    """The parts of ``text`` that should stay whole."""
    return _PARTS.split(text)


def parts_wrapped(text: str, width: int) -> list[str]:
    """``text`` in lines of at most ``width`` columns; parts longer than a line break at blanks, else anywhere."""
    lines: list[str] = []
    for part in parts(text):
        if lines and cell_len(lines[-1]) + 1 + cell_len(part) <= width:
            lines[-1] += f" {part}"
        else:
            lines += wrapped(part, width)
    return lines


def wrapped(text: str, width: int) -> list[str]:
    """``text`` in lines of at most ``width`` columns, broken at blanks; words longer than a line break anywhere."""
    bound = _TIGHT.sub(_BLANKS[2], _LOOSE.sub(_BLANKS[1], text))
    return [line.translate(_BOUND).rstrip() for line in _filled(_words(bound, width, _BLANKS), width)]


def shortened(text: str, width: int) -> str:
    """The words of ``text`` that fit into ``width`` columns, with dots behind them where some were left out."""
    if cell_len(text) <= width:
        return text
    return "".join(wrapped(text, width - len(_CUT))[:1]) + _CUT


def _filled(words: Iterable[str], width: int) -> list[str]:
    lines: list[str] = []
    for word in words:
        if lines and cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
        elif word:
            lines.append(word)
    return lines


def _words(text: str, width: int, blanks: Sequence[str]) -> Iterator[str]:
    """What may not be torn apart: ``text`` split at the first kind of blank, what is longer than a line at the next."""
    for word in text.split(blanks[0]):
        if cell_len(word) <= width:
            yield word
        elif len(blanks) > 1:
            yield from _words(word, width, blanks[1:])
        else:
            yield from chop_cells(word, width)

"""Wrapping of values and rules: first between their parts, and never between a number and its unit."""

from __future__ import annotations

import re
import textwrap

_PARTS = re.compile(r"(?<=,)\s+(?![^\[]*\])|\s+(?=\()")
"""Blanks behind a comma that is not inside an interval, and blanks before a parenthesis."""
_BOUND = re.compile(r"(?<=\d) (?=[%a-zA-Z])|(?<=[<>=≤≥±]) (?=\S)| (?=[±])|(?<=,) (?=[^\[]*\])")
"""Blanks between a number and its unit, a sign and its number, and the ends of an interval."""
_BLANK = "\N{NO-BREAK SPACE}"


def parts(text: str) -> list[str]:
    """The parts of ``text`` that should stay whole."""
    return _PARTS.split(text)


def parts_wrapped(text: str, width: int) -> list[str]:
    """``text`` in lines of at most ``width`` columns; parts longer than a line break at blanks, else anywhere."""
    lines: list[str] = []
    for part in parts(text):
        if lines and len(lines[-1]) + 1 + len(part) <= width:
            lines[-1] += f" {part}"
        else:
            lines += textwrap.wrap(_BOUND.sub(_BLANK, part), width, break_on_hyphens=False)
    return [line.replace(_BLANK, " ") for line in lines]

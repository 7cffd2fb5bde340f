"""Text for a terminal: laid out by rich for a given width, in colour or not, in letters that the terminal has."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console, RenderableType
from rich.rule import Rule
from rich.text import Text

from pytest_tokenwatt.report.text import one_line
from pytest_tokenwatt.report.wrap import shortened, wrapped

LEAST_WIDTH = 40
"""Columns below which nothing can be laid out; a terminal that claims fewer gets as many."""
_SPOKEN = str.maketrans(
    {"·": "-", "×": "x", "±": "+/-", "−": "-", "–": "-", "—": "-", "…": "...", "≤": "<=", "≥": ">=", "→": "->"}
)


@dataclass(frozen=True, slots=True)
class Screen:
    """What is written to: its width in columns, whether it shows colour, and its encoding.

    Nothing is read of the environment: whoever owns the terminal knows what ``NO_COLOR`` and its kin ask for.
    """

    width: int = 80
    color: bool = False
    encoding: str = "utf-8"

    @property
    def columns(self) -> int:
        """The width that lines are laid out for."""
        return max(self.width, LEAST_WIDTH)

    def spelt(self, words: str) -> str:
        """``words`` as they can be shown: on one line, without control codes, spelt out where letters are missing."""
        line = one_line(words)
        try:
            line.encode(self.encoding)
        except UnicodeEncodeError:
            return line.translate(_SPOKEN).encode(self.encoding, "replace").decode(self.encoding)
        except LookupError:
            return line.translate(_SPOKEN).encode("ascii", "replace").decode("ascii")
        return line

    def text(self, words: str, style: str = "") -> Text:
        """``words`` as they can be shown."""
        return Text(self.spelt(words), style=style)

    def title(self, words: str) -> Rule:
        """A line of ``=`` across the screen with ``words`` in its middle, cut when there is no room for them."""
        return Rule(Text(shortened(self.spelt(words), self.columns - 12), "bold"), characters="=", style="bold")

    def hanging(self, words: str, *, lead: str = "", style: str = "", indent: int = 0) -> Text:
        """A paragraph behind a coloured ``lead``; its further lines stand two columns in."""
        head = self.spelt(lead)
        lines = wrapped(f"{head} {self.spelt(words)}", self.columns - indent - 2)
        styled = _styled(lines, len(head.replace(" ", "")), style)
        return Text(" " * indent) + Text("\n" + " " * (indent + 2)).join(styled)

    def line(self, words: str) -> str:
        """``words`` as one line, however long."""
        return f"{self.spelt(words)}\n"

    def render(self, *parts: RenderableType) -> str:
        """The parts below each other, each line ended, without trailing blanks."""
        file = io.StringIO()
        console = Console(
            file=file,
            width=self.columns,
            color_system="standard" if self.color else None,
            force_terminal=self.color,
            no_color=not self.color,
            legacy_windows=False,
            highlight=False,
            _environ={},
        )
        for part in parts:
            console.print(part)
        return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def _styled(lines: Iterable[str], letters: int, style: str) -> Iterable[Text]:
    """The lines with the first ``letters`` that are no blanks in ``style``: wrapping drops and adds only blanks."""
    for line in lines:
        head = 0
        while letters and head < len(line):
            letters -= line[head] != " "
            head += 1
        yield Text.assemble((line[:head], style), line[head:])

"""Text for a terminal: laid out by rich for a given width, in colour or not, in letters that the terminal has."""

from __future__ import annotations

import io
import re
import textwrap
from dataclasses import dataclass

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_SPOKEN = str.maketrans(
    {"·": "-", "×": "x", "±": "+/-", "−": "-", "–": "-", "—": "-", "…": "...", "≤": "<=", "≥": ">=", "→": "->"}
)


@dataclass(frozen=True, slots=True)
class Screen:
    """What is written to: its width in columns, whether it shows colour, and its encoding."""

    width: int = 80
    color: bool = False
    encoding: str = "utf-8"

    def text(self, words: str, style: str = "") -> Text:
        """``words`` as they can be shown: on one line, without control codes, spelt out where letters are missing."""
        line = _CONTROL.sub(" ", words).strip()
        try:
            line.encode(self.encoding)
        except UnicodeEncodeError:
            line = line.translate(_SPOKEN).encode(self.encoding, "replace").decode(self.encoding)
        return Text(line, style=style)

    def title(self, words: str) -> Rule:
        """A line of ``=`` across the screen with ``words`` in its middle, cut when there is no room for them."""
        room = max(self.width - 12, 12)
        return Rule(self.text(textwrap.shorten(words, room, placeholder="..."), "bold"), characters="=", style="bold")

    def hanging(self, words: str, *, lead: str = "", style: str = "", indent: int = 0) -> Padding:
        """A paragraph behind a coloured ``lead``; its further lines stand two columns in."""
        head = self.text(lead, style)
        paragraph = Text.assemble(head, " " if lead else "", self.text(words))
        lines = paragraph.wrap(Console(file=io.StringIO()), max(self.width - indent - 2, 10))
        return Padding(Text("\n  ").join(lines), (0, 0, 0, indent))

    def line(self, words: str) -> str:
        """``words`` as one line, however long."""
        return f"{self.text(words).plain}\n"

    def render(self, *parts: RenderableType) -> str:
        """The parts below each other, each line ended, without trailing blanks."""
        file = io.StringIO()
        console = Console(
            file=file,
            width=self.width,
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

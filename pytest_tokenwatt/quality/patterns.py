"""Regular expressions as golds, refused where the time to match could explode."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from functools import lru_cache

LONGEST_PATTERN = 400
REACH = 1000
"""Characters of an answer's beginning, and of its end, in which a pattern is searched."""

_BUDGET = 16 * REACH**2
_SAMPLE = [chr(code) for code in (9, 10, *range(32, 127), 0xE9, 0x416, 0x4E2D)]

_PIECE = re.compile(
    r"(?P<flags>\(\?[aiLmsux]+\))"
    r"|(?P<open>\((?:\?(?:[imsx]*:|P<\w+>))?(?!\?))"
    r"|(?P<close>\))"
    r"|(?P<repeat>(?:[*+?]|\{(?P<least>[0-9]*)(?P<to>,?)(?P<most>[0-9]*)\})[?+]?)"
    r"|(?P<either>\|)"
    r"|(?P<back>\\[1-9]|\(\?)"
    r"|(?P<atom>\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.)",
    re.DOTALL,
)

_GROUP = re.compile(r"\((?:\?(?:[imsx]*:|P<\w+>))?")


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> re.Pattern[str] | str:
    """The compiled pattern, or why it is refused.

    Refused are repeats of what itself varies (``(a+)*``, ``(a|b)+``), references back to a group, lookaround, and
    whatever could take more than 16 · ``REACH``² steps. What is left is one ``.*``, or several repeats that cannot
    match the same text (``\\s*\\d+``), with a few small bounds.
    """
    if len(pattern) > LONGEST_PATTERN:
        return f"the pattern has {len(pattern)} characters, at most {LONGEST_PATTERN} are allowed"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # "[[": another meaning in a later Python
            found = re.compile(pattern)
        return _Freedom().of(pattern) or found
    except (re.error, OverflowError, RecursionError, FutureWarning) as error:
        return f"the pattern {pattern[:40]!r} is no regular expression: {error}"


def searched(pattern: re.Pattern[str], text: str) -> str | None:
    """What the pattern finds first in the beginning or the end of a text; ``None`` when it finds nothing."""
    parts = (text,) if len(text) <= 2 * REACH else (text[:REACH], text[-REACH:])
    found = next((match for part in parts if (match := pattern.search(part))), None)
    return found.group() if found else None


@dataclass(slots=True)
class _Freedom:
    """Walks over a pattern that compiles and counts in how many ways it can match.

    ``rivals`` are the repeats without a bound that nothing separates from what comes: a character that must be there
    and that a repeat cannot match ends its reach.
    """

    steps: int = REACH
    rivals: list[str] = field(default_factory=list)
    has_unbounded: bool = False
    has_alternatives: bool = False
    varies: list[bool] = field(default_factory=lambda: [False])
    starts: list[int] = field(default_factory=lambda: [0])
    atom: str = ""
    atom_varies: bool = False

    def of(self, pattern: str) -> str | None:
        """Why the pattern is refused, or ``None``."""
        for piece in _PIECE.finditer(pattern):
            if piece["back"]:
                return "a pattern must not look around or refer back to a group"
            if not piece["repeat"]:
                self._separate()
                self._enter(piece, pattern)
            elif problem := self._repeat(piece):
                return problem
        return None if self.steps <= _BUDGET else "the pattern can match in too many ways: bound its repeats"

    def _enter(self, piece: re.Match[str], pattern: str) -> None:
        if piece["open"]:
            self.varies.append(False)
            self.starts.append(piece.start())
        elif piece["close"]:
            self.atom, self.atom_varies = pattern[self.starts.pop() : piece.end()], self.varies.pop()
            self.varies[-1] = self.varies[-1] or self.atom_varies
        elif piece["either"]:
            self.varies[-1] = self.has_alternatives = True
        elif piece["atom"]:
            self.atom, self.atom_varies = piece["atom"], False

    @property
    def _is_certain(self) -> bool:
        """Whether what stands here is part of every match."""
        return len(self.varies) == 1 and not self.has_alternatives

    def _separate(self) -> None:
        """What must be there, outside all groups, parts the repeats before it from those behind it."""
        if self.atom and self._is_certain and not self.atom_varies:
            self.rivals = [other for other in self.rivals if _share(self.atom, other)]
        self.atom = ""

    def _repeat(self, piece: re.Match[str]) -> str | None:
        least, most = _bounds(piece)
        if self.atom_varies and most != 1:
            return f"the pattern repeats what itself varies, before {piece.group()!r} in column {piece.start() + 1}"
        if most is None:
            return self._unbounded(least)
        self.steps *= max(1, most) if most != least else 1
        self.varies[-1] = self.varies[-1] or most != least
        self.atom = self.atom if least else ""
        return None

    def _unbounded(self, least: int) -> str | None:
        if any(_share(self.atom, other) for other in self.rivals):
            return f"two repeats without a bound can match the same text: bound one, as in {self.atom[:20]}{{0,4}}"
        self.steps *= 1 if self.has_unbounded else REACH
        self.has_unbounded = True
        self.rivals = [self.atom] if least and self._is_certain else [*self.rivals, self.atom]
        self.varies[-1] = True
        self.atom = ""
        return None


def _bounds(piece: re.Match[str]) -> tuple[int, int | None]:
    """Least and most of a repeat; most is ``None`` without a bound."""
    kind = piece["repeat"][0]
    if kind != "{":
        return int(kind == "+"), 1 if kind == "?" else None
    least = int(piece["least"] or 0)
    return least, (int(piece["most"]) if piece["most"] else None) if piece["to"] else least


def _share(one: str, other: str) -> bool:
    """Whether two atoms can begin with the same character, by a sample of characters."""
    first, second = _first(one), _first(other)
    return any(first.match(char) and second.match(char) for char in _SAMPLE)


@lru_cache(maxsize=256)
def _first(atom: str) -> re.Pattern[str]:
    """What an atom begins with; of a group, what its own first atom begins with, or anything."""
    inner = _GROUP.match(atom)
    if inner is None:
        return re.compile(atom, re.DOTALL | re.IGNORECASE)
    piece = _PIECE.match(atom, inner.end())
    plain = piece and piece["atom"] and not atom[piece.end() :].startswith(("*", "?", "{"))
    return re.compile(piece["atom"] if piece and plain else ".", re.DOTALL | re.IGNORECASE)

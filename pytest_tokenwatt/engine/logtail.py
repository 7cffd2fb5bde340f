"""An engine's log, made readable: no colours, no progress bars, no secrets."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

_TAIL_BYTES = 256 * 1024
_HEAD_BYTES = 1024 * 1024
_LINE_CHARACTERS = 300
_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)")


class LogTail:
    """Reads a log file that something else writes; an absent file is an empty log.

    What stood in the file before ``offset`` (bytes) belongs to an earlier engine and is not looked at.
    """

    def __init__(self, path: Path | None, scrub: Callable[[str], str], offset: int = 0) -> None:
        self.path = path
        self._scrub = scrub
        self._offset = offset

    def lines(self, count: int) -> tuple[str, ...]:
        """The last ``count`` lines that say something, oldest first, long ones cut."""
        return tuple(self.recent()[-count:])

    def last(self) -> str | None:
        """The last line that says something."""
        found = self.lines(1)
        return found[0] if found else None

    def recent(self) -> list[str]:
        """The readable lines of the last 256 KiB, long ones cut."""
        return [line[:_LINE_CHARACTERS] for line in self._readable(self._read(_TAIL_BYTES, from_end=True))]

    def whole_lines(self) -> list[str]:
        """The readable lines of the first MiB and of the last 256 KiB, uncut: where start-up arguments are told."""
        return self._readable(self._read(_HEAD_BYTES, from_end=False)) + self._readable(
            self._read(_TAIL_BYTES, from_end=True)
        )

    def _readable(self, raw: bytes) -> list[str]:
        text = _ESCAPES.sub("", raw.decode("utf-8", errors="replace"))
        cleaned = (_clean(line) for line in text.split("\n"))
        return [self._scrub(line) for line in cleaned if line]

    def _read(self, most: int, *, from_end: bool) -> bytes:
        try:
            if self.path is None:
                return b""
            with self.path.open("rb") as log:
                size = log.seek(0, 2)
                log.seek(max(self._offset, size - most) if from_end else self._offset)
                return log.read(most)
        except OSError:
            return b""


def _clean(line: str) -> str:
    """A line as a terminal would have left it: what a carriage return overwrote is gone."""
    shown = line.rstrip("\r").rpartition("\r")[2]
    return "".join(character if character.isprintable() else " " for character in shown).strip()

"""An engine's log, made readable: no colours, no progress bars, no secrets."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

_TAIL_BYTES = 256 * 1024
_HEAD_BYTES = 4 * 1024 * 1024
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
        return [line[:_LINE_CHARACTERS] for line in self._readable(self._read(self._end() - _TAIL_BYTES, _TAIL_BYTES))]

    def whole_lines(self) -> list[str]:
        """The readable lines, uncut: where a start is told. Of a huge log, the first 4 MiB and the last 256 KiB."""
        behind_head = self._offset + _HEAD_BYTES
        tail_start = max(behind_head, self._end() - _TAIL_BYTES)
        head, tail = self._read(self._offset, _HEAD_BYTES), self._read(tail_start, _TAIL_BYTES)
        gap = b"\n" if tail_start > behind_head else b""
        return self._readable(head + gap + tail)

    def _readable(self, raw: bytes) -> list[str]:
        text = without_escapes(raw.decode("utf-8", errors="replace"))
        cleaned = (_clean(line) for line in text.split("\n"))
        return [self._scrub(line) for line in cleaned if line]

    def _end(self) -> int:
        """Size of the file in bytes."""
        try:
            return self.path.stat().st_size if self.path else 0
        except OSError:
            return 0

    def _read(self, start: int, most: int) -> bytes:
        """Up to ``most`` bytes from ``start`` on, none of them from before the offset."""
        try:
            if self.path is None:
                return b""
            with self.path.open("rb") as log:
                log.seek(max(self._offset, start))
                return log.read(most)
        except OSError:
            return b""


def without_escapes(text: str) -> str:
    """The text without a terminal's escape sequences, such as colours."""
    return _ESCAPES.sub("", text)


def _clean(line: str) -> str:
    """A line as a terminal would have left it: what a carriage return overwrote is gone."""
    shown = line.rstrip("\r").rpartition("\r")[2]
    return "".join(character if character.isprintable() else " " for character in shown).strip()

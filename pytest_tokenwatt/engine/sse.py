"""Server-sent events, as far as a completions stream uses them: the data of each event, in order."""

from __future__ import annotations

LONGEST_EVENT = 16 * 1024 * 1024


class EventReader:
    """Feed it bytes as they come; it gives the data of every event that they complete.

    Any of CR LF, LF or CR ends a line; comments and other fields are skipped. Raises ``ValueError`` for an event
    longer than 16 MiB.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[str]:
        """The data of the events that end in this chunk."""
        if len(self._rest) + len(chunk) > LONGEST_EVENT:
            raise ValueError("an event of the stream is longer than 16 MiB")
        whole = (self._rest + chunk).replace(b"\r\n", b"\n")
        if whole.endswith(b"\r"):  # its line feed may follow in the next chunk
            whole, held = whole[:-1], b"\r"
        else:
            held = b""
        *lines, rest = whole.replace(b"\r", b"\n").split(b"\n")
        self._rest = rest + held
        return [event for line in lines for event in self._line(line)]

    def _line(self, line: bytes) -> list[str]:
        if line:
            field, _, value = line.partition(b":")
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
            return []
        event = b"\n".join(self._data).decode("utf-8", errors="replace")
        self._data.clear()
        return [event] if event else []

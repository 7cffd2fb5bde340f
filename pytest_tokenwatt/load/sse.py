"""Server-sent events: the data of each event out of bytes that arrive in any pieces."""

from __future__ import annotations

MAX_EVENT_BYTES = 8 * 2**20


class EventOverflowError(ValueError):
    """An event grew beyond ``MAX_EVENT_BYTES`` without an end."""


class EventSplitter:
    """Cuts a byte stream into events. Line ends may be LF, CRLF or CR; comments and other fields are skipped."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that ``piece`` completes. Raises ``EventOverflowError``."""
        if self._pending:
            piece = self._pending + piece
        elif _is_one_event(piece):
            return [piece[6:-2]]
        if b"\r" in piece:
            piece, held = _unified(piece)
        else:
            held = b""
        *events, rest = piece.split(b"\n\n")
        self._pending = rest + held
        if len(self._pending) > MAX_EVENT_BYTES:
            raise EventOverflowError(f"an event of more than {MAX_EVENT_BYTES} bytes")
        return [data for event in events if (data := _data(event)) is not None]

    def close(self) -> list[bytes]:
        """The data of a last event that the stream's end cut short of its blank line."""
        rest, self._pending = self._pending, b""
        data = _data(rest.replace(b"\r", b"\n"))
        return [] if data is None else [data]


def _is_one_event(piece: bytes) -> bool:
    """The usual case: one event of one line, whole."""
    return (
        piece.startswith(b"data: ") and piece.find(b"\n") == len(piece) - 2 and piece[-1] == 10 and b"\r" not in piece
    )


def _unified(piece: bytes) -> tuple[bytes, bytes]:
    """``piece`` with LF line ends; a CR at its end is held back, its LF may be on the way."""
    held = b"\r" if piece.endswith(b"\r") else b""
    whole = piece[: len(piece) - len(held)]
    return whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n"), held


def _data(event: bytes) -> bytes | None:
    if event.startswith(b"data: ") and b"\n" not in event:
        return event[6:]
    lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None

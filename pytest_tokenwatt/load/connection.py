"""The hot path: a connection that stamps what it receives at once and has it parsed later."""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import Any, Protocol, cast

import httptools
import orjson

from pytest_tokenwatt.load.exchange import Exchange
from pytest_tokenwatt.load.stream import MESSAGE_CHARS, error_of
from pytest_tokenwatt.records import ErrorClass

SLICE_S = 0.001
"""Longest parsing between two looks at the sockets: a stamp is late by no more than this."""

GATHER_S = 0.002
"""How long received pieces gather before they are parsed: one pass of the loop for many, instead of one for each."""

MAX_ERROR_BODY = 64 * 2**10


class Owner(Protocol):
    """Who hears what became of a connection's exchange."""

    def touched(self, exchange: Exchange) -> None:
        """Tokens came in."""
        ...

    def released(self, connection: Connection, exchange: Exchange) -> None:
        """``exchange`` has ended; ``connection.usable`` says whether it can carry another."""
        ...

    def resend(self, exchange: Exchange) -> None:
        """A reused connection turned out to be closed before a byte came back: send on a new one."""
        ...


class Digester:
    """Parses what connections received, first come first served, in slices of at most a millisecond.

    ``gather_s``: how long pieces gather before; 0 parses them in the turn of the loop that received them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.gather_s = GATHER_S
        self._queue: deque[Connection] = deque()
        self._scheduled = False

    def add(self, connection: Connection) -> None:
        """Queue a connection that has something to parse."""
        self._queue.append(connection)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_later(self.gather_s, self._slice)

    @property
    def horizon_s(self) -> float:
        """All that was received before this instant has been parsed."""
        return self._queue[0].oldest_s if self._queue else monotonic()

    def flush(self) -> None:
        """Parse everything now."""
        while self._queue:
            self._queue.popleft().digest()

    def _slice(self) -> None:
        end_s = monotonic() + SLICE_S
        queue = self._queue
        while queue:
            queue.popleft().digest()
            if monotonic() > end_s:
                break
        if queue:
            self._loop.call_soon(self._slice)
        else:
            self._scheduled = False


class Connection(asyncio.Protocol):
    """A keep-alive HTTP/1.1 connection that carries one exchange at a time."""

    __slots__ = (
        "_body",
        "_digester",
        "_done",
        "_inbox",
        "_keep",
        "_lost",
        "_owner",
        "_parser",
        "_queued",
        "_stamp_s",
        "_streaming",
        "exchange",
        "idle_since_s",
        "transport",
        "usable",
        "used",
    )  # fmt: skip

    def __init__(self, owner: Owner, digester: Digester) -> None:
        self._owner = owner
        self._digester = digester
        self._inbox: list[tuple[float, bytes]] = []
        self._queued = False
        self._lost: tuple[float, str] | None = None
        self._parser: Any = None
        self._stamp_s = 0.0
        self._streaming = False
        self._done = False
        self._keep = False
        self._body = b""
        self.exchange: Exchange | None = None
        self.transport: asyncio.Transport | None = None
        self.usable = True
        self.used = False
        self.idle_since_s = 0.0

    @property
    def oldest_s(self) -> float:
        """Receipt of the oldest piece that is not parsed yet."""
        return self._inbox[0][0] if self._inbox else monotonic()

    def send(self, exchange: Exchange) -> None:
        """Put the exchange's request on the wire."""
        self.exchange = exchange
        self._parser = httptools.HttpResponseParser(self)
        self._streaming = self._done = self._keep = False
        self._body = b""
        exchange.reused = self.used
        self.used = True
        if exchange.sent_s is None:
            exchange.sent_s = monotonic()  # before the write: a server's answer must never seem too early
        if self.transport is not None:
            self.transport.write(exchange.request)

    def close(self) -> None:
        """Drop the connection at once; the server sees its peer gone."""
        self.usable = False
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(0)  # uvloop then writes at once, not at the end of its iteration

    def data_received(self, data: bytes) -> None:
        """Stamp, keep, parse later."""
        self._inbox.append((monotonic(), data))
        if not self._queued:
            self._queued = True
            self._digester.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed by either side."""
        self.usable = False
        self._lost = (monotonic(), str(exc) if exc is not None else "closed by the server")
        if not self._queued:
            self._queued = True
            self._digester.add(self)

    def digest(self) -> None:
        """Parse what has been received, then the loss of the connection if it came."""
        self._queued = False
        inbox, self._inbox = self._inbox, []
        for stamp_s, data in inbox:
            if self.exchange is not None:
                self._parse(self.exchange, stamp_s, data)
        if self._lost is not None and self.exchange is not None:
            self._ended_by_loss(self.exchange, *self._lost)

    def _parse(self, exchange: Exchange, stamp_s: float, data: bytes) -> None:
        self._stamp_s = stamp_s
        exchange.bytes_received += len(data)
        before = exchange.stream.tokens
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._release(exchange, ErrorClass.PROTOCOL, f"not HTTP: {error}", usable=False)
            return
        if exchange.stream.error is not None:
            self._release(exchange, exchange.stream.error, exchange.stream.error_message, usable=False)
        elif self._done:
            self._finished(exchange)
        elif exchange.stream.tokens != before:
            self._owner.touched(exchange)

    # Callbacks of the parser

    def on_headers_complete(self) -> None:
        """Status and headers are known."""
        status = self._parser.get_status_code()
        if self.exchange is not None:
            self.exchange.status = status

    def on_header(self, name: bytes, value: bytes) -> None:
        """Only the content type matters."""
        if name.lower() == b"content-type":
            self._streaming = value.lower().startswith(b"text/event-stream")

    def on_body(self, body: bytes) -> None:
        """A piece of the body, without its transfer encoding."""
        exchange = self.exchange
        if exchange is None or exchange.dropped:
            return
        if self._streaming and exchange.status == 200:
            exchange.stream.feed(body, self._stamp_s)
        elif len(self._body) < MAX_ERROR_BODY:
            self._body += body

    def on_message_complete(self) -> None:
        """The response is whole. The parser knows about keep-alive only now, before it resets itself."""
        self._done = True
        self._keep = bool(self._parser.should_keep_alive())

    # Ends

    def _finished(self, exchange: Exchange) -> None:
        usable = self._keep
        if exchange.status != 200:
            self._release(exchange, ErrorClass.HTTP, _http_message(exchange.status, self._body), usable=usable)
        elif not self._streaming:
            self._release(exchange, *_unstreamed(self._body), usable=usable)
        else:
            exchange.complete(self._stamp_s)
            self._release(exchange, exchange.error, exchange.error_message, usable=usable)

    def _ended_by_loss(self, exchange: Exchange, at_s: float, why: str) -> None:
        self._stamp_s = at_s
        if exchange.reused and not exchange.bytes_received and not exchange.dropped:
            self.exchange = None
            self._owner.resend(exchange)
            return
        if exchange.status is not None and exchange.status != 200:
            self._release(exchange, ErrorClass.HTTP, _http_message(exchange.status, self._body), usable=False)
            return
        exchange.cut(at_s, why)
        self._release(exchange, exchange.error, exchange.error_message, usable=False)

    def _release(self, exchange: Exchange, error: ErrorClass | None, message: str | None, *, usable: bool) -> None:
        exchange.finish(self._stamp_s, error, message)
        self.exchange = None
        self._parser = None
        if not usable:
            self.close()
        self._owner.released(self, exchange)


def _http_message(status: int | None, body: bytes) -> str:
    return f"HTTP {status}: {_said(body)}"


def _unstreamed(body: bytes) -> tuple[ErrorClass, str]:
    try:
        event = orjson.loads(body)
    except orjson.JSONDecodeError:
        event = None
    if isinstance(event, dict) and (message := error_of(event)) is not None:
        return ErrorClass.STREAM_ERROR, message
    return ErrorClass.PROTOCOL, f"HTTP 200 without an event stream: {_text(body)}"


def _said(body: bytes) -> str:
    try:
        event = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _text(body)
    if isinstance(event, dict):
        message = error_of(event) or event.get("message") or event.get("detail")
        if message:
            return str(message)[:MESSAGE_CHARS]
    return _text(body)


def _text(body: bytes) -> str:
    return " ".join(body[:MESSAGE_CHARS].decode("utf-8", "replace").split()) or "(empty body)"

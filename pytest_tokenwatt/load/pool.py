"""Connections to one address: kept alive, reused newest first, opened ahead of need, never limited."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections import deque
from collections.abc import Callable
from time import monotonic

from pytest_tokenwatt.load.address import Address
from pytest_tokenwatt.load.connection import Connection, Digester
from pytest_tokenwatt.load.exchange import Exchange
from pytest_tokenwatt.records import ErrorClass

IDLE_LIMIT_S = 2.5
"""Idle connections older than this are not reused: usual servers close theirs after five seconds."""

CONNECT_TIMEOUT_S = 30.0

REFUSED_PAUSE_S = 0.25
"""After a failed connect none is opened in advance for so long; those that requests need are still tried."""

EXHAUSTED = frozenset({errno.EADDRNOTAVAIL, errno.EMFILE, errno.ENFILE})


class Pool:
    """Sends exchanges over idle connections, opening one for each exchange that finds none.

    Everything is told through callbacks on the loop: ``touched`` on tokens, ``ended`` once for each exchange.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        address: Address,
        hosts: tuple[str, ...],
        tls: ssl.SSLContext | None,
        touched: Callable[[Exchange], None],
        ended: Callable[[Exchange], None],
    ) -> None:
        self._loop = loop
        self._address = address
        self._hosts = hosts
        self._tls = tls
        self._ended = ended
        self.touched = touched
        self.digester = Digester(loop)
        self._idle: list[Connection] = []
        self._opening: set[asyncio.Task[None]] = set()
        self._waiting: deque[Exchange] = deque()
        self._busy: dict[Exchange, Connection] = {}
        self._refused_until_s = 0.0

    def send(self, exchange: Exchange) -> None:
        """Send now if a connection is idle, else as soon as one is open."""
        connection = self._take()
        if connection is not None:
            self._start(connection, exchange)
            return
        self._waiting.append(exchange)
        if len(self._opening) < len(self._waiting):
            self._open()

    def expect(self, sends: int) -> None:
        """Have a connection ready for each of the next ``sends`` exchanges, so that none waits for a handshake."""
        self._drop_stale()
        if monotonic() < self._refused_until_s:
            return
        for _ in range(sends + len(self._waiting) - len(self._idle) - len(self._opening)):
            self._open()

    def abort(self, exchange: Exchange, error: ErrorClass, message: str) -> None:
        """End an exchange by closing its connection; what was received is parsed first."""
        self.digester.flush()
        connection = self._busy.pop(exchange, None)
        if connection is not None:
            connection.exchange = None
            connection.close()
        elif exchange in self._waiting:
            self._waiting.remove(exchange)
        elif exchange.ended:
            return
        exchange.finish(monotonic(), error, message)
        self._ended(exchange)

    # What connections report (connection.Owner)

    def released(self, connection: Connection, exchange: Exchange) -> None:
        """An exchange has ended; its connection serves one that waits, or idles."""
        self._busy.pop(exchange, None)
        if connection.usable:
            if self._waiting:
                self._start(connection, self._waiting.popleft())
            else:
                connection.idle_since_s = monotonic()
                self._idle.append(connection)
        self._ended(exchange)

    def resend(self, exchange: Exchange) -> None:
        """Send again; a connection that was not used before is never resent from, so this ends."""
        self._busy.pop(exchange, None)
        self._waiting.append(exchange)
        self._open()

    # Opening

    def _start(self, connection: Connection, exchange: Exchange) -> None:
        self._busy[exchange] = connection
        connection.send(exchange)

    def _take(self) -> Connection | None:
        oldest_s = monotonic() - IDLE_LIMIT_S
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and connection.idle_since_s > oldest_s:
                return connection
            connection.close()
        return None

    def _drop_stale(self) -> None:
        oldest_s = monotonic() - IDLE_LIMIT_S
        while self._idle and (not self._idle[0].usable or self._idle[0].idle_since_s <= oldest_s):
            self._idle.pop(0).close()

    def _open(self) -> None:
        task = self._loop.create_task(self._connect())
        self._opening.add(task)

    async def _connect(self) -> None:
        task = asyncio.current_task()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                connection = await self._dial()
        except OSError as error:
            self._opening.discard(task)
            self._refused(error)
            return
        self._opening.discard(task)
        if self._waiting:
            self._start(connection, self._waiting.popleft())
        else:
            connection.idle_since_s = monotonic()
            self._idle.append(connection)

    async def _dial(self) -> Connection:
        """Connect to the first of the host's addresses that answers, and keep to it."""
        failure: OSError = OSError("no address")
        for host in self._hosts:
            try:
                _, connection = await self._loop.create_connection(
                    lambda: Connection(self, self.digester),
                    host,
                    self._address.port,
                    ssl=self._tls,
                    server_hostname=self._address.host if self._tls else None,
                )
            except OSError as error:
                failure = error
                if error.errno in EXHAUSTED:
                    break
                continue
            self._hosts = (host, *(other for other in self._hosts if other != host))
            self._no_delay(connection)
            return connection
        raise failure

    def _no_delay(self, connection: Connection) -> None:
        sock = connection.transport.get_extra_info("socket") if connection.transport else None
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _refused(self, error: OSError) -> None:
        self._refused_until_s = monotonic() + REFUSED_PAUSE_S
        if not self._waiting or len(self._opening) >= len(self._waiting):
            return
        exchange = self._waiting.popleft()
        if error.errno in EXHAUSTED:
            kind, remedy = ErrorClass.PORTS_EXHAUSTED, "; raise the limit or add workers on another machine"
        else:
            kind, remedy = ErrorClass.CONNECT, ""
        exchange.finish(monotonic(), kind, f"cannot connect to {self._address.authority}: {error}{remedy}")
        self._ended(exchange)

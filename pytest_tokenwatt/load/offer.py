"""A worker's part of one run: what it has in flight and what came back; how it sends is up to the kind of load."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from time import monotonic

from pytest_tokenwatt.load.bodies import RequestWriter
from pytest_tokenwatt.load.exchange import Exchange
from pytest_tokenwatt.load.pool import Pool
from pytest_tokenwatt.load.timer import make_timer
from pytest_tokenwatt.records import ErrorClass

BURST_S = 0.002
"""Due requests are sent for so long at a time, then the sockets have their turn."""

AHEAD_MAX = 256
"""So many requests are rendered in advance at most: bounds the memory for bodies."""

NOT_SENT = "due but not sent when the run ended"


class Offer(ABC):
    """Offers a share's load. ``ended`` collects finished requests until the worker takes them.

    Requests are rendered one by one before they are due, between which the sockets have their turn. ``tick_s``: how
    often the coordinator hears of it.
    """

    tick_s = 0.25

    def __init__(
        self, loop: asyncio.AbstractEventLoop, pool: Pool, writer: RequestWriter, request_timeout_s: float
    ) -> None:
        self._loop = loop
        self._pool = pool
        self._writer = writer
        self._request_timeout_s = request_timeout_s
        self._ready: deque[Exchange] = deque()
        self._timer = make_timer(loop, self._on_time)
        self._rendering = False
        self._stopped = False
        self.in_flight: dict[Exchange, None] = {}
        self.ended: list[Exchange] = []
        self.capped = 0

    # What each kind of load does in its own way

    @abstractmethod
    def measure_from(self, instant_s: float) -> None:
        """The measured part starts at ``instant_s``."""

    @abstractmethod
    def look_ahead(self) -> None:
        """Prepare what is due soon; to be called now and then."""

    @abstractmethod
    def stop(self, stop_s: float) -> None:
        """Send nothing more; what waits for its connection is ended."""

    @abstractmethod
    def _on_time(self) -> None:
        """The timer has come to its instant."""

    @abstractmethod
    def _wants_more(self) -> bool:
        """Whether another request is to be rendered now."""

    @abstractmethod
    def _render(self) -> Exchange:
        """Render the next request. Raises ``LookupError`` when there is none."""

    @abstractmethod
    def _rendered(self) -> None:
        """All that is wanted has been rendered."""

    def touched(self, exchange: Exchange) -> None:  # noqa: B027
        """Tokens of an exchange came in."""

    def take_changed(self) -> list[Exchange]:
        """Exchanges whose progress is to be reported; each only once."""
        return []

    def belongs(self, exchange: Exchange, stop_s: float) -> bool:  # noqa: ARG002
        """Whether an exchange is part of a run that was stopped at ``stop_s``."""
        return True

    # What they share

    def counts(self) -> tuple[int, int]:
        """Requests sent and not ended; requests due without a first token."""
        waiting = sum(1 for exchange in self.in_flight if not exchange.stream.chunk_s)
        return len(self.in_flight), waiting

    def finished(self, exchange: Exchange) -> None:
        """An exchange of this offer has ended."""
        exchange.judge_age(self._request_timeout_s)
        if exchange.error_message is not None:
            exchange.error_message = self._writer.mask(exchange.error_message)
        del self.in_flight[exchange]
        self.ended.append(exchange)

    def drain(self) -> list[Exchange]:
        """Let what is in flight finish unrecorded; returns it, ended as it stands now."""
        now_s = monotonic()
        for exchange in self.in_flight:
            exchange.finish(now_s, ErrorClass.ABORTED, "still running when the run ended")
            exchange.dropped = True
        return list(self.in_flight)

    def expire(self) -> None:
        """Give up the requests that are older than the request timeout."""
        oldest_s = monotonic() - self._request_timeout_s
        for exchange in list(self.in_flight):
            if exchange.scheduled_s > oldest_s:
                break
            self._pool.abort(exchange, ErrorClass.TIMEOUT, f"not finished within {self._request_timeout_s:g} s")

    def abort(self) -> None:
        """Close the connections of everything in flight."""
        for exchange in list(self.in_flight):
            self._pool.abort(exchange, ErrorClass.ABORTED, "aborted when the run was stopped")

    def _halt(self) -> None:
        self._stopped = True
        self._timer.close()
        self._ready.clear()
        for exchange in list(self.in_flight):
            if exchange.sent_s is None:
                self._pool.abort(exchange, ErrorClass.ABORTED, NOT_SENT)

    def _prepare(self) -> None:
        if not self._rendering:
            self._rendering = True
            self._loop.call_soon(self._render_one)

    def _render_one(self) -> None:
        """Render one request, then let the sockets have their turn."""
        self._rendering = False
        if self._stopped:
            return
        if not self._wants_more():
            self._rendered()
            return
        self._ready.append(self._render())
        self._prepare()

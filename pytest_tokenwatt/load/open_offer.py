"""Open-loop load of one worker: its requests are sent at their instants, whatever comes back."""

from __future__ import annotations

import asyncio
from itertools import islice
from time import monotonic

from pytest_tokenwatt.load.bodies import RequestWriter
from pytest_tokenwatt.load.connection import GATHER_S
from pytest_tokenwatt.load.exchange import MEASURED, WARMUP, Exchange
from pytest_tokenwatt.load.offer import AHEAD_MAX, BURST_S, NOT_SENT, Offer
from pytest_tokenwatt.load.pool import Pool
from pytest_tokenwatt.load.wire import Share
from pytest_tokenwatt.records import ErrorClass, Schedule

AHEAD_S = 0.5
"""How long before its instant a request is rendered at the earliest: bounds the memory for bodies."""

EXPECT_S = 0.3
EXPECT_MAX = 32
"""Requests due within this time have a connection opened for them in advance, up to so many at once."""


class Queue:
    """The requests of a share in the order of their instants; the start of the measured part may become known later."""

    def __init__(self, share: Share, start_s: float) -> None:
        self._share = share
        self._start_s = start_s
        self._measured_s: float | None = None
        self._warm = 0
        self._next = 0

    def measure_from(self, instant_s: float) -> None:
        """The measured schedule starts here; warm-up requests from here on are not offered."""
        self._measured_s = instant_s

    def peek(self) -> float | None:
        """The instant of the next request; ``None`` when there is none (yet)."""
        warm_s = self._warm_s()
        if warm_s is not None:
            return warm_s
        offsets = self._share.measured.offset_s
        if self._measured_s is None or self._next >= len(offsets):
            return None
        return self._measured_s + offsets[self._next]

    def _warm_s(self) -> float | None:
        offsets = self._share.warmup.offset_s
        if self._warm >= len(offsets):
            return None
        instant_s = self._start_s + offsets[self._warm]
        if self._measured_s is not None and instant_s >= self._measured_s:
            return None
        return instant_s

    def take(self, writer: RequestWriter | None) -> Exchange:
        """The next request, rendered if there is a writer. Raises ``LookupError`` when there is none."""
        if self._warm_s() is not None:
            exchange = self._make(WARMUP, self._share.warmup, self._warm, self._start_s, writer)
            self._warm += 1
        elif self._measured_s is not None:
            exchange = self._make(MEASURED, self._share.measured, self._next, self._measured_s, writer)
            self._next += 1
        else:
            raise LookupError("no request is due")
        return exchange

    def _make(
        self, phase: str, schedule: Schedule, local: int, start_s: float, writer: RequestWriter | None
    ) -> Exchange:
        index = local * self._share.workers + self._share.worker
        tokens = (schedule.input_tokens[local], schedule.output_tokens[local])
        request = b"" if writer is None else writer.render(schedule.prompt_key, index, *tokens)
        keep = phase == MEASURED and index in self._share.kept
        return Exchange(phase, index, start_s + schedule.offset_s[local], tokens, request, keep=keep)


class OpenOffer(Offer):
    """Offers a share's load in an open loop.

    Nothing waits for a free slot unless ``max_in_flight`` is reached, which ``capped`` counts.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, pool: Pool, writer: RequestWriter, share: Share, start_s: float
    ) -> None:
        super().__init__(loop, pool, writer, share.request_timeout_s)
        pool.digester.gather_s = GATHER_S
        self._share = share
        self._queue = Queue(share, start_s)
        self._held: dict[Exchange, None] = {}
        self._changed: dict[Exchange, None] = {}
        self.look_ahead()

    def measure_from(self, instant_s: float) -> None:
        """Switch from warm-up to the measured schedule at ``instant_s`` without a break."""
        self._queue.measure_from(instant_s)
        while self._ready and self._ready[-1].scheduled_s >= instant_s:
            self._ready.pop()
        self.look_ahead()

    def stop(self, stop_s: float) -> None:
        """Send nothing more. Requests that were due before ``stop_s`` and not sent are ended as such."""
        while (due_s := self._due_s()) is not None and due_s < stop_s:
            exchange = self._ready.popleft() if self._ready else self._queue.take(None)
            exchange.finish(monotonic(), ErrorClass.ABORTED, NOT_SENT)
            self.ended.append(exchange)
        self._halt()

    def touched(self, exchange: Exchange) -> None:
        """Tokens of an exchange came in."""
        self._changed[exchange] = None

    def take_changed(self) -> list[Exchange]:
        """Measured requests of which something new is known since the last call."""
        changed, self._changed = self._changed, {}
        return [exchange for exchange in changed if exchange.phase == MEASURED]

    def belongs(self, exchange: Exchange, stop_s: float) -> bool:
        """Whether the request was scheduled before the stop."""
        return exchange.scheduled_s < stop_s

    def counts(self) -> tuple[int, int]:
        """Requests sent and not ended; requests due without a first token."""
        running, waiting = super().counts()
        return running - len(self._held), waiting

    # Sending

    def _on_time(self) -> None:
        if self._stopped:
            return
        now_s = monotonic()
        while (due_s := self._due_s()) is not None and due_s <= now_s and monotonic() < now_s + BURST_S:
            self._offer(self._ready.popleft() if self._ready else self._render())
        self.look_ahead()

    def _due_s(self) -> float | None:
        return self._ready[0].scheduled_s if self._ready else self._queue.peek()

    def _offer(self, exchange: Exchange) -> None:
        full = len(self.in_flight) - len(self._held) >= self._share.max_in_flight
        self.in_flight[exchange] = None
        self._changed[exchange] = None
        if full:
            self.capped += 1
            self._held[exchange] = None
        else:
            self._pool.send(exchange)

    def finished(self, exchange: Exchange) -> None:
        """An exchange of this offer has ended."""
        super().finished(exchange)
        self._changed[exchange] = None
        was_held = self._held.pop(exchange, self) is None
        if self._held and not was_held and not self._stopped:
            following = next(iter(self._held))
            del self._held[following]
            self._pool.send(following)

    # Preparing

    def look_ahead(self) -> None:
        """Set the timer for what is due next, and prepare what is due soon."""
        due_s = self._due_s()
        if due_s is None or self._stopped:
            return
        self._timer.set(due_s)
        self._prepare()

    def _render(self) -> Exchange:
        return self._queue.take(self._writer)

    def _rendered(self) -> None:
        soon_s = monotonic() + EXPECT_S
        soon = sum(1 for exchange in islice(self._ready, EXPECT_MAX) if exchange.scheduled_s < soon_s)
        self._pool.expect(soon)

    def _wants_more(self) -> bool:
        due_s = self._queue.peek()
        if due_s is None:
            return False
        return not self._ready or (len(self._ready) < AHEAD_MAX and due_s < monotonic() + AHEAD_S)

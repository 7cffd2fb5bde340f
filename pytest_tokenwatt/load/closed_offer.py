"""Closed-loop load of one worker: a request that ends is replaced at once."""

from __future__ import annotations

import asyncio
import sys
from itertools import takewhile
from time import monotonic

from pytest_tokenwatt.load.bodies import RequestWriter
from pytest_tokenwatt.load.exchange import MEASURED, Exchange
from pytest_tokenwatt.load.numbering import own_numbers, phase_of, slots
from pytest_tokenwatt.load.offer import AHEAD_MAX, BURST_S, Offer
from pytest_tokenwatt.load.pool import Pool
from pytest_tokenwatt.load.wire import ClosedShare

FAILURE_PAUSE_S = 0.25
"""The replacement of a failed request waits so long: a server that refuses everything is not hammered."""


class ClosedOffer(Offer):
    """Holds a share's slots in flight. What is received is parsed in the same turn of the event loop, not gathered.

    A replacement is due at the instant at which the request before it ended. A load that is sent at once stops behind
    its warm-up until ``measure_from``, and for good behind its measured requests.
    """

    tick_s = 0.1  # the coordinator ends the load by what it hears: the tail is short

    def __init__(
        self, loop: asyncio.AbstractEventLoop, pool: Pool, writer: RequestWriter, share: ClosedShare, start_s: float
    ) -> None:
        super().__init__(loop, pool, writer, share.plan.request_timeout_s)
        pool.digester.gather_s = 0.0
        plan = share.plan
        self._plan = plan
        self._share = share
        held = slots(plan.concurrency, share.workers, share.worker)
        self._depth = AHEAD_MAX if plan.at_once else min(held, AHEAD_MAX)
        self._numbers = own_numbers(plan.concurrency, share.workers, share.worker)
        self._number = next(self._numbers, None)
        self._end = plan.warmup if plan.at_once else sys.maxsize
        self._unsent = held
        self._due_s = start_s
        self._timer.set(start_s)
        self._prepare()

    def measure_from(self, instant_s: float) -> None:
        """Send all measured requests at ``instant_s``."""
        self._end = self._plan.warmup + self._plan.requests
        own = own_numbers(self._plan.concurrency, self._share.workers, self._share.worker)
        self._unsent = sum(number >= self._plan.warmup for number in takewhile(lambda each: each < self._end, own))
        self._due_s = instant_s
        self._timer.set(instant_s)
        self._prepare()

    def look_ahead(self) -> None:
        """Nothing is due that the end of a request does not bring."""

    def stop(self, stop_s: float) -> None:  # noqa: ARG002
        """Send nothing more; what waits for its connection is ended."""
        self._halt()

    def finished(self, exchange: Exchange) -> None:
        """An exchange has ended: send its replacement, at once unless it failed."""
        super().finished(exchange)
        if self._stopped or exchange.end_s is None:
            return
        if exchange.error is None:
            self._send_next(exchange.end_s)
        else:
            self._loop.call_later(FAILURE_PAUSE_S, self._replace_failed, self._end)

    def _replace_failed(self, end: int) -> None:
        if end == self._end:  # else it was the warm-up's, which is over
            self._send_next(monotonic())

    def _on_time(self) -> None:
        """Send what is due together, in bursts."""
        end_s = monotonic() + BURST_S
        while self._unsent and monotonic() < end_s:
            self._unsent -= 1
            self._send_next(self._due_s)
        if self._unsent:
            self._loop.call_soon(self._on_time)

    def _send_next(self, due_s: float) -> None:
        if self._stopped or not (self._ready or self._has_next()):
            return
        exchange = self._ready.popleft() if self._ready else self._render()
        exchange.scheduled_s = due_s
        self.in_flight[exchange] = None
        self._pool.send(exchange)
        self._prepare()

    # Preparing

    def _has_next(self) -> bool:
        return self._number is not None and self._number < self._end

    def _wants_more(self) -> bool:
        return len(self._ready) < self._depth and self._has_next()

    def _render(self) -> Exchange:
        if self._number is None:
            raise LookupError("this worker has no slot")
        number, self._number = self._number, next(self._numbers, None)
        plan = self._plan
        phase, index = phase_of(plan, number)
        request = self._writer.render(plan.prompt_key, number, plan.input_tokens, plan.output_tokens)
        keep = phase == MEASURED and index in plan.kept
        return Exchange(phase, index, 0.0, (plan.input_tokens, plan.output_tokens), request, keep=keep)

    def _rendered(self) -> None:
        self._pool.expect(min(self._unsent, len(self._ready)))

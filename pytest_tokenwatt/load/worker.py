"""One load worker: ``python -m pytest_tokenwatt.load.worker FD`` serves a coordinator over the socket FD."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from time import monotonic, process_time
from typing import Any, TypeVar, cast

from pytest_tokenwatt.errors import TokenwattError
from pytest_tokenwatt.load.address import parse_endpoint, resolve, tls_context
from pytest_tokenwatt.load.bodies import RequestWriter
from pytest_tokenwatt.load.closed_offer import ClosedOffer
from pytest_tokenwatt.load.exchange import Exchange
from pytest_tokenwatt.load.offer import Offer
from pytest_tokenwatt.load.open_offer import OpenOffer
from pytest_tokenwatt.load.pool import Pool
from pytest_tokenwatt.load.urgency import run_when_due
from pytest_tokenwatt.load.wire import (
    ClosedShare,
    FrameSplitter,
    Kind,
    Share,
    Tick,
    frame,
    pack_notice,
    pack_tick,
    unpack_closed_share,
    unpack_instant,
    unpack_share,
    unpack_target,
)
from pytest_tokenwatt.load.wire_records import pack_progress, pack_records

PROGRESS_AT_ONCE = 200
RECORDS_AT_ONCE = 16
"""Reports are packed in pieces of about half a millisecond, between which the sockets have their turn."""

T = TypeVar("T")


class Worker(asyncio.Protocol):
    """Does what the coordinator's frames say; ends when the coordinator does."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._frames = FrameSplitter()
        self._link: asyncio.WriteTransport | None = None
        self._writer: RequestWriter | None = None
        self._pool: Pool | None = None
        self._share: Share | ClosedShare | None = None
        self._offer: Offer | None = None
        self._leftovers: list[Offer] = []
        self._report: Iterator[None] | None = None
        self._next_tick_s = 0.0
        self._tick_handle: asyncio.TimerHandle | None = None
        self._handlers: dict[Kind, Callable[[bytes], None]] = {
            Kind.CONFIG: self._configure,
            Kind.SHARE: lambda payload: self._take_share(unpack_share(payload)),
            Kind.CLOSED_SHARE: lambda payload: self._take_share(unpack_closed_share(payload)),
            Kind.START: self._start,
            Kind.MEASURE: self._measure,
            Kind.STOP: self._stop,
        }

    # The link to the coordinator

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The link is up."""
        self._link = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Frames from the coordinator."""
        try:
            for kind, payload in self._frames.feed(data):
                self._handlers[kind](payload)
        except Exception as error:
            self.fail(error)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The coordinator is gone: so are we, and the engine sees its clients gone."""
        self._loop.stop()

    def fail(self, error: BaseException) -> None:
        """Tell the coordinator why this worker ends, and end."""
        ours = isinstance(error, TokenwattError)
        text = str(error) if ours else f"{type(error).__name__}: {error}"
        reason = getattr(error, "reason", "bad_target" if ours else "load_worker_failed")
        traceback.print_exception(error, file=sys.stderr)
        self._send(Kind.FAILED, pack_notice({"reason": reason, "text": text}))
        self._loop.call_later(0.2, self._loop.stop)

    def _send(self, kind: Kind, payload: bytes = b"") -> None:
        if self._link is not None and not self._link.is_closing():
            self._link.write(frame(kind, payload))

    # Commands

    def _configure(self, payload: bytes) -> None:
        target = unpack_target(payload)
        address = parse_endpoint(target.endpoint)
        self._writer = RequestWriter(target, address)
        tls = tls_context(target, address)
        self._pool = Pool(self._loop, address, resolve(address), tls, self._touched, self._ended)
        self._send(Kind.READY)

    def _take_share(self, share: Share | ClosedShare) -> None:
        self._share = share
        gc.collect()
        gc.freeze()
        self._send(Kind.READY)

    def _start(self, payload: bytes) -> None:
        start_s, _ = unpack_instant(payload)
        share = self._share
        if self._pool is None or self._writer is None or share is None:
            raise RuntimeError("started before it was configured")
        gc.disable()  # a collection would be late stamps; the share's end collects
        if isinstance(share, ClosedShare):
            self._offer = ClosedOffer(self._loop, self._pool, self._writer, share, start_s)
        else:
            self._offer = OpenOffer(self._loop, self._pool, self._writer, share, start_s)
        self._next_tick_s = start_s
        self._schedule_tick(self._offer)

    def _measure(self, payload: bytes) -> None:
        instant_s, _ = unpack_instant(payload)
        if self._offer is not None:
            self._offer.measure_from(instant_s)

    def _stop(self, payload: bytes) -> None:
        stop_s, abort = unpack_instant(payload)
        offer = self._offer
        if self._tick_handle is not None:
            self._tick_handle.cancel()
        if offer is not None:
            self._finish_report()
            self._drain_inbox()
            offer.stop(stop_s)
            self._close_offer(offer, stop_s, abort=abort)
            self._offer = None
        if abort:
            for leftover in self._leftovers:
                leftover.abort()
        gc.enable()
        self._send(Kind.END, pack_notice({"capped": offer.capped if offer else 0}))

    def _close_offer(self, offer: Offer, stop_s: float, *, abort: bool) -> None:
        """Report all that belongs to the run; what still runs is aborted or left to drain."""
        left: list[Exchange] = []
        if abort:
            offer.abort()
        else:
            left = offer.drain()
            self._leftovers.append(offer)
        last = [exchange for exchange in (*offer.ended, *left) if offer.belongs(exchange, stop_s)]
        for part in _parts(last, RECORDS_AT_ONCE):
            self._send(Kind.RECORDS, pack_records(exchange.record() for exchange in part))

    def _drain_inbox(self) -> None:
        if self._pool is not None:
            self._pool.digester.flush()

    # What the pool tells

    def _touched(self, exchange: Exchange) -> None:
        if self._offer is not None and not exchange.dropped:
            self._offer.touched(exchange)

    def _ended(self, exchange: Exchange) -> None:
        for offer in (self._offer, *self._leftovers):
            if offer is not None and exchange in offer.in_flight:
                offer.finished(exchange)

    # Reports

    def _schedule_tick(self, offer: Offer) -> None:
        self._next_tick_s = max(self._next_tick_s + offer.tick_s, monotonic())
        self._tick_handle = self._loop.call_later(self._next_tick_s - monotonic(), self._tick)

    def _tick(self) -> None:
        offer = self._offer
        if offer is None:
            return
        self._leftovers = [leftover for leftover in self._leftovers if leftover.in_flight]
        for each in (offer, *self._leftovers):
            each.expire()
        offer.look_ahead()
        if self._report is None:
            self._report = self._reports(offer)
            self._step()
        self._schedule_tick(offer)

    def _step(self) -> None:
        """Send the next piece of the report, then let the sockets have their turn."""
        if self._report is not None and next(self._report, self) is self:
            self._report = None
        elif self._report is not None:
            self._loop.call_soon(self._step)

    def _finish_report(self) -> None:
        for _ in self._report or ():
            pass
        self._report = None

    def _reports(self, offer: Offer) -> Iterator[None]:
        at_s = self._pool.digester.horizon_s if self._pool is not None else monotonic()
        ended, offer.ended = offer.ended, []
        for part in _parts(offer.take_changed(), PROGRESS_AT_ONCE):
            self._send(Kind.PROGRESS, pack_progress(exchange.progress() for exchange in part))
            yield
        for done in _parts(ended, RECORDS_AT_ONCE):
            self._send(Kind.RECORDS, pack_records(exchange.record() for exchange in done))
            yield
        self._send(Kind.TICK, pack_tick(self._reading(offer, at_s)))

    def _reading(self, offer: Offer, at_s: float) -> Tick:
        running, waiting = offer.counts()
        running += sum(len(leftover.in_flight) for leftover in self._leftovers)
        return Tick(at_s, monotonic(), process_time(), running, waiting, offer.capped)


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _raise_file_limit() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def main(arguments: Sequence[str]) -> int:
    """Serve the coordinator at the other end of the inherited socket until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _raise_file_limit()
    scheduling = "real-time" if run_when_due() else "ordinary: no right to ask for more"
    sys.stderr.write(f"scheduling: {scheduling}\n")
    loop = _new_loop()
    worker = Worker(loop)

    def on_exception(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        worker.fail(context.get("exception") or RuntimeError(context["message"]))

    loop.set_exception_handler(on_exception)
    link = socket.socket(fileno=int(arguments[0]))
    loop.run_until_complete(loop.create_unix_connection(lambda: worker, sock=link))
    loop.run_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

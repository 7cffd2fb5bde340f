"""A scripted HTTP server in a thread: each behaviour is what some real server once did to a client."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from pytest_tokenwatt.records import CONTINUE, Decision, InFlight, LoadPlan, RequestProgress, Schedule, WindowSpan

Json = dict[str, Any]


@dataclass
class Received:
    """One request as the server saw it."""

    path: str
    headers: dict[str, str]
    body: Json
    connection: int
    at_s: float
    gone_s: float | None = None


class Reply:
    """Writes one response: SSE events in chunked encoding, or raw bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: Received) -> None:
        self.writer = writer
        self.reader = reader
        self.request = request
        self.closed = False

    @property
    def chat(self) -> bool:
        return self.request.path.endswith("/chat/completions")

    async def sleep(self, seconds: float) -> None:
        """Sleep while the client stays."""
        until_s = monotonic() + seconds
        while (left_s := until_s - monotonic()) > 0:
            if self.reader.at_eof() or self.reader.exception() is not None:
                raise ConnectionError("the client is gone")
            await asyncio.sleep(min(0.02, left_s))

    def head(self, content_type: str = "text/event-stream; charset=utf-8", extra: str = "") -> None:
        self.raw(
            f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n{extra}\r\n".encode()
        )

    def raw(self, data: bytes) -> None:
        self.writer.write(data)

    def piece(self, data: bytes) -> None:
        self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    def event(self, event: Json | str) -> None:
        text = event if isinstance(event, str) else json.dumps(event)
        self.piece(f"data: {text}\n\n".encode())

    def end(self) -> None:
        self.raw(b"0\r\n\r\n")

    def cut(self) -> None:
        self.closed = True
        self.writer.close()

    def plain(self, status: str, body: bytes, content_type: str = "application/json") -> None:
        self.raw(
            f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        )


Behaviour = Callable[[Reply], Awaitable[None]]
Enough = Callable[[float, Sequence[WindowSpan], Sequence[RequestProgress]], bool]
"""Whether a run may end: the time, its windows, and how far its requests are."""


def token(
    chat: bool, text: str = " tok", *, ids: Sequence[int] | None = None, usage: Json | None = None,
    finish: str | None = None, delta: Json | None = None,
) -> Json:  # fmt: skip
    """One event of a stream."""
    choice: Json = {"index": 0, "logprobs": None, "finish_reason": finish}
    choice |= {"delta": delta if delta is not None else {"content": text}} if chat else {"text": text}
    if ids is not None:
        choice["token_ids"] = list(ids)
    event: Json = {"id": "c-1", "object": "chunk", "created": 1, "model": "m", "choices": [choice]}
    if usage is not None:
        event["usage"] = usage
    return event


def usage(output: int, prompt: int = 7, **more: Any) -> Json:
    return {"prompt_tokens": prompt, "total_tokens": prompt + output, "completion_tokens": output, **more}


def final(output: int, **more: Any) -> Json:
    return {"id": "c-1", "choices": [], "usage": usage(output, **more)}


async def good(reply: Reply) -> None:
    """Token ids and continuous usage, as asked for."""
    reply.head()
    for n in range(1, 5):
        reply.event(token(reply.chat, ids=[n], usage=usage(n), finish="length" if n == 4 else None))
    reply.event(final(4))
    reply.event("[DONE]")
    reply.end()


async def stalls(reply: Reply) -> None:
    reply.head()
    await reply.writer.drain()
    await reply.sleep(60)


@dataclass
class LoadServer:
    """Answers by ``behaviour``, or by the one that ``max_tokens`` numbers when ``gallery`` is set."""

    behaviour: Behaviour = good
    gallery: dict[int, Behaviour] = field(default_factory=dict)
    requests: list[Received] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
        self.connections += 1
        number = self.connections
        try:
            async for request in _requests(reader, number):
                self.requests.append(request)
                behave = self.gallery.get(request.body.get("max_tokens", 0), self.behaviour)
                reply = Reply(reader, writer, request)
                await behave(reply)
                await writer.drain()
                if reply.closed:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            for request in self.requests:
                if request.connection == number and request.gone_s is None:
                    request.gone_s = monotonic()
            writer.close()


async def _requests(reader: asyncio.StreamReader, number: int) -> AsyncIterator[Received]:
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return
        first, *lines = head.decode("latin-1").strip().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        yield Received(first.split(" ")[1], headers, json.loads(body or b"{}"), number, monotonic())


@contextmanager
def serving(server: LoadServer, tls: ssl.SSLContext | None = None) -> Iterator[LoadServer]:
    """Run the server on a free port of 127.0.0.1."""
    loop = asyncio.new_event_loop()
    started = threading.Event()

    async def main() -> None:
        listener = await asyncio.start_server(server._serve, "127.0.0.1", 0, ssl=tls, limit=2**22)
        server.port = listener.sockets[0].getsockname()[1]
        started.set()
        async with listener:
            await asyncio.Event().wait()

    async def shut() -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.01)

    def run() -> None:
        asyncio.set_event_loop(loop)
        main_task = loop.create_task(main())
        loop.run_forever()
        main_task.cancel()
        loop.run_until_complete(shut())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    started.wait(10)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


# --- plans and watches ----------------------------------------------------------------------------------------------


def schedule(offsets: Iterable[float], outputs: Sequence[int], prompt_key: int, inputs: int = 8) -> Schedule:
    instants = array("d", offsets)
    return Schedule(instants, array("q", [inputs] * len(instants)), array("q", outputs), prompt_key)


def small_plan(
    outputs: Sequence[int], *, gap_s: float = 0.02, windows: int = 1, window_s: float = 0.5, warmup_s: float = 0.0,
    warmup: Schedule | None = None, key: int = 1, timeout_s: float = 5.0, max_concurrency: int = 1000,
) -> LoadPlan:  # fmt: skip
    """A plan by hand: one request each ``gap_s``."""
    measured = schedule((k * gap_s for k in range(len(outputs))), outputs, key)
    return LoadPlan(
        label="by hand", rate_rps=1 / gap_s, warmup=warmup or schedule([], [], key + 1), measured=measured,
        warmup_s=warmup_s, warmup_max_s=warmup_s, window_s=window_s, windows=windows, request_timeout_s=timeout_s,
        max_concurrency=max_concurrency,
    )  # fmt: skip


@dataclass
class Watch:
    """Stops when ``done`` says so of the progress; keeps what it was shown."""

    done: Enough
    abort: bool = True
    level_after: int = 0
    seen: list[tuple[float, int]] = field(default_factory=list)
    asked: int = 0

    def level(self, now_s: float, in_flight: Sequence[InFlight]) -> bool:
        self.asked += 1
        return self.asked > self.level_after

    def decide(self, now_s: float, spans: Sequence[WindowSpan], requests: Sequence[RequestProgress]) -> Decision:
        self.seen.append((now_s, len(requests)))
        return Decision(stop=True, why="done", abort=self.abort) if self.done(now_s, spans, requests) else CONTINUE


def all_ended(count: int) -> Enough:
    """Of ``count`` requests, all have been shown and have ended."""

    def done(_: float, __: Sequence[WindowSpan], requests: Sequence[RequestProgress]) -> bool:
        return len(requests) >= count and all(request.ended for request in requests)

    return done


def after(seconds: float) -> Enough:
    """So long after the first window's start."""
    return lambda now_s, spans, _: now_s >= spans[0].start_s + seconds


def once_answered(count: int, enough: Enough) -> Enough:
    """As ``enough``, but not before the first ``count`` requests have a token each, however busy the machine is."""

    def done(now_s: float, spans: Sequence[WindowSpan], requests: Sequence[RequestProgress]) -> bool:
        answered = sum(request.first_token_s is not None for request in requests[:count])
        return answered == count and enough(now_s, spans, requests)

    return done

"""The control plane: an async client on an event loop of its own, in a thread of its own.

A user's loop (pytest-asyncio's, for one) never meets ours: whatever it awaits here is a future that our loop resolves.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from pytest_tokenwatt.engine.access import Access
from pytest_tokenwatt.engine.http import Http, HttpError
from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.records import Reply

T = TypeVar("T")

DEFAULT_TIMEOUT_S = 300.0
_JOIN_S = 10.0


class PrivateLoop:
    """An event loop in a daemon thread; started with the first use, ended for good by ``close``."""

    def __init__(self) -> None:
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Schedule a coroutine; its outcome arrives in the future. Raises ``EngineError`` after ``close``."""
        loop = self._running()
        if loop is None:
            work.close()
            raise EngineError("engine_stopped", "the engine is stopped", remedy="use its client before the stop")
        return asyncio.run_coroutine_threadsafe(work, loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end from synchronous code. Raises ``RuntimeError`` on the loop's own thread."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("call() inside the control loop would wait for itself; await instead")
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what runs and end the thread; safe to call twice."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop, self._thread, self._closed = None, None, True
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_JOIN_S)

    def _running(self) -> asyncio.AbstractEventLoop | None:
        with self._lock:
            if self._loop is None and not self._closed:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop,), name="tokenwatt-control", daemon=True
                )
                self._thread.start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


class ControlClient:
    """The ``Client`` of a running engine. Its coroutines may be awaited on any event loop.

    Each request is bounded by ``timeout_s`` seconds. ``model`` is filled in by the identity check.
    """

    def __init__(
        self, loop: PrivateLoop, access: Access, scrub: Callable[[str], str], timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        self.access = access
        self.model = ""
        self.http = Http(access, scrub)
        self._loop = loop
        self._timeout_s = timeout_s

    async def complete(self, prompt: str | Sequence[int], *, max_tokens: int = 16, **sampling: Any) -> Reply:
        """``/v1/completions`` without streaming; ``prompt`` is text or token ids. Raises ``EngineError``."""
        given = prompt if isinstance(prompt, str) else list(prompt)
        body = {"model": self.model, "prompt": given, "max_tokens": max_tokens, **sampling}
        return await self._on_our_loop(self._ask("/completions", body))

    async def chat(self, messages: Sequence[Mapping[str, Any]], *, max_tokens: int = 16, **sampling: Any) -> Reply:
        """``/v1/chat/completions`` without streaming. Raises ``EngineError``."""
        body = {"model": self.model, "messages": list(messages), "max_tokens": max_tokens, **sampling}
        return await self._on_our_loop(self._ask("/chat/completions", body))

    async def tokenize(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        """Ids of a text by ``/tokenize``; ``special``: with those that the server adds. Raises ``EngineError``."""
        return await self._on_our_loop(self._tokenize(text, special))

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON that the server answers at ``path`` below its root; the model is added. Raises ``EngineError``."""
        url = self.access.root + path
        return await self._on_our_loop(self.http.ask(url, {"model": self.model, **body}, self._timeout_s))

    def close(self) -> None:
        """Close the connections and end the loop; safe to call twice."""
        try:
            self._loop.call(self.http.close())
        except EngineError:  # closed before
            return
        self._loop.close()

    def _on_our_loop(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        return asyncio.wrap_future(self._loop.submit(work))

    async def _tokenize(self, text: str, special: bool) -> tuple[int, ...]:
        url = f"{self.access.root}/tokenize"
        told = await self.http.ask(
            url, {"model": self.model, "prompt": text, "add_special_tokens": special}, self._timeout_s
        )
        tokens = told.get("tokens") if isinstance(told, dict) else None
        if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
            raise HttpError("engine_http_error", f"POST {url}: the answer has no token ids", status=200)
        return tuple(tokens)

    async def _ask(self, path: str, body: Mapping[str, Any]) -> Reply:
        url = self.access.endpoint + path
        return parse_reply(await self.http.ask(url, body, self._timeout_s), url)


def parse_reply(told: Any, url: str) -> Reply:
    """A completion or chat answer as a ``Reply``. Raises ``HttpError`` when it is neither."""
    try:
        choice = told["choices"][0]
        message = choice.get("message") or {}
        usage = told.get("usage") or {}
        ids = choice.get("token_ids")
        return Reply(
            text=choice.get("text") or message.get("content") or "",
            finish_reason=choice.get("finish_reason"),
            prompt_tokens=usage.get("prompt_tokens"),
            output_tokens=usage.get("completion_tokens"),
            token_ids=None if ids is None else tuple(ids),
            raw=told,
        )
    except (KeyError, IndexError, TypeError, AttributeError):
        raise HttpError("engine_http_error", f"POST {url}: {_complaint(told)}", status=200) from None


def _complaint(told: Any) -> str:
    """What an answer without a completion says: some servers send their errors with status 200."""
    error = told.get("error") if isinstance(told, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return f"answered with an error: {' '.join(str(message).split())}" if message else "the answer is not a completion"

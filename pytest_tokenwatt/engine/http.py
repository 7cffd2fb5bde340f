"""One HTTP request at a time to an engine, with every way it can fail turned into one readable line."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp

from pytest_tokenwatt.engine.access import Access
from pytest_tokenwatt.engine.sse import EventReader
from pytest_tokenwatt.errors import EngineError

LARGEST_BODY = 256 * 1024 * 1024
_TOO_MANY_REQUESTS = 429
_TRIES = 5
_LONGEST_WAIT_S = 30.0
_QUOTED = 300
# uvicorn drops connections that were idle for 5 s; one that is reused at that moment fails.
_KEEP_ALIVE_S = 2.0


class HttpError(EngineError):
    """The engine answered with an error; ``status`` is the HTTP status (``None``: no HTTP answer at all)."""

    def __init__(self, reason: str, what: str, *, status: int | None, remedy: str | None = None) -> None:
        self.status = status
        super().__init__(reason, what, remedy=remedy)


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer: status and body as text."""

    status: int
    text: str

    def json(self) -> Any:
        """The body as JSON, ``None`` when it is none."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None


class Http:
    """Requests with an engine's credentials; to be used on one event loop only.

    Proxy variables of the environment are not followed: they would divert loopback traffic. Redirects are not
    followed: they would carry the credentials elsewhere.
    """

    def __init__(self, access: Access, scrub: Callable[[str], str]) -> None:
        self._access = access
        self._scrub = scrub
        self._tls = access.tls()
        self._session: aiohttp.ClientSession | None = None

    async def get(self, url: str, timeout_s: float) -> Answer:
        """GET, whatever the status. Raises ``HttpError`` when there is no answer."""
        return await self._request("GET", url, None, timeout_s)

    async def post(self, url: str, body: Mapping[str, Any], timeout_s: float) -> Answer:
        """POST of JSON, whatever the status; waits and tries again on 429. Raises ``HttpError`` without an answer."""
        return await self._request("POST", url, body, timeout_s)

    async def ask(self, url: str, body: Mapping[str, Any], timeout_s: float) -> Any:
        """POST of JSON that must be answered with JSON. Raises ``HttpError`` for anything else."""
        answer = await self.post(url, body, timeout_s)
        return self.expect_json("POST", url, answer)

    def expect_json(self, method: str, url: str, answer: Answer) -> Any:
        """The JSON of a good answer. Raises ``HttpError`` with the server's message for a bad one."""
        if answer.status != 200:
            raise self._refusal(method, url, answer)
        told = answer.json()
        if told is None:
            raise HttpError("engine_http_error", f"{method} {url}: the answer is not JSON", status=answer.status)
        return told

    async def events(self, url: str, body: Mapping[str, Any], timeout_s: float) -> AsyncGenerator[str, None]:
        """The data of each event of a stream. Raises ``HttpError`` for an HTTP error or a broken connection."""
        reader = EventReader()
        try:
            async with asyncio.timeout(timeout_s), self._open("POST", url, body, timeout_s) as response:
                if response.status != 200:
                    raise self._refusal("POST", url, Answer(response.status, await _body(response)))
                async for chunk in response.content.iter_any():
                    for event in reader.feed(chunk):
                        yield event
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise self._failure("POST", url, error, timeout_s) from None

    def said(self, answer: Answer) -> str:
        """What an error answer says, on one line and without secrets."""
        return self._scrub(server_message(answer))

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _request(self, method: str, url: str, body: Mapping[str, Any] | None, timeout_s: float) -> Answer:
        for attempt in range(_TRIES):
            try:
                async with asyncio.timeout(timeout_s), self._open(method, url, body, timeout_s) as response:
                    text = await _body(response)
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                raise self._failure(method, url, error, timeout_s) from None
            if response.status != _TOO_MANY_REQUESTS or attempt == _TRIES - 1:
                break
            await asyncio.sleep(_retry_after_s(response.headers.get("Retry-After"), attempt))
        return Answer(response.status, text)

    def _open(
        self, method: str, url: str, body: Mapping[str, Any] | None, timeout_s: float
    ) -> aiohttp.client._RequestContextManager:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(keepalive_timeout=_KEEP_ALIVE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                headers={"User-Agent": "pytest-tokenwatt"},
            )
        return self._session.request(
            method,
            url,
            json=body,
            headers=self._access.headers_for(url),
            ssl=self._tls if self._tls is not None else True,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=timeout_s),
        )

    def _refusal(self, method: str, url: str, answer: Answer) -> HttpError:
        said = self.said(answer)
        remedy = _REMEDIES.get(answer.status)
        if 300 <= answer.status < 400:
            remedy = "set engine.endpoint to where it redirects to; redirects are not followed with credentials"
        return HttpError(
            "engine_http_error", f"{method} {url} answered {answer.status}: {said}", status=answer.status, remedy=remedy
        )

    def _failure(self, method: str, url: str, error: Exception, timeout_s: float) -> HttpError:
        if isinstance(error, TimeoutError):
            return HttpError("engine_unreachable", f"{method} {url}: no answer within {timeout_s:g} s", status=None)
        remedy = None
        if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
            remedy = "name the server's CA in engine.ca_file, or set engine.verify_tls: false"
        said = self._scrub(_cause(error))
        return HttpError("engine_unreachable", f"{method} {url}: {said}", status=None, remedy=remedy)


_REMEDIES = {
    401: "name the variable with the engine's key in engine.api_key_env",
    403: "name the variable with the engine's key in engine.api_key_env",
    404: "check engine.endpoint (it ends in /v1) and engine.model",
    429: "the engine turns requests away: raise its limit, or stop what else uses it",
}


def server_message(answer: Answer) -> str:
    """What an error answer says, on one line: OpenAI's form, FastAPI's ``detail``, else the start of the body."""
    told = answer.json()
    text = answer.text
    if isinstance(told, dict):
        error = told.get("error", told)
        found = error.get("message", told.get("detail")) if isinstance(error, dict) else error
        text = str(found) if found else answer.text
    line = " ".join(text.split())
    return line[:_QUOTED] if line else "(no message)"


async def _body(response: aiohttp.ClientResponse) -> str:
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > LARGEST_BODY:
            raise ValueError(f"the answer is larger than {LARGEST_BODY >> 20} MiB")
        chunks.append(chunk)
    return b"".join(chunks).decode("utf-8", errors="replace")


def _retry_after_s(header: str | None, attempt: int) -> float:
    """Seconds to wait by RFC 9110 (a number or a date), bounded; without a usable header 1, 2, 4, … seconds."""
    wait_s = float(2**attempt)
    if header is not None:
        try:
            wait_s = (
                float(header) if header.strip().isdigit() else parsedate_to_datetime(header).timestamp() - time.time()
            )
        except (ValueError, OverflowError):
            pass
    return min(max(wait_s, 0.0), _LONGEST_WAIT_S)


def _cause(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(
        error, aiohttp.ClientConnectorCertificateError
    ):
        # Resolver errors have negative numbers and a text of their own; the loop's text for the others says less.
        number = error.os_error.errno or 0
        return os.strerror(number) if number > 0 else error.os_error.strerror or "cannot connect"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed the connection without an answer"
    return " ".join(str(error).split()) or type(error).__name__

"""Asks BMCs and exporters over HTTP: bounded in time and size, with every way it can fail as one readable line."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import weakref
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.certificates import tls_failure
from pytest_tokenwatt.power.watts import NO_SOURCE, READ_FAILED
from pytest_tokenwatt.spec.serving import PowerSource

TIMEOUT_S = 4.0
"""Longest time for one request, its body included."""
LARGEST_BODY = 4 << 20
_CONNECTIONS = 4
# What a transport still has to do in the loop after it was told to end.
_FAREWELL_STEPS = 4
_T = TypeVar("_T")


class HttpFailure(PowerError):
    """A request gave nothing to read; ``status`` is the HTTP status (``None``: no HTTP answer at all)."""

    def __init__(self, what: str, *, remedy: str | None = None, status: int | None = None) -> None:
        self.status = status
        super().__init__(READ_FAILED, what, remedy=remedy)


@dataclass(frozen=True, slots=True)
class Access:
    """How a power source is spoken to; ``headers`` hold the credentials of HTTP Basic authentication, if any.

    Every request carries them: a BMC has few sessions, and one that is not closed is lost until it times out.
    """

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | bool = True
    notes: tuple[str, ...] = ()


def build_access(settings: PowerSource, environ: Mapping[str, str], spec_dir: Path) -> Access:
    """The access that a source of the spec describes.

    Raises ``PowerError`` (``no_power_source``) for an unset password variable or an unusable CA file.
    """
    headers = {}
    if settings.username:
        pair = f"{settings.username}:{password(settings, environ)}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return Access(headers, _tls(settings, spec_dir), tuple(_cautions(settings)))


def password(settings: PowerSource, environ: Mapping[str, str]) -> str:
    """The password, from the variable that the spec names; empty when it names none.

    Raises ``PowerError`` (``no_power_source``) for a variable that is not set.
    """
    if settings.password_env is None:
        return ""
    secret = environ.get(settings.password_env, "").strip()
    if not secret:
        what = f"power.password_env: the variable {settings.password_env} is not set"
        raise PowerError(NO_SOURCE, what, remedy=f"export {settings.password_env}")
    return secret


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that knows its connections.

    A TLS connection that is given up says goodbye and waits for an answer, which a server that hangs never sends.
    """

    def __init__(self) -> None:
        super().__init__()
        self._opened: weakref.WeakSet[asyncio.BaseTransport] = weakref.WeakSet()

    async def create_connection(self, *args: Any, **options: Any) -> Any:
        """As every loop's, and remembered."""
        transport, protocol = await super().create_connection(*args, **options)
        self._opened.add(transport)
        return transport, protocol

    async def hang_up(self) -> None:
        """End all connections without a goodbye."""
        for transport in list(self._opened):
            if isinstance(transport, asyncio.Transport):
                transport.abort()
        for _ in range(_FAREWELL_STEPS):
            await asyncio.sleep(0)


class HttpReader:
    """GETs on an event loop of its own, in the one thread that uses it.

    Redirects are not followed, since they would carry the credentials elsewhere; neither are the proxy variables of
    the environment. The server's certificate is verified before a byte of the request is sent.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._loop = _Loop()
        self._session: aiohttp.ClientSession | None = None

    def get(self, url: str, timeout_s: float = TIMEOUT_S) -> str:
        """The body of a good answer. Raises ``HttpFailure`` for anything else."""
        return self._run(self._get(url, timeout_s))

    def get_all(self, urls: Sequence[str], timeout_s: float = TIMEOUT_S) -> list[str | HttpFailure]:
        """The bodies or failures of several URLs, asked at the same time, in their order."""
        return self._run(self._get_all(urls, timeout_s))

    def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            self._run(self._session.close())
            self._session = None
        self._run(self._loop.hang_up())
        # Not asyncio's own shutdown: that waits for a name server without an end.
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return self._loop.run_until_complete(work)

    async def _get_all(self, urls: Sequence[str], timeout_s: float) -> list[str | HttpFailure]:
        async def settled(url: str) -> str | HttpFailure:
            try:
                return await self._get(url, timeout_s)
            except HttpFailure as failure:
                return failure

        return list(await asyncio.gather(*(settled(url) for url in urls)))

    async def _get(self, url: str, timeout_s: float) -> str:
        try:
            async with asyncio.timeout(timeout_s), self._open().get(url, allow_redirects=False) as response:
                if response.status != 200:
                    raise _refusal(url, response)
                return await _body(url, response)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise _failure(url, error, timeout_s) from None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self._access.tls, limit_per_host=_CONNECTIONS),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                headers={"User-Agent": "pytest-tokenwatt", **self._access.headers},
                timeout=aiohttp.ClientTimeout(total=None),
            )
        return self._session


def parse_object(url: str, text: str) -> dict[str, Any]:
    """The JSON object in a body. Raises ``HttpFailure`` when it is none."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        raise HttpFailure(f"GET {url}: the answer is not JSON", remedy="check power.url") from None
    if not isinstance(told, dict):
        raise HttpFailure(f"GET {url}: the answer is JSON, but not an object", remedy="check power.url")
    return told


def _tls(settings: PowerSource, spec_dir: Path) -> ssl.SSLContext | bool:
    if not settings.verify_tls:
        return False
    if settings.ca_file is None:
        return True
    path = spec_dir / Path(settings.ca_file).expanduser()
    try:
        return ssl.create_default_context(cafile=str(path))
    except OSError as error:
        what = f"power.ca_file {path} cannot be used: {error.strerror or error}"
        raise PowerError(NO_SOURCE, what, remedy="give a PEM file of CA certificates") from None


def _cautions(settings: PowerSource) -> list[str]:
    cautions = []
    if not settings.verify_tls:
        cautions.append("the certificate was not verified (verify_tls: false)")
    if settings.username and (settings.url or "").startswith("http:"):
        cautions.append("the password crossed the network unencrypted (http)")
    return cautions


async def _body(url: str, response: aiohttp.ClientResponse) -> str:
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > LARGEST_BODY:
            raise HttpFailure(f"GET {url}: the answer is larger than {LARGEST_BODY >> 20} MiB", remedy="check the URL")
        chunks.append(chunk)
    return b"".join(chunks).decode("utf-8", errors="replace")


_REMEDIES = {
    401: ("the credentials were refused", "check power.username and the variable that power.password_env names"),
    403: ("this user may not read it", "give power.username the right to log in and read"),
    404: ("there is no such resource", "check power.url"),
    429: ("too many requests", "lower power.sampling_hz"),
}


def _refusal(url: str, response: aiohttp.ClientResponse) -> HttpFailure:
    status = response.status
    if 300 <= status < 400:
        # Where to is not quoted: a redirect may carry a token.
        what = f"GET {url} answered {status}, a redirect, which is not followed with credentials"
        return HttpFailure(what, remedy="set power.url to the address that it redirects to", status=status)
    meaning, remedy = _REMEDIES.get(status, ("no answer that can be read", "check power.url"))
    if status >= 500:
        meaning, remedy = "it cannot answer now", "wait until it is ready, or restart it"
    return HttpFailure(f"GET {url} answered {status}: {meaning}", remedy=remedy, status=status)


def _failure(url: str, error: Exception, timeout_s: float) -> HttpFailure:
    if isinstance(error, TimeoutError):
        what = f"GET {url}: no complete answer within {timeout_s:.1f} s"
        return HttpFailure(what, remedy="check the address and its network, or restart the BMC or exporter")
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        what, remedy = tls_failure(error)
        return HttpFailure(f"GET {url}: {what}", remedy=remedy)
    return HttpFailure(f"GET {url}: {_cause(error)}", remedy="check that the address is right and can be reached")


def _cause(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        # Resolver errors have negative numbers and a text of their own; the loop's text for the others says less.
        number = error.os_error.errno or 0
        return os.strerror(number) if number > 0 else error.os_error.strerror or "cannot connect"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the connection was closed without an answer"
    return type(error).__name__

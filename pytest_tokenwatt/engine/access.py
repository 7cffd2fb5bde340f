"""How an engine is reached: its endpoint, the credentials and TLS settings that go with it."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.spec.model import Engine

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Access:
    """An endpoint (``…/v1``, no trailing slash) and what a request to it must carry. ``headers`` may hold secrets."""

    endpoint: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: str | None = None
    verify_tls: bool = True

    @property
    def root(self) -> str:
        """The endpoint without ``/v1``: where ``/metrics``, ``/version`` and ``/health`` are."""
        return self.endpoint.removesuffix("/v1")

    @property
    def host(self) -> str:
        """Host name or address."""
        return urlsplit(self.endpoint).hostname or ""

    @property
    def port(self) -> int:
        """TCP port, the scheme's default when the URL names none."""
        parts = urlsplit(self.endpoint)
        return parts.port or _PORTS.get(parts.scheme, 80)

    def headers_for(self, url: str) -> Mapping[str, str]:
        """The headers for a URL: none with credentials for another origin than the endpoint's."""
        return self.headers if _origin(url) == _origin(self.endpoint) else {}

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context, ``None`` where the default one will do or none is needed.

        Raises ``EngineError`` (``bad_tls``) for an unusable CA file.
        """
        if self.ca_file is None and self.verify_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise EngineError(
                "bad_tls", f"engine.ca_file {self.ca_file} cannot be used: {error}", remedy="give a PEM file of CAs"
            ) from None
        if not self.verify_tls:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def normalise(url: str) -> str:
    """An endpoint with ``/v1`` at its end when it has no path of its own, and without a trailing slash."""
    bare = url.strip().rstrip("/")
    return bare if urlsplit(bare).path else f"{bare}/v1"


def build_access(engine: Engine, endpoint: str, environ: Mapping[str, str], spec_dir: Path) -> Access:
    """The access that a spec's engine block describes.

    Raises ``EngineError`` (``missing_secret``) when a variable that it names is not set.
    """
    headers = {
        name: _secret(environ, variable, f"engine.headers_env.{name}") for name, variable in engine.headers_env.items()
    }
    if engine.api_key_env:
        headers["Authorization"] = f"Bearer {_secret(environ, engine.api_key_env, 'engine.api_key_env')}"
    ca_file = str(spec_dir / Path(engine.ca_file).expanduser()) if engine.ca_file else None
    return Access(normalise(endpoint), headers, ca_file, engine.verify_tls)


def secret_variables(engine: Engine) -> tuple[str, ...]:
    """Names of the variables that hold this engine's secrets."""
    key = (engine.api_key_env,) if engine.api_key_env else ()
    return (*key, *engine.headers_env.values())


def _secret(environ: Mapping[str, str], variable: str, where: str) -> str:
    value = environ.get(variable, "").strip()
    if not value:
        raise EngineError("missing_secret", f"{where}: the variable {variable} is not set", remedy=f"export {variable}")
    if not value.isprintable() or not value.isascii():
        raise EngineError("missing_secret", f"{where}: {variable} holds characters that no HTTP header can carry")
    return value


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)

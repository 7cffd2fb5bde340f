"""Where an endpoint is: its URL taken apart, its IP addresses, its TLS context."""

from __future__ import annotations

import re
import socket
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from pytest_tokenwatt.errors import LoadError
from pytest_tokenwatt.records import Target


@dataclass(frozen=True, slots=True)
class Address:
    """An endpoint such as ``http://127.0.0.1:8000/v1``, taken apart; ``path`` has no trailing slash."""

    scheme: str
    host: str
    port: int
    path: str
    authority: str

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.scheme == "https"


def parse_endpoint(endpoint: str) -> Address:
    """Take an endpoint apart. Raises ``LoadError`` (``bad_endpoint``) when it is not an http or https URL."""
    try:
        parts = urlsplit(endpoint)
        port = parts.port
    except ValueError as error:
        raise _bad(endpoint, str(error)) from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _bad(endpoint, "not an http or https URL")
    authority = parts.netloc.rpartition("@")[2]
    default = 443 if parts.scheme == "https" else 80
    return Address(parts.scheme, parts.hostname, port or default, parts.path.rstrip("/"), authority)


def _bad(endpoint: str, why: str) -> LoadError:
    shown = re.sub(r"//[^/@]*@", "//", endpoint)  # a password in it stays unsaid
    return LoadError("bad_endpoint", f"endpoint {shown!r}: {why}", remedy="give one such as http://127.0.0.1:8000/v1")


def resolve(address: Address) -> tuple[str, ...]:
    """The host's IP addresses in the system's order. Raises ``LoadError`` (``bad_endpoint``) when there is none."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise _bad(address.authority, f"the host is unknown ({error})") from error
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def tls_context(target: Target, address: Address) -> ssl.SSLContext | None:
    """The TLS context of the target; ``None`` for plain http. Raises ``LoadError`` (``bad_ca_file``)."""
    if not address.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=target.ca_file)
    except OSError as error:
        raise LoadError(
            "bad_ca_file", f"engine.ca_file {target.ca_file}: {error}", remedy="give a PEM file of certificates"
        ) from error
    if not target.verify_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context

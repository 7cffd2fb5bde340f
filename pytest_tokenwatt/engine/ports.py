"""A TCP port claimed for one run: two runs on one machine never take the same one."""

from __future__ import annotations

import errno
import random
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_tokenwatt.engine import lockfile
from pytest_tokenwatt.errors import EngineError

_LOW, _HIGH = 20_000, 32_000
_TRIES = 200


@dataclass(slots=True)
class PortClaim:
    """A port that is ours until ``release`` and until the guard that inherits ``lock_fd`` has ended."""

    port: int
    lock_path: Path
    lock_fd: int

    def release(self) -> None:
        """Give the port back; safe to call twice."""
        if self.lock_fd < 0:
            return
        lockfile.drop(self.lock_path, self.lock_fd)
        self.lock_fd = -1


def claim_free_port(folder: Path | None = None) -> PortClaim:
    """A free port on the loopback interface with its lock file in ``folder`` (default: the temporary directory).

    Ports below the usual ephemeral range come first: no outgoing connection takes them while the engine loads.
    Raises ``EngineError`` (``no_free_port``) when none is to be had.
    """
    place = folder or Path(tempfile.gettempdir())
    for port in _candidates():
        claim = claim_port(port, place)
        if claim is None:
            continue
        if is_free(port):
            return claim
        claim.release()
    raise EngineError("no_free_port", "no free TCP port found for the engine", remedy="stop servers that are left over")


def claim_port(port: int, folder: Path | None = None) -> PortClaim | None:
    """The lock of one port, or ``None`` when another run holds it. Says nothing about listeners."""
    path = (folder or Path(tempfile.gettempdir())) / f"tokenwatt-port-{port}.lock"
    descriptor = lockfile.take(path)
    return None if descriptor is None else PortClaim(port, path, descriptor)


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of any interface now."""
    return all(_can_bind(family, address, port) for family, address in _wildcards())


def _wildcards() -> Iterator[tuple[socket.AddressFamily, str]]:
    yield socket.AF_INET, "127.0.0.1"
    yield socket.AF_INET, "0.0.0.0"  # noqa: S104 - a trial bind that never listens
    if socket.has_ipv6:
        yield socket.AF_INET6, "::"


def _can_bind(family: socket.AddressFamily, address: str, port: int) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.bind((address, port))
    except OSError as error:
        return error.errno not in (errno.EADDRINUSE, errno.EACCES)
    return True


def _candidates() -> Iterator[int]:
    yield from random.SystemRandom().sample(range(_LOW, _HIGH), _TRIES)
    for _ in range(_TRIES):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
            trial.bind(("127.0.0.1", 0))
            yield int(trial.getsockname()[1])

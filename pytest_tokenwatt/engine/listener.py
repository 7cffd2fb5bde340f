"""Who listens on a TCP port of this machine: ours, or somebody else."""

from __future__ import annotations

import ipaddress
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pytest_tokenwatt.engine import tree

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENING = "0A"


class Owner(StrEnum):
    """Whose the listener is."""

    OURS = "ours"
    FOREIGN = "foreign"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class _Listener:
    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    port: int
    inode: int


def owner_of(port: int, guard_pid: int) -> Owner:
    """Whether all that listens for loopback connections on ``port`` belongs to the tree below ``guard_pid``.

    Unknown where ``/proc`` cannot tell: not on Linux, no listener in this network namespace, or a process of the
    tree whose descriptors this user may not read.
    """
    inodes = {found.inode for found in _listeners() if found.port == port and _takes_loopback(found)}
    held: set[int] = set()
    readable = True
    for pid in tree.descendants(guard_pid):
        sockets = tree.sockets_of(pid)
        readable = readable and sockets is not None
        held |= sockets or set()
    if not inodes:
        return Owner.UNKNOWN
    if inodes <= held:
        return Owner.OURS
    return Owner.FOREIGN if readable else Owner.UNKNOWN


def holders(port: int) -> set[int]:
    """The processes that listen for loopback connections on ``port``, as far as this user may look into them."""
    inodes = {found.inode for found in _listeners() if found.port == port and _takes_loopback(found)}
    return {pid for pid in tree.processes() if inodes & (tree.sockets_of(pid) or set())} if inodes else set()


def answers(host: str, port: int, timeout_s: float = 1.0) -> bool | None:
    """Whether a TCP connection is taken: ``False`` when it is refused, ``None`` when that cannot be told in time."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s):
            return True
    except ConnectionRefusedError:
        return False
    except OSError:
        return None


def _takes_loopback(listener: _Listener) -> bool:
    address = listener.address
    plain = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped else address
    return plain.is_unspecified or plain.is_loopback


def _listeners() -> Iterator[_Listener]:
    for table in _TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTENING:
                address, _, port = fields[1].partition(":")
                yield _Listener(_address(address), int(port, 16), int(fields[9]))


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The kernel prints each 32-bit word in the machine's own byte order."""
    raw = bytes.fromhex(text)
    words = [raw[place : place + 4] for place in range(0, len(raw), 4)]
    return ipaddress.ip_address(b"".join(word[::-1] if sys.byteorder == "little" else word for word in words))

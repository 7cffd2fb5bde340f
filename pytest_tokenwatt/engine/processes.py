"""The processes of an engine, as far as this machine can see them, and what their environment says."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from pytest_tokenwatt.engine import tree
from pytest_tokenwatt.engine.listener import holders


def below_guard(guard_pid: int) -> frozenset[int] | None:
    """The engine that a guard started; ``None`` where processes cannot be listed."""
    return frozenset(tree.descendants(guard_pid)) or None


def behind_port(host: str, port: int) -> frozenset[int] | None:
    """The processes that listen on a port of this machine, and all that descends from them.

    ``None`` when the host is another machine, or when the listener is another user's or in another PID namespace (a
    container): then nothing is known of it.
    """
    if not _is_here(host):
        return None
    found = holders(port)
    return frozenset(found.union(*(tree.descendants(pid) for pid in found))) if found else None


def environment_of(pids: Iterable[int], names: Iterable[str]) -> dict[str, str]:
    """The variables ``names`` as the processes started with them; of several values that of the oldest process.

    A worker often has a variable narrowed by its parent: the oldest has the one that the user gave.
    """
    by_age = sorted(tree.incarnations(pids), key=lambda each: each[1])
    environments = [tree.variables_of(pid) for pid, _ in by_age]
    return {name: told[0] for name in names if (told := [each[name] for each in environments if name in each])}


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

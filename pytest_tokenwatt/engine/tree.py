"""Process trees on Linux, read from ``/proc``: who descends from whom, who carries our mark, who holds a socket.

Standard library only: the guard process runs this module too. Elsewhere than on Linux the answers are empty, and the
guard falls back to process groups.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path

MARK = "TOKENWATT_GUARD"
"""Environment variable that every process started by a guard carries; its value is unique to the guard."""

_PROC = Path("/proc")


def descendants(root: int) -> set[int]:
    """The living processes below ``root``, itself excluded; zombies do not count."""
    children: dict[int, list[int]] = {}
    for pid in processes():
        status = _parent_and_state(pid)
        if status is not None and status[1] not in "ZX":
            children.setdefault(status[0], []).append(pid)
    found: set[int] = set()
    todo = [root]
    while todo:
        fresh = [pid for pid in children.get(todo.pop(), ()) if pid not in found]
        found.update(fresh)
        todo.extend(fresh)
    return found


def marked(mark: str) -> set[int]:
    """The living processes whose environment at their start held ``MARK=mark``; finds those that left the tree.

    The environments of other users' processes cannot be read; those are not found.
    """
    needle = f"{MARK}={mark}".encode()
    return {pid for pid in processes() if needle in _environment(pid) and is_alive(pid)}


def incarnations(pids: Iterable[int]) -> frozenset[tuple[int, int]]:
    """(pid, start time in clock ticks since boot) of each process: what tells it from a later one of the same pid."""
    return frozenset((pid, started) for pid in pids if (started := _start_time(pid)) is not None)


def is_alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    if _PROC.is_dir():
        status = _parent_and_state(pid)
        return status is not None and status[1] not in "ZX"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def send(pids: Iterable[int], signum: signal.Signals) -> None:
    """Signal each process; one that is gone, or that is not ours to signal, is passed over."""
    for pid in pids:
        try:
            os.kill(pid, signum)
        except (ProcessLookupError, PermissionError):
            continue


def sockets_of(pid: int) -> set[int] | None:
    """Inodes of the sockets that a process holds; ``None`` when its descriptors cannot be read."""
    folder = _PROC / str(pid) / "fd"
    try:
        links = [_link(entry) for entry in folder.iterdir()]
    except FileNotFoundError:
        return set()
    except OSError:
        return None
    return {int(link[8:-1]) for link in links if link.startswith("socket:[")}


def variables_of(pid: int) -> dict[str, str]:
    """The environment that a process started with; empty when it cannot be read."""
    pairs = (entry.decode("utf-8", "replace").partition("=") for entry in _environment(pid) if entry)
    return {name: value for name, separator, value in pairs if separator}


def processes() -> list[int]:
    """All processes of this PID namespace."""
    try:
        return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
    except OSError:
        return []


def _parent_and_state(pid: int) -> tuple[int, str] | None:
    fields = _status(pid)
    return (int(fields[1]), fields[0].decode()) if len(fields) > 1 else None


def _start_time(pid: int) -> int | None:
    fields = _status(pid)
    return int(fields[19]) if len(fields) > 19 else None


def _status(pid: int) -> list[bytes]:
    """The fields of ``/proc/<pid>/stat`` from the third, the state, on; none when the process is gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return []
    # The name in brackets may itself hold brackets and spaces: only what follows the last one is regular.
    return text.rpartition(b")")[2].split()


def _environment(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""

"""The coordinator's worker processes: started once, watched, stopped with the coordinator."""

from __future__ import annotations

import os
import selectors
import site
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import BinaryIO

import pytest_tokenwatt
from pytest_tokenwatt.errors import LoadError
from pytest_tokenwatt.load.wire import FrameSplitter, Kind, frame, pack_target, unpack_notice
from pytest_tokenwatt.records import Target

SILENCE_S = 10.0
"""A worker that says nothing for so long while it should is taken for hung."""

GOODBYE_S = 2.0
MAX_AUTO_WORKERS = 8
READ_BYTES = 2**20
LOG_TAIL_BYTES = 4000


def auto_workers(cpus: int | None = None) -> int:
    """Workers for a machine of so many CPUs: one per four, at least one, at most eight.

    One worker holds about 50,000 chunks a second on a core of its own; engine, GPU driver threads and pytest
    need the other cores.
    """
    count = cpus if cpus is not None else (os.cpu_count() or 1)
    return max(1, min(MAX_AUTO_WORKERS, count // 4))


@dataclass(slots=True)
class Member:
    """One worker process and the coordinator's end of its link."""

    number: int
    process: subprocess.Popen[bytes]
    link: socket.socket
    frames: FrameSplitter = field(default_factory=FrameSplitter)
    heard_s: float = field(default_factory=monotonic)

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"load worker {self.number} (pid {self.process.pid})"


class Crew:
    """The workers of one target. Every failure of one stops all of them."""

    def __init__(self, target: Target, workers: int, run_log: Path) -> None:
        self._log = run_log
        self._log_start = 0
        self._members: list[Member] = []
        self._selector = selectors.DefaultSelector()
        run_log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with run_log.open("ab") as log:
                self._log_start = log.tell()
                for number in range(workers):
                    self._add(_start(number, log))
            self.send_all(frame(Kind.CONFIG, pack_target(target)))
            self.await_all(Kind.READY)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._members)

    def send(self, number: int, message: bytes) -> None:
        """Send one worker a frame."""
        member = self._members[number]
        try:
            member.link.sendall(message)
        except TimeoutError as error:
            raise self._failure("load_worker_hung", f"{member.name} does not read its orders") from error
        except OSError as error:
            raise self._dead(member) from error

    def send_all(self, message: bytes) -> None:
        """Send every worker the same frame."""
        for member in self._members:
            self.send(member.number, message)

    def poll(self, timeout_s: float) -> Iterator[tuple[int, Kind, bytes]]:
        """Frames that arrive within ``timeout_s``, with the worker's number.

        Raises ``LoadError`` (``load_worker_died``, ``load_worker_hung``, or what the worker itself reported).
        """
        for key, _ in self._selector.select(max(0.0, timeout_s)):
            member: Member = key.data
            yield from self._read(member)

    def check_silence(self) -> None:
        """Raise ``LoadError`` (``load_worker_hung``) if a worker has not been heard for ``SILENCE_S``."""
        now_s = monotonic()
        for member in self._members:
            if now_s - member.heard_s > SILENCE_S:
                raise self._failure("load_worker_hung", f"{member.name} has not reported for {SILENCE_S:g} s")

    def await_all(self, kind: Kind) -> dict[int, bytes]:
        """Wait until every worker has sent a frame of ``kind``; returns the payloads and drops other frames."""
        for member in self._members:
            member.heard_s = monotonic()
        found: dict[int, bytes] = {}
        while len(found) < len(self._members):
            for number, each, payload in self.poll(0.2):
                if each == kind:
                    found[number] = payload
            self.check_silence()
        return found

    def close(self) -> None:
        """Hang up, which ends the workers and their connections; whoever does not go is killed."""
        for member in self._members:
            member.link.close()
        for member in self._members:
            try:
                member.process.wait(GOODBYE_S)
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()
        self._members.clear()
        self._selector.close()

    def _add(self, member: Member) -> None:
        self._members.append(member)
        self._selector.register(member.link, selectors.EVENT_READ, member)

    def _read(self, member: Member) -> Iterator[tuple[int, Kind, bytes]]:
        try:
            piece = member.link.recv(READ_BYTES)
        except OSError:
            piece = b""
        if not piece:
            raise self._dead(member)
        member.heard_s = monotonic()
        for kind, payload in member.frames.feed(piece):
            if kind == Kind.FAILED:
                notice = unpack_notice(payload)
                raise self._failure(notice["reason"], f"{member.name}: {notice['text']}")
            yield member.number, kind, payload

    def _dead(self, member: Member) -> LoadError:
        try:
            code: int | None = member.process.wait(2)
        except subprocess.TimeoutExpired:
            code = None
        said = _last_line(self._log, self._log_start)
        return self._failure("load_worker_died", f"{member.name} ended with exit code {code}{said}")

    def _failure(self, reason: str, what: str) -> LoadError:
        return LoadError(reason, what, remedy=f"see {self._log}")


def _start(number: int, log: BinaryIO) -> Member:
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-P", "-m", "pytest_tokenwatt.load.worker", str(theirs.fileno())]
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=_environment(),
            )
        except BaseException:
            ours.close()
            raise
    ours.settimeout(SILENCE_S)
    return Member(number, process, ours)


def _environment() -> dict[str, str]:
    """Our environment, with this package importable also where it is not installed."""
    root = str(Path(pytest_tokenwatt.__file__).parents[1])
    if root in site.getsitepackages():
        return dict(os.environ)
    known = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*([known] if known else []), root])}


def _last_line(log: Path, start: int) -> str:
    try:
        lines = log.read_bytes()[start:][-LOG_TAIL_BYTES:].decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    said = [line.strip() for line in lines if line.strip()]
    return f" ({said[-1]})" if said else ""

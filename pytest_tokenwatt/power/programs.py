"""Runs a program for one reading: bounded in time and output, its whole process group gone afterwards."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.watts import READ_FAILED

LARGEST_OUTPUT = 64 << 10
_CHUNK = 1 << 14
# A child that keeps the pipes open after the program has ended must not hold up a reading.
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a program ended: its exit status (negative: the signal) and its output, which may hold anything."""

    status: int
    stdout: str = field(repr=False)
    stderr: str = field(repr=False)


def run_program(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout_s: float) -> Outcome:
    """Run ``argv`` in a process group of its own, without input.

    Raises ``PowerError`` (``read_failed``) when it cannot be started, takes longer than ``timeout_s`` or prints more
    than 64 KiB.
    """
    name = Path(argv[0]).name
    try:
        # Output goes through pipes and not to files, so that a program that never stops printing fills no disk.
        process = subprocess.Popen(
            list(argv),
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise _not_started(name, error) from None
    with process:
        try:
            stdout, stderr = _collect(process, name, timeout_s)
        finally:
            _kill_group(process)
    return Outcome(process.returncode, stdout, stderr)


def _collect(process: subprocess.Popen[bytes], name: str, timeout_s: float) -> tuple[str, str]:
    deadline_s = time.monotonic() + timeout_s
    pieces: dict[int, bytearray] = {}
    with selectors.DefaultSelector() as selector:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pieces[pipe.fileno()] = bytearray()
                selector.register(pipe.fileno(), selectors.EVENT_READ)
        while selector.get_map() or process.poll() is None:
            # Asked before the pipes are read, so that what the program printed last is not missed.
            ended = process.poll() is not None
            ready = selector.select(_POLL_S)
            for key, _ in ready:
                _take(selector, key.fd, pieces[key.fd], name)
            if ended and not ready:
                break
            if time.monotonic() > deadline_s:
                what = f"{name} did not end within {timeout_s:g} s and was killed"
                raise PowerError(READ_FAILED, what, remedy="run it by hand to see what it waits for")
    out, err = (bytes(piece).decode("utf-8", errors="replace") for piece in pieces.values())
    return out, err


def _take(selector: selectors.BaseSelector, descriptor: int, piece: bytearray, name: str) -> None:
    chunk = os.read(descriptor, _CHUNK)
    piece += chunk
    if not chunk:
        selector.unregister(descriptor)
    if len(piece) > LARGEST_OUTPUT:
        what = f"{name} printed more than {LARGEST_OUTPUT >> 10} KiB and was killed"
        raise PowerError(READ_FAILED, what, remedy="let it print one number, or JSON with power.field")


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    # What the program left running goes with it; a group without members is no longer there.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _not_started(name: str, error: Exception) -> PowerError:
    if isinstance(error, FileNotFoundError):
        return PowerError(READ_FAILED, f"there is no program {name}", remedy="install it, or correct its path")
    if isinstance(error, PermissionError):
        return PowerError(READ_FAILED, f"{name} may not be run", remedy="make it executable (chmod +x)")
    return PowerError(READ_FAILED, f"{name} cannot be started ({type(error).__name__})", remedy="run it by hand")

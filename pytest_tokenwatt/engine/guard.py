"""The guard: a small process between pytest and an engine that outlives pytest and leaves nothing behind.

It runs the commands of its plan, holds the engine, and waits for one byte or the end of its standard input: pytest
asks for the end, or died, even by SIGKILL. Then it ends the whole process tree and runs ``down`` and ``cleanup``.
It lives in a session of its own, so that a Ctrl-C in the terminal does not reach it. Standard library only.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from pytest_tokenwatt.engine import lockfile
from pytest_tokenwatt.engine.children import Children
from pytest_tokenwatt.engine.guard_plan import DONE, EXITED, FAILED, STARTED, Argv, GuardPlan, program

_STDIN, _STDOUT, _LOG = 0, 1, 2
_LOOK_EVERY_S = 1.0
_SWEEP_EVERY_S = 0.05
_COMMAND_GRACE_S = 2.0
_KILL_PATIENCE_S = 10.0
_FOLLOWER_GRACE_S = 1.0


class _StopAskedError(Exception):
    """The parent asked for the end, or ended, while a start command ran."""


class Guard:
    """Runs one plan from its first command to the last clean-up."""

    def __init__(self, plan: GuardPlan, *, stopping: bool = False) -> None:
        self._plan = plan
        self._stopping = stopping
        self._engine: int | None = None
        self._engine_reported = False
        self._follower: int | None = None
        self._problems: list[str] = []
        self._wake = _listen_to_signals(self._on_signal)
        self._children = Children(plan)

    def run(self) -> None:
        """Start, watch, stop; tells the parent of each step."""
        try:
            if not self._stopping and self._start():
                while not self._stopping:
                    self._tick(_LOOK_EVERY_S)
        except _StopAskedError:
            pass
        finally:
            self._stopping = True
            self._finish()

    def _start(self) -> bool:
        deadline = time.monotonic() + self._plan.start_timeout_s
        steps = [("prepare", argv) for argv in self._plan.prepare] + [("up", argv) for argv in self._plan.up]
        if not all(self._start_step(name, argv, deadline) for name, argv in steps):
            return False
        try:
            if self._plan.engine:
                self._engine = self._children.spawn(self._plan.engine)
        except OSError as error:
            self._tell(FAILED, name="command", program=program(self._plan.engine or ()), code=None, error=str(error))
            return False
        self._follow()
        self._tell(STARTED, pid=self._engine)
        return True

    def _start_step(self, name: str, argv: Argv, deadline: float) -> bool:
        code, error = self._run(name, argv, deadline)
        if code == 0:
            return True
        self._tell(FAILED, name=name, program=program(argv), code=code, error=error)
        return False

    def _follow(self) -> None:
        try:
            if self._plan.logs:
                self._follower = self._children.spawn(self._plan.logs)
        except OSError as error:
            self._problems.append(f"logs ({program(self._plan.logs or ())}) could not run: {error}")

    def _run(self, name: str, argv: Argv, deadline: float) -> tuple[int | None, str | None]:
        """Exit code and system error of a command that runs to its end; no code when time ran out."""
        _note(f"{name}: {program(argv)}")
        try:
            pid = self._children.spawn(argv)
        except OSError as error:
            return None, str(error)
        may_stop = not self._stopping
        while (code := self._children.code(pid)) is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or (may_stop and self._stopping):
                self._end_group(pid)
                if may_stop and self._stopping:
                    raise _StopAskedError
                return None, None
            self._tick(min(left_s, _LOOK_EVERY_S))
        return code, None

    def _end_group(self, pid: int) -> None:
        self._children.send_group(pid, signal.SIGTERM)
        if not self._wait(pid, _COMMAND_GRACE_S):
            self._children.send_group(pid, signal.SIGKILL)
            self._wait(pid, _COMMAND_GRACE_S)

    def _wait(self, pid: int, patience_s: float) -> bool:
        deadline = time.monotonic() + patience_s
        while self._children.code(pid) is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            self._tick(left_s)
        return True

    def _finish(self) -> None:
        patience_s = self._plan.stop_timeout_s
        if self._engine is not None:
            self._end_engine(self._engine, patience_s)
        self._undo("down", self._plan.down)
        if self._follower is not None and not self._wait(self._follower, _FOLLOWER_GRACE_S):
            self._end_group(self._follower)
        self._sweep(patience_s)
        self._undo("cleanup", self._plan.cleanup)
        left = self._sweep(min(patience_s, _COMMAND_GRACE_S))
        if self._plan.lock is not None:
            lockfile.drop(Path(self._plan.lock[0]), self._plan.lock[1])
        self._tell(DONE, problems=self._problems, left=sorted(left))

    def _end_engine(self, pid: int, patience_s: float) -> None:
        # The leader first: an engine that shuts its workers down itself writes no errors about it.
        if self._children.code(pid) is None:
            self._children.send([pid], signal.SIGTERM)
            self._wait(pid, patience_s / 2)
        self._sweep(patience_s / 2)

    def _undo(self, name: str, commands: Sequence[Argv]) -> None:
        for argv in commands:
            code, error = self._run(name, argv, time.monotonic() + self._plan.stop_timeout_s)
            if code != 0:
                self._problems.append(f"{name} ({program(argv)}) {_ending(code, error)}")

    def _sweep(self, patience_s: float) -> set[int]:
        """End all that is left, the follower of the logs excepted: SIGTERM once, SIGKILL after the patience."""
        kill_at = time.monotonic() + patience_s
        asked: set[int] = set()
        while living := self._children.living() - {self._follower_pid()}:
            now = time.monotonic()
            if now >= kill_at + _KILL_PATIENCE_S:
                return living
            if now >= kill_at:
                self._children.send(living, signal.SIGKILL)
            else:
                self._children.send(living - asked, signal.SIGTERM)
                asked |= living
            self._tick(_SWEEP_EVERY_S)
        return set()

    def _follower_pid(self) -> int:
        running = self._follower is not None and self._children.code(self._follower) is None
        return self._follower if running and self._follower is not None else -1

    def _tick(self, timeout_s: float) -> None:
        """Sleep until a child ends, the parent speaks, or the time is up; then look around."""
        sources = [self._wake] if self._stopping else [self._wake, _STDIN]
        ready, _, _ = select.select(sources, [], [], timeout_s)
        if self._wake in ready:
            os.read(self._wake, 4096)
        # A forked helper of pytest may hold our standard input open, hence the look at the parent itself.
        if _STDIN in ready or os.getppid() != self._plan.parent:
            self._stopping = True
        self._children.reap()
        code = None if self._engine is None else self._children.code(self._engine)
        if code is not None and not self._engine_reported:
            self._engine_reported = True
            self._tell(EXITED, code=code)

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        if signum in (signal.SIGTERM, signal.SIGHUP):
            self._stopping = True

    def _tell(self, event: str, **facts: Any) -> None:
        try:
            os.write(_STDOUT, json.dumps({"event": event, **facts}).encode() + b"\n")
        except OSError:
            return


def _listen_to_signals(handler: Any) -> int:
    """Handle (rather than ignore) signals, since a child would inherit an ignored one; the fd wakes ``select``."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for signum in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    return reading


def _ending(code: int | None, error: str | None) -> str:
    if error:
        return f"could not run: {error}"
    return "did not end in time" if code is None else f"ended with exit code {code}"


def _note(text: str) -> None:
    try:
        os.write(_LOG, f"[tokenwatt] {text}\n".encode(errors="replace"))
    except OSError:  # a full disk must not keep the clean-up from running
        return


def main() -> None:
    """Read the plan from standard input and run it; what follows the plan's line is the wish to stop."""
    told = b""
    while b"\n" not in told:
        chunk = os.read(_STDIN, 65536)
        if not chunk:
            return
        told += chunk
    line, _, stop = told.partition(b"\n")
    Guard(GuardPlan.from_line(line), stopping=bool(stop)).run()

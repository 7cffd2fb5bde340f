"""The parent's side of a guard process: starts it, hears what it tells, and asks it to stop."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_tokenwatt.engine import tree
from pytest_tokenwatt.engine.guard_plan import DONE, EXITED, FAILED, STARTED, GuardPlan

_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from pytest_tokenwatt.engine.guard import main; main()"
_PACKAGE_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class StopReport:
    """How an engine's end went: sentences about what failed, and pids that could not be ended."""

    problems: tuple[str, ...] = ()
    left: tuple[int, ...] = ()


class GuardProcess:
    """A running guard. Thread-safe; ``stop`` may be called any number of times."""

    def __init__(self, plan: GuardPlan, log: Path) -> None:
        self._plan = plan
        self._log = log
        self._events: dict[str, Mapping[str, Any]] = {}
        self._gone = False
        self._heard = b""
        self._lock = threading.RLock()
        self._process = _start(plan, log)

    @property
    def pid(self) -> int:
        """Pid of the guard: all processes of the engine descend from it."""
        return self._process.pid

    @property
    def started(self) -> bool:
        """Whether all start commands ended well and the engine's command, if any, runs."""
        return STARTED in self._events

    @property
    def failure(self) -> Mapping[str, Any] | None:
        """The start command that failed (``name program code error``), if one did."""
        return self._events.get(FAILED)

    @property
    def exit_code(self) -> int | None:
        """Exit code of the engine's own process (negative: the signal); ``None`` while it runs."""
        event = self._events.get(EXITED)
        return None if event is None else int(event["code"])

    @property
    def gone(self) -> bool:
        """Whether the guard itself has ended."""
        return self._gone

    def poll(self, timeout_s: float = 0.0) -> None:
        """Hear what the guard has to tell; waits at most ``timeout_s`` seconds for it."""
        with self._lock:
            stream = self._process.stdout
            if self._gone or stream is None:
                return
            with selectors.DefaultSelector() as selector:
                selector.register(stream, selectors.EVENT_READ)
                if selector.select(timeout_s):
                    self._read(stream.fileno())

    def wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Poll until ``condition`` holds, the guard is gone or the time is up; whether it holds."""
        deadline = time.monotonic() + timeout_s
        while not condition() and not self._gone:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            self.poll(left_s)
        return condition()

    def remember(self) -> None:
        """Note all processes of the engine, so that they can be found should the guard be killed."""
        found = tree.incarnations(tree.descendants(self.pid))
        self._plan = replace(self._plan, inherited=tuple(sorted(found)))

    def stop(self) -> StopReport:
        """End the engine with its whole tree and run ``down`` and ``cleanup``; returns when all that is done.

        Should the guard have been killed, a second one takes over what it left.
        """
        with self._lock:
            report = self._ask_to_stop()
            if report is not None:
                return report
            self._events[DONE] = {"problems": [], "left": []}
        return _take_over(self._plan, self._log)

    def _ask_to_stop(self) -> StopReport | None:
        self._send_stop()
        self.wait(lambda: DONE in self._events, self._plan.stop_budget_s)
        done = self._events.get(DONE)
        if done is None:
            self._process.kill()
        self._close()
        return None if done is None else StopReport(tuple(done["problems"]), tuple(done["left"]))

    def _send_stop(self) -> None:
        stream = self._process.stdin
        if stream is not None and not stream.closed:
            _write_all(stream.fileno(), b".")

    def _read(self, descriptor: int) -> None:
        try:
            chunk = os.read(descriptor, 65536)
        except BlockingIOError:
            return
        if not chunk:
            self._gone = True
        *lines, self._heard = (self._heard + chunk).split(b"\n")
        for line in lines:
            event = json.loads(line)
            self._events[event.pop("event")] = event

    def _close(self) -> None:
        self._process.wait()
        self._gone = True
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def _start(plan: GuardPlan, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOT, str(_PACKAGE_ROOT), "tokenwatt-guard"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,
            pass_fds=[plan.lock[1]] if plan.lock else [],
            bufsize=0,
        )
    if process.stdin is not None and process.stdout is not None:
        os.set_blocking(process.stdout.fileno(), False)
        _write_all(process.stdin.fileno(), plan.to_line())
    return process


def _write_all(descriptor: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except BrokenPipeError:
        return  # the guard died; the end of its status pipe says so


def _take_over(plan: GuardPlan, log: Path) -> StopReport:
    rest = replace(plan, parent=os.getpid(), engine=None, prepare=(), up=(), logs=None)
    second = GuardProcess(rest, log)
    report = second._ask_to_stop()
    said = "the guard process was killed; a second one cleaned up behind it"
    if report is None:
        return StopReport((f"{said}, and failed too: see {log}",))
    return StopReport((said, *report.problems), report.left)

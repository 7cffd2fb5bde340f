"""The guard's own processes: started in sessions of their own, reaped, and ended with all that descends from them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence

from pytest_tokenwatt.engine import tree
from pytest_tokenwatt.engine.guard_plan import GuardPlan

_SET_PARENT_DEATH_SIGNAL = 1
_SET_NAME = 15
_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform == "linux"
_LOG_FD = 2


class Children:
    """Starts processes whose output goes to this process's standard error (the engine's log file).

    On Linux this process adopts orphans (``PR_SET_CHILD_SUBREAPER``), so that ``living`` knows daemonised
    grandchildren too; elsewhere it knows the process groups that it started.
    """

    def __init__(self, plan: GuardPlan) -> None:
        self._env = {**plan.env, tree.MARK: plan.mark}
        self._plan = plan
        self._started: dict[int, subprocess.Popen[bytes]] = {}
        self._codes: dict[int, int] = {}
        self._libc = _become_subreaper()

    def spawn(self, argv: Sequence[str]) -> int:
        """The pid of a new process. Raises ``OSError`` when it cannot be executed."""
        process = subprocess.Popen(
            argv,
            cwd=self._plan.cwd,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=_LOG_FD,
            stderr=_LOG_FD,
            start_new_session=True,
            preexec_fn=self._bind_to_us if self._libc else None,
        )
        self._started[process.pid] = process
        return process.pid

    def reap(self) -> None:
        """Collect what has ended, adopted orphans included."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._started:
                code = os.waitstatus_to_exitcode(status)
                self._codes[pid] = self._started[pid].returncode = code

    def code(self, pid: int) -> int | None:
        """Exit code of a process that ``spawn`` started (negative: the signal); ``None`` while it runs."""
        return self._codes.get(pid)

    def living(self) -> set[int]:
        """Pids (off Linux: process groups) of all that is left of what was ever started here."""
        if not _LINUX:
            return {pid for pid in self._started if _group_lives(pid)}
        return tree.descendants(os.getpid()) or tree.marked(self._plan.mark) or self._inherited()

    def _inherited(self) -> set[int]:
        # A process that changed its title may have overwritten the environment that holds the mark.
        pids = [pid for pid, _ in self._plan.inherited if tree.is_alive(pid)]
        return {pid for pid, _ in tree.incarnations(pids) & frozenset(self._plan.inherited)}

    def send(self, pids: Iterable[int], signum: signal.Signals) -> None:
        """Signal members of ``living``."""
        if _LINUX:
            tree.send(pids, signum)
            return
        for pid in pids:
            self.send_group(pid, signum)

    def send_group(self, pid: int, signum: signal.Signals) -> None:
        """Signal the process group of a process that ``spawn`` started."""
        try:
            os.killpg(pid, signum)
        except (ProcessLookupError, PermissionError):
            return

    def _bind_to_us(self) -> None:
        # Should the guard itself be killed, its children get SIGTERM from the kernel.
        if self._libc:
            self._libc.prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGTERM), 0, 0, 0)


def _become_subreaper() -> ctypes.CDLL | None:
    if not _LINUX:
        return None
    try:
        libc = ctypes.CDLL(None)
        libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        libc.prctl(_SET_NAME, b"tokenwatt-guard", 0, 0, 0)
    except (OSError, AttributeError):
        return None
    return libc


def _group_lives(pgid: int) -> bool:
    try:
        os.killpg(pgid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True

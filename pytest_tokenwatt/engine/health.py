"""Is the engine still there? And the end of it: its guard, its port and its log belong together here."""

from __future__ import annotations

import time

from pytest_tokenwatt.engine.access import Access
from pytest_tokenwatt.engine.guarded import GuardProcess
from pytest_tokenwatt.engine.launch import Launch
from pytest_tokenwatt.engine.listener import answers
from pytest_tokenwatt.engine.logtail import LogTail
from pytest_tokenwatt.engine.remedies import ending, find_cause
from pytest_tokenwatt.errors import EngineError

TAIL_LINES = 12
_SHOWN_LINES = 3
_REFUSALS = 2
_CONNECT_TIMEOUT_S = 0.5
_PORT_CLOSES_WITHIN_S = 2.0
_PORT_LOOK_EVERY_S = 0.05


class Health:
    """Watches one engine of a configuration. Thread-safe, except for ``stop``."""

    def __init__(self, key: str, access: Access, launch: Launch, guard: GuardProcess | None, log: LogTail) -> None:
        self.log = log
        self.guard = guard
        self._key = key
        self._access = access
        self._launch = launch
        self._runs_engine = bool(launch.plan and launch.plan.engine)

    def death(self) -> str | None:
        """``None`` while the engine lives; else one line: how it ended, why as far as known, and its last words."""
        ended = self._ended()
        if ended is None:
            return None
        cause = find_cause(self.log.recent())
        said = f"; {cause.remedy}" if cause and cause.remedy else ""
        tail = " | ".join(self.log.lines(_SHOWN_LINES))
        log = f" (log: {self.log.path})" if self.log.path else ""
        return f"engine {self._key} {ended}{said}" + (f"; last log lines: {tail}" if tail else "") + log

    def pause(self, seconds: float) -> None:
        """Sleep, but no longer than the engine lives; its end raises ``EngineError`` (``engine_start_failed``)."""
        if self.guard is None:
            time.sleep(seconds)
            return
        self.guard.wait(lambda: self._has_news(), seconds)
        if self._has_news():
            raise self.start_failure(self._guard_ended() or "ended")

    def start_failure(self, what: str, remedy: str | None = None) -> EngineError:
        """The error of a start that failed, with the cause that the log names and its remedy."""
        cause = find_cause(self.log.recent())
        named = f": {cause.line}" if cause else ""
        return EngineError(
            "engine_start_failed",
            f"engine {self._key} {what}{named}",
            remedy=(cause.remedy if cause else None) or remedy or "see the log",
            log=self.log.path,
            tail=self.log.lines(TAIL_LINES),
        )

    def stop(self) -> tuple[str, ...]:
        """Stop what we started; sentences about what did not go well."""
        if self.guard is None:
            return ()
        report = self.guard.stop()
        problems = list(report.problems)
        if report.left:
            problems.append(f"processes {', '.join(map(str, report.left))} could not be ended")
        ours = self._launch.plan is not None and (self._launch.plan.engine or self._launch.plan.up)
        if ours and not self._port_closed():
            problems.append(f"{self._access.endpoint} still answers after the engine was stopped")
        if self._launch.claim is not None:
            self._launch.claim.release()
        return tuple(f"engine {self._key}: {problem}" for problem in problems)

    def _has_news(self) -> bool:
        guard = self.guard
        return guard is not None and (guard.exit_code is not None or guard.gone)

    def _ended(self) -> str | None:
        if self.guard is not None:
            self.guard.poll()
        if self._runs_engine:
            return self._guard_ended()
        return self._refused()

    def _guard_ended(self) -> str | None:
        guard = self.guard
        if guard is None:
            return None
        if guard.exit_code == 0:
            return "ended with exit code 0 (if its command starts a server in the background, use engine.up)"
        if guard.exit_code is not None:
            return f"died with {ending(guard.exit_code)}"
        return "was lost: its guard process was killed" if guard.gone else None

    def _refused(self) -> str | None:
        """Nothing but refused connections says that an engine which is not our process has ended."""
        for _ in range(_REFUSALS):
            if answers(self._access.host, self._access.port, _CONNECT_TIMEOUT_S) is not False:
                return None
            time.sleep(_PORT_LOOK_EVERY_S)
        return f"refuses connections at {self._access.endpoint}"

    def _port_closed(self) -> bool:
        deadline = time.monotonic() + _PORT_CLOSES_WITHIN_S
        while answers(self._access.host, self._access.port, _CONNECT_TIMEOUT_S):
            if time.monotonic() > deadline:
                return False
            time.sleep(_PORT_LOOK_EVERY_S)
        return True

"""What can go wrong, each as one line that says where, what and the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


class TokenwattError(Exception):
    """Base of every error of this package that a user may catch.

    ``str(error)`` is one line: where it happened, what happened and what to do about it.
    """

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        self.what = what
        self.where = where
        self.remedy = remedy
        super().__init__(self._line())

    def _line(self) -> str:
        line = f"{self.where}: {self.what}" if self.where else self.what
        return f"{line}; {self.remedy}" if self.remedy else line


class UsageError(TokenwattError):
    """The command line asks for something that cannot be done; pytest exits with 4."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding about an input file: where it stands (line from 1), what is wrong and the remedy."""

    path: str
    line: int | None
    key: str | None
    what: str
    remedy: str | None = None
    severity: str = "error"

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        subject = f"{self.key}: " if self.key else ""
        line = f"{place}: {subject}{self.what}"
        return f"{line}; {self.remedy}" if self.remedy else line


class SpecError(UsageError):
    """A spec (or a file that it names) is wrong; carries all problems that were found, not the first one only."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class EngineError(TokenwattError):
    """The engine could not be started, is not the one that was asked for, or died.

    ``reason`` is the code of the verdict (``engine_start_failed``, ``engine_died``, ``wrong_model`` …);
    ``log`` is the engine's log when there is one and ``tail`` its last lines; ``status`` is the HTTP status of a
    request that was answered with an error.
    """

    status: int | None = None

    def __init__(
        self, reason: str, what: str, *, remedy: str | None = None, log: Path | None = None, tail: Sequence[str] = ()
    ) -> None:
        self.reason = reason
        self.log = log
        self.tail = tuple(tail)
        super().__init__(what, remedy=remedy)

    def _line(self) -> str:
        line = super()._line()
        return f"{line} (log: {self.log})" if self.log else line


class LoadError(TokenwattError):
    """The load generator itself failed (a worker died or hung); ``reason`` is the code of the verdict."""

    def __init__(self, reason: str, what: str, *, remedy: str | None = None) -> None:
        self.reason = reason
        super().__init__(what, remedy=remedy)


class PowerError(TokenwattError):
    """A power source cannot be read; ``reason`` is the code of the verdict (``no_power_source``, ``gpu_lost`` …)."""

    def __init__(self, reason: str, what: str, *, remedy: str | None = None) -> None:
        self.reason = reason
        super().__init__(what, remedy=remedy)


class NothingRuns(TokenwattError):
    """A live engine was asked for where none is ever started, as in a replay."""


class NotMeasured(TokenwattError):
    """A figure was read that was not measured; ``reason`` says why there is none."""

    def __init__(self, figure: str, reason: str) -> None:
        self.figure = figure
        self.reason = reason
        super().__init__(f"{figure} was not measured: {reason}")


class GateFailed(AssertionError):
    """A gate did not pass; the message is the one readable line of the verdict.

    ``verdict`` is ``fail``, ``inconclusive`` or ``invalid``.
    """

    def __init__(self, message: str, verdict: str = "fail") -> None:
        self.verdict = verdict
        super().__init__(message)

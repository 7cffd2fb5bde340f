"""What a guard process is told when it starts, and the words it answers with. Standard library only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

Argv = tuple[str, ...]

STARTED = "started"
"""All start commands ended well and the engine, if there is a command for it, runs (``pid``)."""
FAILED = "failed"
"""A start command could not run (``name``, ``program``, ``code`` or ``None`` on a timeout, ``error`` of the system)."""
EXITED = "exited"
"""The engine's own process ended (``code``; negative: the signal)."""
DONE = "done"
"""Everything is stopped (``problems``: sentences, ``left``: pids that could not be ended)."""


@dataclass(frozen=True, slots=True)
class GuardPlan:
    """Everything that a guard runs, in the order prepare, up, engine and logs; later engine's end, down, cleanup.

    ``env`` is the whole environment of the commands; it travels through a pipe, never as an argument.
    ``mark`` identifies the processes of this guard; ``inherited`` are those, as ``tree.incarnations``, that an earlier
    guard left to this one. ``lock`` is the port's lock file with the descriptor that holds it and is passed on.
    Times are seconds: ``start_timeout_s`` for all start commands together, ``stop_timeout_s`` for the engine's end and
    for each of the down and cleanup commands.
    """

    parent: int
    mark: str
    cwd: str
    start_timeout_s: float
    stop_timeout_s: float
    env: Mapping[str, str] = field(repr=False)
    engine: Argv | None = None
    prepare: tuple[Argv, ...] = ()
    up: tuple[Argv, ...] = ()
    logs: Argv | None = None
    down: tuple[Argv, ...] = ()
    cleanup: tuple[Argv, ...] = ()
    inherited: tuple[tuple[int, int], ...] = ()
    lock: tuple[str, int] | None = None

    @property
    def stop_budget_s(self) -> float:
        """Seconds within which the guard is done after it was told to stop, whatever its commands do."""
        return self.stop_timeout_s * (3 + len(self.down) + len(self.cleanup)) + 60.0

    def to_line(self) -> bytes:
        """One line of JSON; undecodable bytes of the environment survive as escaped surrogates."""
        return json.dumps(asdict(self)).encode("ascii") + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> GuardPlan:
        """The plan that ``to_line`` wrote."""
        told: dict[str, Any] = json.loads(line)
        for name in ("prepare", "up", "down", "cleanup", "inherited"):
            told[name] = tuple(tuple(argv) for argv in told[name])
        for name in ("engine", "logs", "lock"):
            told[name] = None if told[name] is None else tuple(told[name])
        return cls(**told)


def program(argv: Sequence[str]) -> str:
    """What may be shown of a command: its program, not its arguments."""
    return argv[0] if argv else "(empty command)"

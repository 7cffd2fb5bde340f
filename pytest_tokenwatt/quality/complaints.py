"""Collects what is wrong with a file of lines; a file with a million flaws is told in twenty."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import TypeAlias

from pytest_tokenwatt.errors import Problem, SpecError

SHOWN = 20
"""Problems that are told one by one; the rest is a count."""


Complain: TypeAlias = Callable[[int | None, str | None, str, str], None]
"""Says that something is wrong: the line (from 1; ``None``: the file as a whole), the key, what, the remedy."""


class Complaints:
    """The problems of one file; ``add`` is a ``Complain``."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._kept: list[Problem] = []
        self.count = 0

    def add(self, line: int | None, key: str | None, what: str, remedy: str) -> None:
        """One problem; beyond the first twenty it is counted only."""
        self.count += 1
        if len(self._kept) < SHOWN:
            self._kept.append(Problem(self._path, line, key, what, remedy))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """At most twenty by line, and one that says how many more there are."""
        kept = tuple(sorted(self._kept, key=lambda problem: problem.line or 0))
        more = self.count - len(kept)
        if not more:
            return kept
        what = f"{more} more {'problem' if more == 1 else 'problems'}"
        return (*kept, Problem(self._path, None, None, what, "correct these first"))

    def raise_any(self) -> None:
        """Raises ``SpecError`` with all problems when there is one."""
        if self.count:
            raise SpecError(self.problems)


def nearest(name: str, known: tuple[str, ...]) -> str:
    """A remedy for an unknown name: the one that was meant, else all that are known."""
    near = get_close_matches(name, known, 1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"

"""``--tokenwatt-save-baseline``: what of a session was left out, and storing records behind its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from pytest_tokenwatt.campaign.saving import Course
from pytest_tokenwatt.plugin.bench import Bench
from pytest_tokenwatt.plugin.collect import GateItem
from pytest_tokenwatt.plugin.usertests import handle_of

_SELECTING = {"keyword": "-k", "markexpr": "-m", "lf": "--lf", "failedfirst": "", "deselect": "--deselect"}
"""Options by which pytest leaves items out, as they are typed."""


class Saving:
    """Counts what was left out and what failed, and stores the records that were asked for."""

    def __init__(self, config: pytest.Config, benches: tuple[Bench, ...]) -> None:
        self._config = config
        self._benches = benches
        self._deselected: list[pytest.Item] = []
        self._failed: set[str] = set()
        self._interrupted: str | None = None
        self.lines: list[str] = []

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Note what is left out."""
        self._deselected += items

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note failures; which of them are gates is known from the verdicts."""
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_keyboard_interrupt(self) -> None:
        """Note that the session was cut short."""
        self._interrupted = "by Ctrl-C"

    def store(self, bench: Bench) -> None:
        """Store what was asked of a spec, and keep a line on each for the reader. Raises ``OSError``."""
        if bench.saves:
            self.lines += bench.lab.save_baselines(bench.saves, self._course(bench))

    def _course(self, bench: Bench) -> Course:
        ours = [item for item in self._deselected if _belongs(item, bench)]
        gates = {f"{bench.nodeid}::{gate.config}::{gate.gate}" for gate in bench.lab.gates}
        return Course(
            gates=tuple(f"{gate.config}::{gate.gate}" for gate in bench.lab.gates),
            narrowed=tuple(self._narrowing(bench, left_out=bool(ours))),
            deselected=len(ours),
            failed_tests=len(self._failed - gates),
            interrupted=self._interrupted,
            quick=bench.spec.is_quick,
        )

    def _narrowing(self, bench: Bench, *, left_out: bool) -> Iterator[str]:
        """What selected; pytest's own options count only where they left something out."""
        for name, typed in _SELECTING.items() if left_out else ():
            value = self._config.getoption(name, None)
            if value and typed:
                yield f"{typed} {value}" if isinstance(value, str) else typed
        if len(bench.keys) < len(bench.phases):
            yield f"--tokenwatt-config={', '.join(bench.keys)}"
        yield from ("::".join((bench.place, *node)) for node in bench.request.nodes)


def _belongs(item: pytest.Item, bench: Bench) -> bool:
    if isinstance(item, GateItem):
        return item.bench is bench
    handle = handle_of(item)
    return handle is not None and handle.bench is bench

"""A spec as a file node, its configurations as collectors, and its gates as test items."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pytest
from _pytest._code.code import ReprFileLocation, TerminalRepr
from _pytest._io import TerminalWriter

from pytest_tokenwatt.errors import GateFailed, TokenwattError
from pytest_tokenwatt.plugin.bench import Bench
from pytest_tokenwatt.plugin.fixtures import MARK
from pytest_tokenwatt.records import GateSpec

Judge = Callable[["GateItem"], None]


class SpecFile(pytest.File):
    """The file node of a spec."""

    def __init__(self, *, bench: Bench, gates: list[GateSpec], judge: Judge, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._bench = bench
        self._gates = gates
        self._judge = judge

    def collect(self) -> Iterator[pytest.Collector]:
        """One collector for each configuration with gates."""
        for key in self._bench.keys:
            gates = [gate for gate in self._gates if gate.config == key]
            if gates:
                yield ConfigCollector.from_parent(self, name=key, bench=self._bench, gates=gates, judge=self._judge)


class ConfigCollector(pytest.Collector):
    """The gates of one configuration."""

    def __init__(self, *, bench: Bench, gates: list[GateSpec], judge: Judge, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._bench = bench
        self._gates = gates
        self._judge = judge

    def collect(self) -> Iterator[pytest.Item]:
        """One item for each gate."""
        for gate in self._gates:
            yield GateItem.of(self, self._bench, gate, self._judge)


class GateItem(pytest.Function):
    """A gate: passes when its rule holds, and otherwise fails with one line that points into the spec."""

    bench: Bench
    gate: GateSpec

    @classmethod
    def of(cls, parent: ConfigCollector, bench: Bench, gate: GateSpec, judge: Judge) -> GateItem:
        """The item of a gate; running it calls ``judge`` with it."""

        def check_gate() -> None:
            judge(item)

        item: GateItem = cls.from_parent(parent, name=gate.gate, callobj=check_gate)
        item.bench = bench
        item.gate = gate
        item.add_marker(MARK)
        if hasattr(item.config.option, "timeout_method"):
            # Measurements carry deadlines of their own; pytest-timeout would end them in the middle.
            item.add_marker(pytest.mark.timeout(0))
        return item

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """The spec file and the line that asks for the gate."""
        return self.path, (self.gate.line or 1) - 1, f"{self.gate.config} {self.gate.gate}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> str | TerminalRepr:  # type: ignore[override]
        """One line for a verdict and for what the user can mend; anything else is a defect and keeps its traceback."""
        if isinstance(excinfo.value, (GateFailed, TokenwattError, pytest.xfail.Exception)):
            return GateRepr(ReprFileLocation(self.bench.place, self.gate.line or 1, str(excinfo.value)))
        return super().repr_failure(excinfo)


class GateRepr(TerminalRepr):
    """How a failed gate is shown: place and message, no traceback."""

    def __init__(self, place: ReprFileLocation) -> None:
        self.reprcrash = place

    def toterminal(self, tw: TerminalWriter) -> None:
        """Write ``file:line: message``."""
        self.reprcrash.toterminal(tw)


def wanted_gates(bench: Bench) -> list[GateSpec]:
    """The gates that the arguments ask for. Raises ``pytest.UsageError`` for a node that the spec does not have."""
    nodes = bench.request.nodes
    missing = [node for node in nodes if not any(_matches(node, gate) for gate in bench.gates)]
    if missing:
        raise pytest.UsageError(*(_not_found(node, bench) for node in missing))
    return [gate for gate in bench.gates if not nodes or any(_matches(node, gate) for node in nodes)]


def _matches(node: tuple[str, ...], gate: GateSpec) -> bool:
    """Whether ``("tuned",)`` or ``("tuned", "slo")`` names the gate; without brackets it names all parameters."""
    return node in {(gate.config,), (gate.config, gate.gate), (gate.config, gate.kind)}


def _not_found(node: tuple[str, ...], bench: Bench) -> str:
    known = [f"{gate.config}::{gate.gate}" for gate in bench.gates]
    near = get_close_matches("::".join(node), known, 3)
    remedy = f"nearest: {', '.join(near)}" if near else f"configurations: {', '.join(bench.keys)}"
    return f"not found: {'::'.join((bench.place, *node))}; {remedy}"


class SpecCollection:
    """Collects the active specs behind everything that pytest collects by itself."""

    def __init__(self, benches: tuple[Bench, ...], judge: Judge) -> None:
        self._benches = benches
        self._judge = judge
        self._directories: dict[Path, pytest.Collector] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Remember the directory nodes: fixtures of a conftest belong to the node, and a second one lacks them."""
        if isinstance(collector, pytest.Directory):
            self._directories.setdefault(collector.path, collector)
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, session: pytest.Session, items: list[pytest.Item]
    ) -> Generator[None, None, None]:
        """Add the gates before anything selects or sorts."""
        for bench in self._benches:
            items.extend(self._collect(session, bench))
        yield

    def _collect(self, session: pytest.Session, bench: Bench) -> list[pytest.Item]:
        file = SpecFile.from_parent(
            self._directory(session, bench.request.path.parent),
            path=bench.request.path,
            nodeid=bench.nodeid,
            bench=bench,
            gates=wanted_gates(bench),
            judge=self._judge,
        )
        return list(session.genitems(file))

    def _directory(self, session: pytest.Session, path: Path) -> pytest.Collector:
        """The node of a directory, made as pytest makes it for an argument; outside of rootdir the session itself."""
        known = self._directories.get(path)
        if known is not None or not path.is_relative_to(session.config.rootpath):
            return known or session
        above = path == session.config.rootpath
        parent = session if above else self._directory(session, path.parent)
        hooks = session.gethookproxy(path)
        node: pytest.Collector | None = hooks.pytest_collect_directory(path=path, parent=parent)
        if node is None:
            return parent
        report = node.ihook.pytest_make_collect_report(collector=node)
        if report.failed:
            node.ihook.pytest_collectreport(report=report)
        return node

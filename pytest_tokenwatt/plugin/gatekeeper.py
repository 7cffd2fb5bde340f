"""Between collection and the first test: the plan, and everything that can be known to go wrong."""

from __future__ import annotations

import pytest

from pytest_tokenwatt.errors import Problem
from pytest_tokenwatt.plugin.bench import Bench
from pytest_tokenwatt.plugin.live import encoding
from pytest_tokenwatt.plugin.options import plan_only
from pytest_tokenwatt.plugin.ordering import selected
from pytest_tokenwatt.records import GateSpec


class Gatekeeper:
    """Lets a run start only when the preflight of its labs finds no error; or shows the plan and starts nothing."""

    def __init__(self, config: pytest.Config, benches: tuple[Bench, ...]) -> None:
        self._config = config
        self._benches = benches

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Show the plan and stop under ``--tokenwatt-plan``. Raises ``pytest.UsageError`` with all preflight errors."""
        option = self._config.option
        if option.collectonly or getattr(option, "setupplan", False):
            return None
        if session.testsfailed and not option.continue_on_collection_errors:
            return None
        problems: list[Problem] = []
        for bench in self._benches:
            gates, _ = selected(session.items, bench)
            if plan_only(self._config):
                self._show_plan(bench, gates)
            problems += bench.lab.preflight(gates)
        self._raise_errors(problems)
        return True if plan_only(self._config) else None

    def _show_plan(self, bench: Bench, gates: list[GateSpec]) -> None:
        writer = self._config.get_terminal_writer()
        writer.line()
        writer.write(bench.lab.plan_text(gates, writer.fullwidth, writer.hasmarkup, encoding()))

    def _raise_errors(self, problems: list[Problem]) -> None:
        terminal = self._config.pluginmanager.getplugin("terminalreporter")
        for problem in problems:
            if problem.severity != "error" and terminal is not None:
                terminal.write_line(f"tokenwatt: {problem.severity}: {problem}", yellow=True)
        errors = [str(problem) for problem in problems if problem.severity == "error"]
        if errors:
            raise pytest.UsageError(*errors)

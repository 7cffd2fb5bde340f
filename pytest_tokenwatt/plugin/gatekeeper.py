"""Between collection and the first test: the plan, and everything that can be known to go wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_tokenwatt.errors import Problem
from pytest_tokenwatt.plugin.bench import Bench
from pytest_tokenwatt.plugin.live import encoding
from pytest_tokenwatt.plugin.options import plan_only, read_settings
from pytest_tokenwatt.plugin.ordering import measured, selected
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
        estimate = 0.0
        for bench in self._benches:
            gates, also = selected(session.items, bench)[0], measured(session.items, bench)
            if plan_only(self._config):
                self._show_plan(bench, gates, also)
            problems += bench.lab.preflight(gates, also)
            estimate += bench.lab.minutes(gates, also)
        self._raise_errors([*problems, *_too_long(estimate, read_settings(self._config).max_minutes)])
        return True if plan_only(self._config) else None

    def _show_plan(self, bench: Bench, gates: list[GateSpec], also: list[str]) -> None:
        writer = self._config.get_terminal_writer()
        writer.line()
        writer.write(bench.lab.plan_text(gates, writer.fullwidth, writer.hasmarkup, encoding(), also))

    def _raise_errors(self, problems: list[Problem]) -> None:
        terminal = self._config.pluginmanager.getplugin("terminalreporter")
        for problem in problems:
            if problem.severity != "error" and terminal is not None:
                terminal.write_line(f"tokenwatt: {problem.severity}: {problem}", yellow=True)
        errors = [str(problem) for problem in problems if problem.severity == "error"]
        if errors:
            raise pytest.UsageError(*errors)


def _too_long(estimate: float, limit: float | None) -> Iterator[Problem]:
    """The problem of a run whose specs together take longer than is allowed."""
    if limit is not None and estimate > limit:
        what = f"the run takes about {max(estimate, 1):.0f} minutes where {limit:g} are allowed"
        remedy = "raise it, shorten the windows or select fewer configurations"
        yield Problem("--tokenwatt-max-minutes", None, None, what, remedy)

"""How a run ends: reports written, engines stopped, the exit code set, the tables shown."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from pytest_tokenwatt.errors import TokenwattError
from pytest_tokenwatt.plugin.bench import Bench
from pytest_tokenwatt.plugin.collect import GateItem
from pytest_tokenwatt.plugin.live import encoding
from pytest_tokenwatt.plugin.options import plan_only
from pytest_tokenwatt.plugin.saving import Saving
from pytest_tokenwatt.plugin.verdicts import FAILED, INCONCLUSIVE, INVALID, code_of, file_properties, settle

_OURS = frozenset({pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED})


def judge(item: GateItem) -> None:
    """Judge the gate of an item, measuring first if need be, and raise the verdict's outcome."""
    item.bench.ran = True
    result = item.bench.lab.judge(item.gate)
    file_properties(item, result)
    settle(result)


class Outcome:
    """The hooks from a test's report to the end of the session."""

    def __init__(self, config: pytest.Config, benches: tuple[Bench, ...], saving: Saving) -> None:
        self._config = config
        self._saving = saving
        self._benches = benches
        self._codes: dict[tuple[str, str | None], int] = {}
        self._seen: set[int] = set()
        self._complaints: list[str] = []
        self._ran_tests = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """Note that this session runs tests; ``--collect-only`` and ``--fixtures`` and their like only look."""
        self._ran_tests = not _dry_run(self._config)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Point a skipped gate at the spec, and keep the exit code that a failure asks for."""
        report = yield
        if isinstance(item, GateItem) and report.skipped and isinstance(report.longrepr, tuple):
            report.longrepr = (item.bench.place, item.gate.line or 1, report.longrepr[2])
        if call.excinfo is not None:
            self._codes[report.nodeid, report.when] = code_of(call.excinfo.value)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a failure only now: a plugin that reruns tests may have made it something else."""
        if report.failed:
            self._seen.add(self._codes.get((report.nodeid, report.when), FAILED))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A broken test file fails the run, too."""
        if report.failed:
            self._seen.add(FAILED)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Let the labs close the records of what was measured before Ctrl-C."""
        if excinfo.type is not KeyboardInterrupt:
            return
        for bench in self._benches:
            if bench.ran:
                bench.lab.interrupted()
                told = f"{bench.place}: interrupted; engines are stopped, finished measurements kept"
                alone = f"; go on with --tokenwatt-resume={bench.lab.run_dir}" if len(self._benches) == 1 else ""
                self._complaints.append(told + alone)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int | pytest.ExitCode) -> None:
        """Write the reports, stop what runs, and set the exit code."""
        for bench in self._benches:
            if bench.ran:
                self._finish(bench)
        if exitstatus in _OURS and self._ran_tests:
            session.exitstatus = self._exit_code(session, exitstatus)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the tables, and what is wrong with the run as a whole."""
        writer = self._config.get_terminal_writer()
        for bench in self._benches:
            if bench.finished is not None:
                writer.line()
                verbosity = self._config.get_verbosity()
                writer.write(bench.finished.table(writer.fullwidth, writer.hasmarkup, encoding(), verbosity))
        for line in self._saving.lines:
            terminalreporter.write_line(f"tokenwatt: {line}", yellow="is not stored" in line)
        for complaint in self._complaints:
            terminalreporter.write_line(f"tokenwatt: {complaint}", red=True)

    def pytest_unconfigure(self) -> None:
        """Leave nothing running, however the session ended."""
        for bench in self._benches:
            bench.lab.close()

    def _finish(self, bench: Bench) -> None:
        try:
            bench.lab.finish()
            self._saving.store(bench)
        except (TokenwattError, OSError) as error:
            self._complaints.append(f"{bench.place}: the report could not be written: {error}")
            self._seen.add(FAILED)
        finally:
            bench.finished = bench.lab.finished
            bench.lab.close()

    def _exit_code(self, session: pytest.Session, exitstatus: int | pytest.ExitCode) -> int | pytest.ExitCode:
        if not (session.shouldfail or session.shouldstop):
            self._note_idle()
            self._note_undecided()
        return next((code for code in (FAILED, INVALID, INCONCLUSIVE) if code in self._seen), exitstatus)

    def _note_undecided(self) -> None:
        """A replay that decides nothing fails, whatever its undecided gates do to their tests."""
        for bench in self._benches:
            if bench.ran and bench.lab.decides_nothing:
                self._complaints.append(f"{bench.place}: the replayed files decide none of its gates")
                self._seen.add(FAILED)

    def _note_idle(self) -> None:
        """Fail a run in which nothing of an active spec ran: a green light that looked at nothing."""
        for bench in self._benches:
            if not bench.ran:
                self._complaints.append(f"{bench.place}: nothing of this spec ran; check -k, -m and the arguments")
                self._seen.add(FAILED)


def _dry_run(config: pytest.Config) -> bool:
    """Whether this session only shows what it would do."""
    return any(config.getoption(name, False) for name in ("collectonly", "setuponly", "setupplan")) or plan_only(config)

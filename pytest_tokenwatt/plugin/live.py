"""Lines on the terminal while the lab works: past pytest's capture, without tearing its progress display apart."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Any

import pytest

_MID_LINE = -2
"""What pytest-xdist, too, leaves in ``currentfspath``: something stands on this line that is no test's path."""


def encoding() -> str:
    """The encoding of the terminal."""
    return getattr(sys.stdout, "encoding", None) or "utf-8"


class Live:
    """The voice of the lab. Silent under ``-q``, without a terminal reporter, and outside of a session."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._lock = Lock()
        self._interrupted_dots = False

    def line(self, text: str) -> None:
        """Show one line now. Callable from any thread."""
        terminal = self._terminal()
        if terminal is None or self._config.get_verbosity() < 0:
            return
        with self._lock, self._uncaptured():
            # Begun, not ended, by a line break: whoever writes next finds the cursor behind text and knows it.
            terminal.write(f"\n  {' '.join(text.split())}", flush=True)
            terminal.currentfspath = _MID_LINE
            self._interrupted_dots = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Bring the file name back before the next dot; the verbose display does so by itself."""
        terminal = self._terminal()
        if terminal is None or not self._interrupted_dots or terminal.showlongtestinfo:
            return
        self._interrupted_dots = False
        if terminal.showfspath:
            terminal.currentfspath = None
            terminal.write_fspath_result(report.nodeid, "")
        else:
            terminal.ensure_newline()

    def _terminal(self) -> Any:
        return self._config.pluginmanager.getplugin("terminalreporter")

    def _uncaptured(self) -> AbstractContextManager[None]:
        capture = self._config.pluginmanager.getplugin("capturemanager")
        return capture.global_and_fixture_disabled() if capture is not None else nullcontext()

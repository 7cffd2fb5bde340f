"""SIGTERM, which is how CI systems cancel a job, ends a run as Ctrl-C does: what was measured is reported."""

from __future__ import annotations

import signal
import threading
from types import FrameType


class Termination:
    """Takes SIGTERM over while a spec runs, unless somebody else has."""

    def __init__(self) -> None:
        ours = threading.current_thread() is threading.main_thread()
        self._installed = ours and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        if self._installed:
            signal.signal(signal.SIGTERM, _interrupt)

    def pytest_unconfigure(self) -> None:
        """Give the signal back."""
        if self._installed:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._installed = False


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the form of a signal handler
    raise KeyboardInterrupt

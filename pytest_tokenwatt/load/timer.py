"""A timer finer than the event loop's millisecond: a Linux timerfd, elsewhere the loop's own."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable
from time import monotonic

CLOCK_MONOTONIC = 1
TFD_NONBLOCK_CLOEXEC = 0o4000 | 0o2000000
TFD_TIMER_ABSTIME = 1


class _TimerSpec(ctypes.Structure):
    """``struct itimerspec``."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


class LoopTimer:
    """Calls back at an absolute monotonic instant, up to a millisecond late; a new ``set`` replaces the old one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None

    def set(self, at_s: float) -> None:
        """Arm for ``at_s`` (an instant in the past: as soon as possible)."""
        self.close()
        self._handle = self._loop.call_later(max(0.0, at_s - monotonic()), self._fire)

    def close(self) -> None:
        """Disarm for good."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        self._callback()


class FdTimer:
    """The same on a timerfd: woken with the kernel's precision, without spinning."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = self._libc.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._spec = _TimerSpec()
        loop.add_reader(self._fd, self._fire)

    def set(self, at_s: float) -> None:
        """Arm for ``at_s`` (an instant in the past: as soon as possible)."""
        at_ns = max(1, int(at_s * 1e9))
        self._spec.value_s, self._spec.value_ns = divmod(at_ns, 1_000_000_000)
        self._arm()

    def close(self) -> None:
        """Disarm for good."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _arm(self) -> None:
        self._libc.timerfd_settime(self._fd, TFD_TIMER_ABSTIME, ctypes.byref(self._spec), None)

    def _fire(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        self._callback()


def make_timer(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> FdTimer | LoopTimer:
    """The finest timer that this system has."""
    if sys.platform == "linux":
        try:
            return FdTimer(loop, callback)
        except (OSError, AttributeError):
            pass
    return LoopTimer(loop, callback)

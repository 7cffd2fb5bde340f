"""What is looked at now and then: whether the power limit stayed, and whether somebody else computes on the GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from pytest_tokenwatt.power.nvml_boards import compute_pids, limit_w
from pytest_tokenwatt.records.base import Reason

Pids = Callable[[], frozenset[int] | None]


class Watch:
    """Looks at the GPUs under test every ``every_s`` seconds. ``handles`` maps UUIDs to the driver's handles."""

    def __init__(
        self, nvml: ModuleType, handles: dict[str, Any], limits_w: dict[str, float | None], pids: Pids, every_s: float
    ) -> None:
        self._nvml = nvml
        self._handles = handles
        self._limits_w = limits_w
        self._pids = pids
        self._every_s = every_s
        self._due_s = time.monotonic()
        self._changed: dict[str, Reason] = {}
        self._foreign: dict[str, Reason] = {}

    def look(self) -> None:
        """Look again, if it is time."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return
        self._due_s = now_s + self._every_s
        self._look_at_limits()
        self._look_at_processes()

    def problem(self, gpu: str) -> Reason | None:
        """What to say of one GPU now: a changed limit once, a foreign process as long as it was last seen there."""
        return self._changed.pop(gpu, None) or self._foreign.get(gpu)

    def _look_at_limits(self) -> None:
        for gpu, handle in self._handles.items():
            before_w, now_w = self._limits_w[gpu], limit_w(self._nvml, handle)
            if now_w is None or now_w == before_w:
                continue
            self._limits_w[gpu] = now_w
            if before_w is not None:
                text = f"{gpu}: the enforced power limit changed from {before_w:g} W to {now_w:g} W"
                self._changed[gpu] = Reason("power_limit_changed", text)

    def _look_at_processes(self) -> None:
        engine = self._pids() or frozenset()
        seen = {gpu: compute_pids(self._nvml, handle) or frozenset() for gpu, handle in self._handles.items()}
        # Only where the driver's PIDs are ours can one be called foreign: an engine behind a container, a proxy or a
        # batch system has others than those we know, and so would be called foreign itself.
        shared = any(engine & pids for pids in seen.values())
        self._foreign = {gpu: _foreign(gpu, pids - engine) for gpu, pids in seen.items() if shared and pids - engine}


def _foreign(gpu: str, pids: Iterable[int]) -> Reason:
    listed = ", ".join(str(pid) for pid in sorted(pids))
    return Reason("foreign_process", f"{gpu}: processes that are not the engine's compute on it, too: PID {listed}")

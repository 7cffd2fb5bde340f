"""What is looked at now and then: whether the power limit stayed, and whether somebody else computes on the GPU."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from pytest_tokenwatt.power.nvml_boards import compute_pids, limit_w
from pytest_tokenwatt.records.base import Reason

Pids = Callable[[], frozenset[int] | None]


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen of one GPU, and since when it may have been so: since the look before."""

    reason: Reason
    since_s: float


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
        self._soon = threading.Event()
        self._looked_s = time.monotonic()
        self._due_s = self._looked_s
        self._limit_read_s = dict.fromkeys(handles, self._looked_s)
        self._changed: dict[str, Sight] = {}
        self._foreign: dict[str, Sight] = {}

    @property
    def looked_s(self) -> float:
        """When it looked last; at first, when it began."""
        return self._looked_s

    def look_soon(self) -> None:
        """Look at the next opportunity. From any thread."""
        self._soon.set()

    def look(self) -> None:
        """Look again, if it is time or somebody asked for it."""
        now_s = time.monotonic()
        if now_s < self._due_s and not self._soon.is_set():
            return
        self._soon.clear()
        self._due_s = now_s + self._every_s
        self._look_at_limits(now_s)
        self._look_at_processes()
        self._looked_s = now_s

    def sight(self, gpu: str) -> Sight | None:
        """What to say of one GPU now: a changed limit once, a foreign process as long as it was last seen there."""
        return self._changed.pop(gpu, None) or self._foreign.get(gpu)

    def _look_at_limits(self, now_s: float) -> None:
        for gpu, handle in self._handles.items():
            before_w, now_w = self._limits_w[gpu], limit_w(self._nvml, handle)
            if now_w is None:
                continue
            since_s, self._limit_read_s[gpu] = self._limit_read_s[gpu], now_s
            self._limits_w[gpu] = now_w
            if before_w is not None and now_w != before_w:
                text = f"{gpu}: the enforced power limit changed from {before_w:g} W to {now_w:g} W"
                self._changed[gpu] = Sight(Reason("power_limit_changed", text), since_s)

    def _look_at_processes(self) -> None:
        engine = self._pids() or frozenset()
        seen = {gpu: compute_pids(self._nvml, handle) or frozenset() for gpu, handle in self._handles.items()}
        # Only where the driver's PIDs are ours can one be called foreign: an engine behind a container, a proxy or a
        # batch system has others than those we know, and so would be called foreign itself.
        shared = any(engine & pids for pids in seen.values())
        strangers = {gpu: pids - engine for gpu, pids in seen.items() if shared and pids - engine}
        self._foreign = {gpu: Sight(_foreign(gpu, pids), self._looked_s) for gpu, pids in strangers.items()}


def _foreign(gpu: str, pids: Iterable[int]) -> Reason:
    listed = ", ".join(str(pid) for pid in sorted(pids))
    return Reason("foreign_process", f"{gpu}: processes that are not the engine's compute on it, too: PID {listed}")

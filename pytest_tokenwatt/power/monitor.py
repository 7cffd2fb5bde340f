"""All sources of a spec at once: started together, each on its own thread, and read window by window."""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Sequence
from dataclasses import replace

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.integrate import idle_power, window_power
from pytest_tokenwatt.power.sampler import Sampler
from pytest_tokenwatt.power.source import PowerSource
from pytest_tokenwatt.records.base import Figure, Reason
from pytest_tokenwatt.records.power import PowerRecord, PowerTrace, WindowPower
from pytest_tokenwatt.spec.serving import PowerSource as PowerSettings

NODE_BELOW_GPU = "node_below_gpu"


class Monitor:
    """Samples the sources of one configuration from ``start`` until ``stop``.

    A source that could not be opened stays in its place: it is invalid in every window, with the reason.
    """

    def __init__(self, sources: Sequence[tuple[PowerSettings, PowerSource]]) -> None:
        names = _names([settings.source for settings, _ in sources])
        self._samplers = tuple(
            Sampler(source, settings.sampling_hz, name) for (settings, source), name in zip(sources, names, strict=True)
        )

    def start(self, timeout_s: float) -> tuple[PowerError | None, ...]:
        """Open all sources at the same time; one entry each: why it could not be opened in ``timeout_s``."""
        deadline_s = time.monotonic() + timeout_s
        for sampler in self._samplers:
            sampler.begin()
        return tuple(sampler.wait_open(max(0.0, deadline_s - time.monotonic())) for sampler in self._samplers)

    def cover(self, until_s: float, timeout_s: float) -> bool:
        """Wait until every source that is open was read at or after ``until_s``; false if one was not in time."""
        deadline_s = time.monotonic() + timeout_s
        opened = [sampler for sampler in self._samplers if sampler.error is None]
        covered = [sampler.cover(until_s, max(0.0, deadline_s - time.monotonic())) for sampler in opened]
        return all(covered)

    def windows(self, start_s: float, end_s: float) -> tuple[WindowPower, ...]:
        """The energy of each source over one window, in the spec's order."""
        found = tuple(_window(sampler, start_s, end_s) for sampler in self._samplers)
        return tuple(_against_boards(window, found) for window in found)

    def idle(self, start_s: float, end_s: float) -> tuple[Figure, ...]:
        """The power of each source in W while nothing runs."""
        return tuple(
            Figure(None, "W", reason=str(sampler.error))
            if sampler.error
            else idle_power(sampler.trace(), start_s, end_s)
            for sampler in self._samplers
        )

    def traces(self) -> tuple[PowerTrace, ...]:
        """Everything that was read so far, in the spec's order."""
        return tuple(sampler.trace() for sampler in self._samplers)

    def records(self, file: str | None = None, idle: Sequence[Figure] = ()) -> tuple[PowerRecord, ...]:
        """What there is to say about each source so far. ``file`` names the stored samples, ``idle`` is of ``idle``."""
        unknown = Figure(None, "W", reason="idle power was not measured")
        figures = tuple(idle) or (unknown,) * len(self._samplers)
        return tuple(_record(sampler, figure, file) for sampler, figure in zip(self._samplers, figures, strict=True))

    def stop(self, timeout_s: float) -> None:
        """End all sampling within ``timeout_s``; a source that hangs is left behind in its thread."""
        deadline_s = time.monotonic() + timeout_s
        for sampler in self._samplers:
            sampler.ask_to_stop()
        for sampler in self._samplers:
            sampler.stop(max(0.0, deadline_s - time.monotonic()))


def _first_j(windows: Sequence[WindowPower], kind: str) -> float | None:
    return next((each.energy_j for each in windows if each.kind == kind and each.energy_j is not None), None)


def _names(sources: Sequence[str]) -> list[str]:
    """The sources' names, numbered where the spec has several of a kind."""
    counted = [sources[: place + 1].count(source) for place, source in enumerate(sources)]
    return [
        f"{source} {number}" if sources.count(source) > 1 else source
        for source, number in zip(sources, counted, strict=True)
    ]


def _window(sampler: Sampler, start_s: float, end_s: float) -> WindowPower:
    if sampler.error is None:
        return window_power(sampler.trace(), start_s, end_s)
    return WindowPower(
        source=sampler.source.source,
        kind=sampler.source.kind,
        energy_j=None,
        method=None,
        cross_check_j=None,
        samples=0,
        throttle_counts=None,
        throttle_samples=0,
        throttle_s={},
        invalid=(Reason(sampler.error.reason, str(sampler.error)),),
    )


def _against_boards(window: WindowPower, windows: Sequence[WindowPower]) -> WindowPower:
    """A node's energy compared with that of the GPU boards inside: it cannot be the lower one."""
    boards_j = _first_j(windows, "board")
    if window.kind != "node" or window.energy_j is None or boards_j is None:
        return window
    if sum(1 for each in windows if each.kind == "node") > 1:
        # Nobody says which boards are in which node.
        return replace(window, notes=(*window.notes, "one node of several: not compared with the GPU boards"))
    if window.energy_j < boards_j:
        text = f"{window.source} has {window.energy_j:.1f} J for the node, its GPU boards alone took {boards_j:.1f} J"
        return replace(window, energy_j=None, invalid=(Reason(NODE_BELOW_GPU, text),))
    share_pct = 100.0 * boards_j / window.energy_j
    return replace(window, notes=(*window.notes, f"GPU share of node power {share_pct:.1f} %"))


def _record(sampler: Sampler, idle_w: Figure, file: str | None) -> PowerRecord:
    source, error, trace = sampler.source, sampler.error, sampler.trace()
    return PowerRecord(
        source=trace.source,
        kind=trace.kind,
        label=trace.label,
        sampling_hz=trace.sampling_hz,
        sensors=tuple(sensor.info for sensor in trace.sensors),
        chosen="" if error else source.chosen,
        idle_w=idle_w,
        ticks=len(trace.lateness_ms) + trace.missed,
        missed=trace.missed,
        failed=_failed(trace),
        lateness_p99_ms=_nearest_rank(trace.lateness_ms, 0.99),
        invalid=(Reason(error.reason, str(error)),) if error else (),
        notes=() if error else source.notes,
        file=None if error else file,
    )


def _failed(trace: PowerTrace) -> int:
    """Ticks at which at least one sensor gave nothing."""
    ticks = zip(*(sensor.watts for sensor in trace.sensors), strict=True)
    return sum(1 for tick in ticks if not all(watts > 0 for watts in tick))


def _nearest_rank(values: array[float], share: float) -> float | None:
    return sorted(values)[math.ceil(share * len(values)) - 1] if values else None

"""GPU board power through the NVIDIA driver (NVML): one sensor a board, its energy counter and throttle reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.gpus import Choice, GpuQuery, choose_gpus
from pytest_tokenwatt.power.nvml_binding import attempt, describe, load
from pytest_tokenwatt.power.nvml_boards import list_boards, sensor_info
from pytest_tokenwatt.power.nvml_meter import Meter
from pytest_tokenwatt.power.nvml_watch import Watch
from pytest_tokenwatt.power.source import Reading
from pytest_tokenwatt.records.power import SensorInfo


class BoardSource:
    """Power of the GPU boards under test. NVML is initialised in ``open`` and given up in ``close``.

    Power is the driver's own figure (a 1 s average on most boards since Ampere), energy its cumulative counter, read
    ten times a second because a window's edge lies between two readings. ``look_every_s`` is how often the power limit
    and the boards' processes are looked at; at the end of a window they are looked at once more (``look_soon``).
    """

    source = "board"
    kind = "board"
    label = "GPU board power sum (NVIDIA)"
    refresh_s: float | None = 1.0
    counter_hz: float | None = 10.0

    def __init__(self, query: GpuQuery, look_every_s: float = 5.0) -> None:
        self._query = query
        self._look_every_s = look_every_s
        self._nvml: ModuleType | None = None
        self._meters: dict[str, Meter] = {}
        self._watch: Watch | None = None
        self._choice = Choice((), "not opened")
        self._without_counter: set[str] = set()

    @property
    def chosen(self) -> str:
        """How the GPUs under test were found."""
        return self._choice.how

    @property
    def notes(self) -> tuple[str, ...]:
        """Statements on the choice, on MIG and on missing energy counters."""
        if not self._without_counter:
            return self._choice.notes
        gpus = ", ".join(gpu for gpu in self._choice.uuids if gpu in self._without_counter)
        return (*self._choice.notes, f"no energy counter on {gpus}: energy is integrated from power")

    def open(self) -> tuple[SensorInfo, ...]:
        """Find the GPUs under test.

        Raises ``PowerError``: ``no_power_source`` without a driver that answers, or when none of the GPUs gives its
        power, ``gpu_count_mismatch`` when it is not clear which GPUs are under test.
        """
        nvml = self._nvml = load()
        self._choice = _choose(nvml, self._query)
        handles = _handles(nvml, self._choice.uuids)
        sensors = tuple(sensor_info(nvml, handle, gpu) for gpu, handle in handles.items())
        self._meters = {gpu: Meter(nvml, handle, gpu) for gpu, handle in handles.items()}
        limits_w = {info.sensor: info.limit_w for info in sensors}
        self._watch = Watch(nvml, handles, limits_w, self._query.pids, self._look_every_s)
        self._refuse_the_powerless()
        self.read_counters()
        return sensors

    def read(self) -> Sequence[Reading]:
        """One reading of each board; what could not be read says why."""
        watch = self._watch
        if watch is None:
            return ()
        watch.look()
        return [_seen(meter.read(), watch) for meter in self._meters.values()]

    def look_soon(self) -> None:
        """Look at the power limit and the processes at the next reading, however long ago that was done."""
        watch = self._watch
        if watch is not None:
            watch.look_soon()

    def read_counters(self) -> Mapping[str, float]:
        """Cumulative joules of each board that has an energy counter and whose counter can be read now."""
        if self._nvml is None:
            return {}
        joules: dict[str, float] = {}
        for gpu, meter in self._meters.items():
            try:
                counter_j = meter.counter_j()
            except self._nvml.NVMLError:
                # Whatever ails the board, its power reading says so; the counter has a hole.
                continue
            if counter_j is None:
                self._without_counter.add(gpu)
            else:
                joules[gpu] = counter_j
                self._without_counter.discard(gpu)
        return joules

    def close(self) -> None:
        """Give NVML up."""
        nvml, self._nvml, self._watch, self._meters = self._nvml, None, None, {}
        if nvml is not None:
            attempt(nvml, nvml.nvmlShutdown)

    def _refuse_the_powerless(self) -> None:
        readings = [meter.read() for meter in self._meters.values()]
        if all(reading.watts is None for reading in readings):
            why = "; ".join(reading.problem.text for reading in readings if reading.problem is not None)
            raise PowerError(
                "no_power_source",
                f"no GPU under test gives its power: {why}",
                remedy="check nvidia-smi -q -d POWER, or take another source in power:",
            )


def identify(query: GpuQuery) -> tuple[SensorInfo, ...]:
    """The GPUs under test, without sampling them. Raises ``PowerError`` as ``BoardSource.open`` does."""
    nvml = load()
    try:
        handles = _handles(nvml, _choose(nvml, query).uuids)
        return tuple(sensor_info(nvml, handle, gpu) for gpu, handle in handles.items())
    finally:
        attempt(nvml, nvml.nvmlShutdown)


def _seen(reading: Reading, watch: Watch) -> Reading:
    """The reading with what the watch saw of its board, unless it has a problem of its own."""
    sight = watch.sight(reading.sensor) if reading.problem is None else None
    if sight is None:
        return replace(reading, looked_s=watch.looked_s)
    return replace(reading, problem=sight.reason, since_s=sight.since_s, looked_s=watch.looked_s)


def _choose(nvml: ModuleType, query: GpuQuery) -> Choice:
    try:
        boards, unreadable = list_boards(nvml)
    except nvml.NVMLError as error:
        raise PowerError(
            "no_power_source", f"the NVIDIA driver lists no GPUs: {describe(error)}", remedy="see nvidia-smi"
        ) from None
    try:
        choice = choose_gpus(boards, query)
    except PowerError as error:
        if not unreadable:
            raise
        raise PowerError(error.reason, "; ".join((error.what, *unreadable)), remedy=error.remedy) from None
    return replace(choice, notes=(*choice.notes, *unreadable))


def _handles(nvml: ModuleType, uuids: Sequence[str]) -> dict[str, Any]:
    """Handles by UUID: the driver's indices may change from one start to the next."""
    try:
        return {uuid: nvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids}
    except nvml.NVMLError as error:
        raise PowerError(
            "no_power_source", f"a GPU under test cannot be opened: {describe(error)}", remedy="see nvidia-smi"
        ) from None

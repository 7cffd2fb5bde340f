"""Power of one configuration: its sources, from the engine's contract to the end of its measurements."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.engine.start import RunningEngine
from pytest_tokenwatt.power.gpus import GpuQuery
from pytest_tokenwatt.power.monitor import Monitor
from pytest_tokenwatt.power.sources import SourceContext, open_sources
from pytest_tokenwatt.records import Figure, LoadRun, PowerRecord, SensorInfo, WindowResult, WindowSpan
from pytest_tokenwatt.spec.model import Configuration, PowerSource
from pytest_tokenwatt.store.journal import Event
from pytest_tokenwatt.store.power_csv import write_power

_OPEN_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 10.0
_SETTLE_S = 1.0
"""Waited before idle power is measured: boards report the mean of the last second."""
_IDLE_SAMPLES = 12
_MIN_IDLE_S = 2.0
_MAX_IDLE_S = 30.0
_MAX_HOLD_S = 10.0
_GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES")


def gpu_query(configuration: Configuration, engine: RunningEngine, session: Session) -> GpuQuery:
    """Which GPUs are under test, as far as the spec and the engine's processes say."""
    return GpuQuery(
        listed=session.spec.hardware.gpus,
        expected=gpu_count(configuration),
        environ=engine.environment(_GPU_VARIABLES),
        pids=engine.processes,
    )


def gpu_count(configuration: Configuration) -> int:
    """GPUs that the model block declares: replicas × TP × PP × DP."""
    model = configuration.model
    return model.replicas * model.tensor_parallel * model.pipeline_parallel * model.data_parallel


def estimated_s(configuration: Configuration) -> float:
    """Seconds that idle power takes."""
    return _SETTLE_S + _idle_s(configuration) if _sources(configuration) else 0.0


class PowerWatch:
    """Samples all sources of a configuration; ``open`` it, let it ``rest``, ask it for windows, ``finish`` it."""

    def __init__(self, configuration: Configuration, engine: RunningEngine, session: Session) -> None:
        self._configuration = configuration
        self._session = session
        context = SourceContext(
            environ=session.environ,
            spec_dir=session.spec.path.parent,
            endpoint_root=engine.endpoint.removesuffix("/v1"),
            simulated=engine.identity.simulated,
            gpus=gpu_query(configuration, engine, session),
        )
        self._monitor = Monitor(open_sources(_sources(configuration), context))
        self._spans: list[WindowSpan] = []
        self._idle: tuple[Figure, ...] = ()

    @property
    def active(self) -> bool:
        """Whether the spec asks for power."""
        return bool(_sources(self._configuration))

    @property
    def hold_s(self) -> float:
        """How long load must go on behind a window for the samples beyond its end."""
        if not self.active:
            return 0.0
        slowest_hz = min(each.sampling_hz for each in _sources(self._configuration))
        return min(2.0 / slowest_hz, _MAX_HOLD_S) + 0.5

    def open(self) -> None:
        """Open all sources; what keeps one from being read is said, and stays with its record."""
        if self.active:
            for problem in filter(None, self._monitor.start(_OPEN_TIMEOUT_S)):
                self._session.say(f"{self._configuration.key}: power: {problem}")

    def rest(self) -> None:
        """Measure idle power: the model is loaded, nothing is asked."""
        if all(record.invalid for record in self._monitor.records()):
            return
        idle_s = _idle_s(self._configuration)
        self._session.say(f"{self._configuration.key}: measuring idle power for {idle_s:g} s")
        time.sleep(_SETTLE_S)
        start_s = time.monotonic()
        time.sleep(idle_s)
        self._idle = self._monitor.idle(start_s, time.monotonic())

    def boards(self) -> tuple[SensorInfo, ...]:
        """The GPUs that a source samples; empty when none does."""
        return next((each.sensors for each in self._monitor.records() if each.kind == "board" and each.sensors), ())

    def idle(self) -> Figure | None:
        """Idle power of the first source in W; ``None`` without a source."""
        return self._idle[0] if self._idle else None

    def measured(self, run: LoadRun, windows: Sequence[WindowResult]) -> list[WindowResult]:
        """The windows of a run with their power; those that did not last to their end have none."""
        if not self.active or not run.spans:
            return list(windows)
        self._monitor.cover(min(run.ended_s, run.spans[-1].end_s), self.hold_s)
        return [self._with_power(run, window) for window in windows]

    def _with_power(self, run: LoadRun, window: WindowResult) -> WindowResult:
        if window.end_s > run.ended_s:
            return window
        self._spans.append(WindowSpan(window.start_s, window.end_s))
        return replace(window, power=self._monitor.windows(window.start_s, window.end_s))

    def stop(self) -> None:
        """End all sampling; safe to call again."""
        self._monitor.stop(_STOP_TIMEOUT_S)

    def finish(self) -> tuple[PowerRecord, ...]:
        """Stop sampling and store the samples."""
        self.stop()
        if not self.active:
            return ()
        key = self._configuration.key
        name = f"power-{key}.csv"
        write_power(self._session.run_dir.file(name), self._monitor.traces(), self._spans)
        records = self._monitor.records(name, self._idle)
        told = {each.source: [str(reason) for reason in each.invalid] for each in records}
        self._session.journal.write(Event.POWER_FINISHED, config=key, sources=told)
        return records


def _sources(configuration: Configuration) -> list[PowerSource]:
    return [each for each in configuration.power if each.source != "none"]


def _idle_s(configuration: Configuration) -> float:
    fastest_hz = max(each.sampling_hz for each in _sources(configuration))
    return min(max(_MIN_IDLE_S, _IDLE_SAMPLES / fastest_hz), _MAX_IDLE_S)

"""What is known of the machine while one configuration is measured: power, its GPUs, memory bandwidth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_tokenwatt.campaign.bandwidth import BandwidthUse
from pytest_tokenwatt.campaign.identify import identify_gpus
from pytest_tokenwatt.campaign.observe import EdgeMetrics
from pytest_tokenwatt.campaign.power import PowerWatch, gpu_query
from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.engine.start import RunningEngine
from pytest_tokenwatt.records import ConfigRecord, Figure, LoadRun, SensorInfo, WindowResult
from pytest_tokenwatt.spec.model import Configuration


class Senses:
    """Everything beside the load that a phase measures; ``identify`` and ``start`` before it, ``finish`` behind it."""

    def __init__(self, configuration: Configuration, engine: RunningEngine, session: Session) -> None:
        self._configuration = configuration
        self._engine = engine
        self._session = session
        self._power = PowerWatch(configuration, engine, session)
        self._gpus: tuple[SensorInfo, ...] = ()
        self._notes: tuple[str, ...] = ()
        self._use = BandwidthUse(configuration, engine, session, ())

    @property
    def hold_s(self) -> float:
        """How long load must go on behind a window."""
        return self._power.hold_s

    @property
    def gpus(self) -> tuple[SensorInfo, ...]:
        """The accelerators under test, as far as they are known."""
        return self._gpus

    def identify(self) -> None:
        """Open the power sources and find out which GPUs are under test."""
        self._power.open()
        self._gpus = self._power.boards()
        if not self._gpus and not self._engine.identity.simulated:
            query = gpu_query(self._configuration, self._engine, self._session)
            self._gpus, why = identify_gpus(query)
            self._notes = (f"Accelerator, driver, GPU identity: {why}",) if why else ()
        self._use = BandwidthUse(self._configuration, self._engine, self._session, self._gpus)

    def start(self) -> None:
        """Measure idle power: the model is loaded, nothing is asked."""
        self._power.rest()

    def power(self, run: LoadRun, windows: Sequence[WindowResult]) -> list[WindowResult]:
        """The windows of a run with their power."""
        return self._power.measured(run, windows)

    def bandwidth(self, run: LoadRun, edges: EdgeMetrics) -> dict[str, Figure]:
        """Memory bandwidth utilisation over the windows of a run."""
        return self._use.figures(run, edges)

    def figures(self) -> Mapping[str, Figure]:
        """Figures of the configuration rather than of a rate."""
        return {"idle_power_w": idle} if (idle := self._power.idle()) is not None else {}

    def finish(self, record: ConfigRecord, earlier: ConfigRecord | None = None) -> ConfigRecord:
        """Stop sampling; the record with what was found out.

        ``earlier`` is that of an interrupted run of which everything counts: then its samples do, too.
        """
        if earlier is None:
            power = self._power.finish()
        else:
            self._power.stop()
            power = earlier.power
        return replace(
            record,
            power=power,
            gpus=self._gpus,
            rated_bandwidth=self._use.rated,
            not_covered=(*record.not_covered, *self._notes),
        )

"""One scenario on one running engine: from its traffic to its goodput record, with the raw requests on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_tokenwatt.campaign.observe import EdgeMetrics, ObservedLoader, prefix_growth
from pytest_tokenwatt.campaign.outputs import file_name, kept_of_windows, run_name, served_by
from pytest_tokenwatt.campaign.senses import Senses
from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.engine.metrics import ServerMetrics, growth
from pytest_tokenwatt.engine.start import RunningEngine
from pytest_tokenwatt.load.generator import LoadGenerator
from pytest_tokenwatt.load.plan import build_plan
from pytest_tokenwatt.load.traces import Traffic, open_trace
from pytest_tokenwatt.metrics.client import WindowRules
from pytest_tokenwatt.metrics.measure import measure_goodput
from pytest_tokenwatt.metrics.search import ProbePlan
from pytest_tokenwatt.records import (
    DEFAULT_SCENARIO,
    Figure,
    GoodputRecord,
    LoadPlan,
    LoadRun,
    Reason,
    WindowResult,
)
from pytest_tokenwatt.records.audit import Served
from pytest_tokenwatt.spec.model import Configuration, Scenario
from pytest_tokenwatt.store.journal import Event
from pytest_tokenwatt.store.requests_npz import write_requests
from pytest_tokenwatt.store.served_npz import write_served

SERVER = "server:"
"""Prefix of figures that are metrics of the engine."""
ENGINE_DIED = "engine_died"


def measure_scenario(
    configuration: Configuration, scenario: Scenario, engine: RunningEngine, session: Session, senses: Senses
) -> GoodputRecord:
    """Find the goodput of a scenario. Raises ``UsageError`` for a workload that does not fit the engine."""
    return _Measurement(configuration, scenario, engine, session, senses).take()


def unmeasured(scenario: Scenario, reason: Reason) -> GoodputRecord:
    """The record of a scenario that could not be measured, for ``reason``."""
    return GoodputRecord(
        scenario=scenario.name,
        mode="none",
        slo=scenario.bounds,
        rate_rps=None,
        goodput_tok_s=None,
        output_tok_s=None,
        percentiles=(),
        slo_pass_count=0,
        repeats=scenario.measurement.repeats,
        highest_passing_rps=None,
        lowest_failing_rps=None,
        bracket="none",
        backoffs=0,
        error_pct=None,
        variance_band_pct=None,
        misses=(),
        invalid=(reason,),
        notes=(),
        windows=(),
        figures={},
    )


def named_death(record: GoodputRecord, death: str | None) -> GoodputRecord:
    """The record with what is known of the engine's ``death``, before all that only follows from it."""
    if death is None or all(reason.code != ENGINE_DIED for reason in record.invalid):
        return record
    others = (reason for reason in record.invalid if reason.code != ENGINE_DIED)
    return replace(record, invalid=(Reason(ENGINE_DIED, death), *others))


class _Measurement:
    """What the callbacks of one measurement share."""

    def __init__(
        self,
        configuration: Configuration,
        scenario: Scenario,
        engine: RunningEngine,
        session: Session,
        senses: Senses,
    ) -> None:
        self._configuration = configuration
        self._senses = senses
        self._scenario = scenario
        self._engine = engine
        self._session = session
        named = "" if scenario.name == DEFAULT_SCENARIO else f" {scenario.name}"
        self._name = f"{configuration.key}{named}"
        self._traffic = self._open_traffic()
        self._besides: dict[float, dict[str, Figure]] = {}
        self._served: dict[float, tuple[Served, ...] | Reason] = {}

    def take(self) -> GoodputRecord:
        scenario, session = self._scenario, self._session
        session.journal.write(Event.MEASUREMENT_STARTED, config=self._configuration.key, scenario=scenario.name)
        target = self._engine.target(scenario.workload)
        workers = session.spec.load.workers
        log = session.run_dir.file(f"load-{self._configuration.key}.log")
        with LoadGenerator(target, None if workers == "auto" else int(workers), self._engine.death, log) as generator:
            loader = ObservedLoader(
                generator,
                name=self._name,
                say=session.say,
                read_metrics=self._engine.read_metrics,
                deadline=session.deadline,
                hold_s=self._senses.hold_s,
            )
            record = named_death(self._measure(loader), self._engine.death())
        if session.outputs.picked:
            self._keep_outputs(record)
        session.journal.write(
            Event.MEASUREMENT_FINISHED,
            config=self._configuration.key,
            scenario=scenario.name,
            rate_rps=record.rate_rps,
            goodput_tok_s=record.goodput_tok_s,
            invalid=[str(reason) for reason in record.invalid],
        )
        return record

    def _measure(self, loader: ObservedLoader) -> GoodputRecord:
        scenario = self._scenario
        record = measure_goodput(
            loader,
            self._plan,
            scenario=scenario.name,
            sweep=scenario.sweep,
            measurement=scenario.measurement,
            rules=WindowRules(scenario.bounds, ignore_eos=self._configuration.engine.ignore_eos),
            at_rps=self._configuration.gates.slo.at_rps,
            observe=self._observe,
            on_run=lambda probe, run, windows: self._keep(probe, run, windows, loader.edges),
            prefix_tokens=lambda: prefix_growth(_growth(loader.edges)),
        )
        confirmed = {} if record.rate_rps is None else self._besides.get(record.rate_rps, {})
        load_sha256 = self._session.spec.digest(self._configuration, scenario)
        figures = {**record.figures, **self._senses.figures(), **confirmed}
        return replace(record, figures=figures, load_sha256=load_sha256)

    def _keep_outputs(self, record: GoodputRecord) -> None:
        """What was served at the confirmed rate waits for the audit; every pass of the windows counts once."""
        key = self._configuration.key
        run = run_name(None if self._scenario.name == DEFAULT_SCENARIO else self._scenario.name)
        served = _no_goodput() if record.rate_rps is None else self._served.get(record.rate_rps, _no_goodput())
        self._session.outputs.runs[key, run] = served
        if not isinstance(served, Reason):
            write_served(self._session.run_dir.file(file_name(key, run)), served)

    def _open_traffic(self) -> Traffic:
        identity = self._engine.identity
        return open_trace(self._scenario.workload, identity.max_model_len, self._session.spec.path.parent)

    def _plan(self, probe: ProbePlan, number: int) -> LoadPlan:
        measurement = self._scenario.measurement
        # A fixed rate and a confirmed one see the same draw, so that the one can be compared with the other.
        draw = "search" if probe.kind == "search" else "confirm"
        plan = build_plan(
            label=f"{probe.kind}-{number:02d}",
            rate_rps=probe.rate_rps,
            traffic=self._traffic,
            windows=probe.windows,
            window_s=probe.window_s,
            warmup_s=measurement.warmup_s,
            warmup_max_s=measurement.warmup_max_s,
            request_timeout_s=measurement.request_timeout_s,
            max_concurrency=measurement.max_concurrency,
            seed=self._scenario.workload.seed,
            purpose=f"{self._scenario.name}/{draw}/{probe.attempt}",
            salt=self._session.prompt_salt(self._configuration.key),
        )
        picked = self._session.outputs.picked
        return plan if probe.kind == "search" else replace(plan, kept=kept_of_windows(plan, picked))

    def _observe(self, window: WindowResult) -> None:
        verdict = "invalid" if window.invalid else "pass" if window.passes else "fail"
        why = "; ".join(str(reason) for reason in window.invalid) or "; ".join(window.misses) or _latencies(window)
        if window.undecided is not None:
            verdict, why = "not decided", window.undecided
        self._session.say(f"{self._name} {window.label} at {window.rate_rps:.4g} req/s: {verdict} ({why})")
        self._session.journal.write(
            Event.WINDOW_FINISHED,
            config=self._configuration.key,
            scenario=self._scenario.name,
            window=window.label,
            rate_rps=window.rate_rps,
            verdict=verdict,
            misses=list(window.misses),
            invalid=[str(reason) for reason in window.invalid],
        )

    def _keep(
        self, probe: ProbePlan, run: LoadRun, windows: Sequence[WindowResult], edges: EdgeMetrics
    ) -> Sequence[WindowResult]:
        """Store the run's requests; keep the engine's metrics by rate, for that of the rate that is confirmed."""
        # No name may hold a plus sign, so that no two pairs of configuration and scenario give the same file.
        scenario = "" if self._scenario.name == DEFAULT_SCENARIO else f"+{self._scenario.name}"
        name = f"requests-{self._configuration.key}{scenario}-{run.plan.label}.npz"
        write_requests(self._session.run_dir.file(name), run.requests, run.spans, run.anchor)
        if probe.kind != "search":
            self._besides[probe.rate_rps] = {**_server_figures(edges), **self._senses.bandwidth(run, edges)}
        if run.plan.kept:
            self._served[probe.rate_rps] = served_by(
                run.requests,
                run.plan.kept,
                self._session.outputs.picked,
                ignore_eos=self._configuration.engine.ignore_eos,
            )
        return [replace(window, requests_file=name) for window in self._senses.power(run, windows)]


def _no_goodput() -> Reason:
    return Reason("no_goodput", "no rate was confirmed, so that there is no window to look at")


def _latencies(window: WindowResult) -> str:
    shown = [each for each in window.percentiles if each.bound_ms is not None and each.value_ms is not None]
    return ", ".join(f"{each.metric.upper()} p{each.percentile:g} {each.value_ms:.4g} ms" for each in shown)


def _growth(edges: EdgeMetrics) -> Mapping[str, float | None]:
    if not _usable(edges.before) or not _usable(edges.after) or edges.before is None or edges.after is None:
        return {}
    return growth(edges.before, edges.after)


def _usable(reading: ServerMetrics | None) -> bool:
    return reading is not None and reading.problem is None


def _server_figures(edges: EdgeMetrics) -> dict[str, Figure]:
    """Counters by their growth from the first window's start to the last one's end, gauges by their last value."""
    if edges.after is None or not _usable(edges.after):
        return {}
    grown = _growth(edges)
    figures = {
        f"{SERVER}{name}": Figure(value, "", reason=None if value is not None else "the counter was reset")
        for name, value in grown.items()
    }
    for name in edges.after.samples:
        value = edges.after.value(name)
        if name not in grown and value is not None and edges.after.types.get(name) == "gauge":
            figures[f"{SERVER}{name}"] = Figure(value, "")
    return figures

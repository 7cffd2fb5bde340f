"""The composition root: from a spec to measurements, verdicts and the report. Knows nothing of pytest."""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from pytest_tokenwatt import __version__
from pytest_tokenwatt.campaign import drift_plan
from pytest_tokenwatt.campaign.drift_values import corpus_name, kl_value, perplexity_value
from pytest_tokenwatt.campaign.identify import driver_trouble
from pytest_tokenwatt.campaign.lengths import length_value
from pytest_tokenwatt.campaign.misfits import misfits
from pytest_tokenwatt.campaign.observe import Deadline
from pytest_tokenwatt.campaign.order import by_phase
from pytest_tokenwatt.campaign.phase import ACCURACY, DRIFT, EVERYTHING, GOODPUT, Phase
from pytest_tokenwatt.campaign.plan import Work, minutes, plan_view
from pytest_tokenwatt.campaign.readings import accuracy_of, energy_of, goodput_of, power_of, suite_name
from pytest_tokenwatt.campaign.resume import earlier_records
from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.campaign.suites import Shelf
from pytest_tokenwatt.engine.start import RunningEngine
from pytest_tokenwatt.errors import EngineError, NotMeasured, Problem, UsageError
from pytest_tokenwatt.gates.band import session_band_pct, session_energy_band_pct
from pytest_tokenwatt.gates.catalog import list_gates
from pytest_tokenwatt.gates.deltas import accuracy_deltas
from pytest_tokenwatt.gates.divergence import drift_deltas
from pytest_tokenwatt.gates.judge import exit_code, judge
from pytest_tokenwatt.gates.shifts import length_deltas
from pytest_tokenwatt.gates.user import judge_user_rule
from pytest_tokenwatt.quality.scoring import Scorer
from pytest_tokenwatt.records import DEFAULT_SCENARIO, ConfigRecord, GateResult, GateSpec
from pytest_tokenwatt.report.coverage import caveats
from pytest_tokenwatt.report.lab import ReportContext, build_report, report_title
from pytest_tokenwatt.report.plan_text import render_plan
from pytest_tokenwatt.report.screen import Screen
from pytest_tokenwatt.report.table import render_table
from pytest_tokenwatt.spec.model import Configuration, Spec
from pytest_tokenwatt.spec.problems import preflight
from pytest_tokenwatt.store.atomic import write_json
from pytest_tokenwatt.store.journal import Event, Journal
from pytest_tokenwatt.store.records_json import write_run_record
from pytest_tokenwatt.store.rundir import RunDirectory, file_obstacle
from pytest_tokenwatt.values import Accuracy, Energy, Goodput, KlDrift, LengthShift, PerplexityChange, Power

REPORT_NAME = "report.json"
JOURNAL = "journal.jsonl"
_REQUIREMENTS = ("pytest", "numpy", "scipy", "httptools")


class LabEvents(Protocol):
    """Where the lab's progress goes."""

    def line(self, text: str) -> None:
        """Show one line now; may be called from any thread."""
        ...


@dataclass(frozen=True, slots=True)
class LabOptions:
    """What the command line asks of one spec; paths are absolute.

    ``invocation`` are the words that repeat the run, ``part`` the name of the
    subdirectory when one run has several specs, which also share ``deadline``. With ``resume`` the run that was
    interrupted in ``out`` is continued. ``scorers`` are those that others brought.
    """

    rootdir: Path
    invocation: tuple[str, ...]
    out: Path | None = None
    part: str | None = None
    deadline: Deadline = field(default_factory=Deadline)
    title: str | None = None
    reports: tuple[Path, ...] = ()
    resume: bool = False
    scorers: Mapping[str, Scorer] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that is over: its verdicts, its report and the exit code that they mean."""

    results: tuple[GateResult, ...]
    report: dict[str, Any]
    report_path: Path
    exit_code: int
    title: str
    notes: tuple[str, ...]

    def table(self, width: int, color: bool, encoding: str = "utf-8") -> str:
        """The table of verdicts, the notes and the report's path, for a terminal of ``width`` columns."""
        screen = Screen(width, color, encoding)
        report = str(self.report_path) if self.report_path.exists() else None
        return render_table(self.title, self.results, screen, notes=self.notes, report=report)


class Lab:
    """One spec's run. Creating it starts nothing and writes nothing; every measurement is taken at most once."""

    def __init__(self, spec: Spec, options: LabOptions, events: LabEvents) -> None:
        self.spec = spec
        self.gates = list_gates(spec)
        self._options = options
        self._events = events
        self._started = datetime.now(UTC).astimezone()
        place = RunDirectory.choose(options.out, spec.name, self._started, options.rootdir)
        self._run_dir = place.child(options.part) if options.part else place
        self._session: Session | None = None
        self._phases: dict[str, Phase] = {}
        self._needed: tuple[str, ...] | None = None
        self._kinds = EVERYTHING
        self._shelf = Shelf(spec, options.scorers)
        self._live: set[str] = set()
        self._results: dict[str, GateResult] = {}
        self._interrupted: str | None = None
        self.finished: Finished | None = None

    @property
    def run_dir(self) -> Path:
        """Where this run writes; created with its first file."""
        return self._run_dir.path

    # --- before the run

    def preflight(self, selected: Sequence[GateSpec], also: Sequence[str] = ()) -> list[Problem]:
        """Everything that can be known to go wrong with the selected gates, errors and warnings.

        ``also`` are configurations that tests measure without a gate.
        """
        chosen = self._chosen(selected, also)
        own = (*self._unwritable(), *self._without_baseline(selected), *self._without_candidate())
        suites = self._shelf.problems() if ACCURACY in self._kinds else ()
        prompts = drift_plan.problems(self.spec) if DRIFT in self._kinds else ()
        driver = self._without_driver(chosen) if GOODPUT in self._kinds else ()
        found = [*preflight(self.spec, chosen), *misfits(self.spec, chosen), *driver, *suites, *prompts, *own]
        return list(dict.fromkeys(found))

    def minutes(self, selected: Sequence[GateSpec], also: Sequence[str] = ()) -> float:
        """How long the run will probably take."""
        return sum(minutes(config, self._work()) for config in self._chosen(selected, also))

    def plan_text(
        self,
        selected: Sequence[GateSpec],
        width: int,
        color: bool,
        encoding: str = "utf-8",
        also: Sequence[str] = (),
    ) -> str:
        """The plan of the selected gates for a terminal of ``width`` columns; nothing is started."""
        problems = [str(problem) for problem in self.preflight(selected, also)]
        title = report_title(self.spec, self._options.title)
        chosen, limit = self._chosen(selected, also), self._options.deadline.minutes
        view = plan_view(title, chosen, selected, problems, limit, self._work())
        return render_plan(view, Screen(width, color, encoding))

    def select(
        self, selected: Sequence[GateSpec], live_configs: Sequence[str] = (), kinds: frozenset[str] = EVERYTHING
    ) -> None:
        """Say what will be judged, for which configurations tests want the running engine, and what they measure."""
        self._live = set(live_configs)
        self._needed = self._keys_for(selected, live_configs)
        self._kinds = EVERYTHING & (kinds | {gate.needs for gate in selected})

    def last_phase_of(self, gate: GateSpec) -> str:
        """Key of the last configuration that must be measured before the gate can be judged."""
        if not _needs_the_band(gate):
            return gate.config
        return self._keys_for([gate], self._needed or ())[-1]

    # --- measuring and judging

    def judge(self, gate: GateSpec) -> GateResult:
        """The verdict of a gate; measures what it needs that was not measured yet."""
        identity = f"{gate.config}::{gate.gate}"
        if identity not in self._results:
            self._results[identity] = self._judged(gate)
        return self._results[identity]

    def goodput(self, config: str, scenario: str = DEFAULT_SCENARIO) -> Goodput:
        """Measured goodput. Raises like ``readings.goodput_of``."""
        return goodput_of(self._record(config), scenario)

    def energy(self, config: str, scenario: str = DEFAULT_SCENARIO) -> Energy:
        """Energy over the confirming windows. Raises like ``readings.energy_of``."""
        return energy_of(self._record(config), scenario)

    def power(self, config: str) -> Power:
        """The power sources. Raises like ``readings.power_of``."""
        return power_of(self._record(config), self.run_dir)

    def accuracy(self, config: str, suite: str | None = None) -> Accuracy:
        """A suite's score, and its difference to the baseline, which is measured for it; ``None``: the only suite.

        Raises like ``readings.accuracy_of``, and ``UsageError`` for a suite that there is not.
        """
        name = suite_name(self.spec, suite)
        return accuracy_of(self._record(config), self._other_baseline(config), name)

    def length_shift(self, config: str) -> LengthShift:
        """How long the answers to all suites are against the baseline's, which is measured for it.

        Raises ``GateFailed`` when a suite is invalid, ``NotMeasured`` without suites, without a baseline, or of it.
        """
        if not self.spec.accuracy:
            raise NotMeasured("length_shift", "the spec has no accuracy block")
        base = self.spec.baseline
        if base is None or base.key == config:
            raise NotMeasured(f"{config} length_shift", "there is no baseline to compare with")
        return length_value(self.spec, self._record(config), self._record(base.key))

    def kl_drift(self, config: str) -> KlDrift:
        """The divergence from the baseline, which is measured for it.

        Raises ``GateFailed`` when it is invalid, ``NotMeasured`` without a drift block, without a baseline, or of it.
        """
        if self.spec.drift is None:
            raise NotMeasured("kl_drift", "the spec has no drift block")
        base = self._other_baseline(config)
        if base is None:
            raise NotMeasured(f"{config} kl_drift", "there is no baseline to compare with")
        return kl_value(self._record(config), base, control=self.spec.drift.control)

    def perplexity(self, config: str, corpus: str | None = None) -> PerplexityChange:
        """Perplexity on a corpus, and its difference to the baseline, which is measured for it; ``None``: the only one.

        Raises like ``perplexity_value``, and ``UsageError`` for a corpus that there is not.
        """
        name = corpus_name(self.spec, corpus)
        return perplexity_value(name, self._record(config), self._other_baseline(config))

    def _other_baseline(self, config: str) -> ConfigRecord | None:
        base = self.spec.baseline
        return None if base is None or base.key == config else self._record(base.key)

    def engine(self, config: str) -> RunningEngine:
        """The running engine of a configuration. Raises ``EngineError`` when it did not start or is over."""
        self._live.add(config)
        record = self._record(config)
        engine = self._phases[config].engine
        if engine is None:
            why = "; ".join(str(reason) for reason in record.invalid) or "its phase is over"
            raise EngineError("engine_not_running", f"the engine of {config} is not running: {why}")
        return engine

    def record_gate(
        self, config: str, name: str, value: float | None, op: str, limit: float, unit: str | None = None
    ) -> GateResult:
        """Judge a user's own rule and keep it for the report.

        Raises ``UsageError`` for a built-in gate's name, and for one under which something else was judged already.
        """
        if any(gate.gate == name for gate in self.gates if gate.config == config):
            what = f"{config} has a gate {name!r} already"
            raise UsageError(what, where="tokenwatt.gate", remedy="give the rule another name")
        result = judge_user_rule(config, name, value, op, limit, unit)
        if self._results.setdefault(result.id, result) != result:
            what = f"{config} has another rule {name!r} in this run, or the same one with another value"
            raise UsageError(what, where="tokenwatt.gate", remedy="give each rule its own name")
        return result

    def leave(self, config: str | None) -> None:
        """No further item needs this configuration's engine (``None``: of any)."""
        for key, phase in self._phases.items():
            if config is None or key == config:
                self._live.discard(key)
                phase.stop()

    # --- the end

    def interrupted(self) -> None:
        """The run was interrupted: what is measured is kept, the report says so."""
        self._interrupted = "stopped before all gates were judged"
        if self._session is not None:
            self._session.journal.write(Event.INTERRUPTED)

    def finish(self) -> Finished | None:
        """Write the report; ``None`` when nothing was measured or judged. Calling it again returns the same.

        Raises ``UsageError`` or ``OSError`` when a file cannot be written; ``finished`` then has the verdicts still.
        """
        if self.finished is None and (self._results or self._phases):
            self.finished = self._finish()
            self._write(self.finished)
        return self.finished

    def close(self) -> None:
        """Stop every engine and close the journal; safe to call again."""
        for phase in self._phases.values():
            phase.stop()
        if self._session is not None:
            self._session.journal.close()

    # --- inside

    def _chosen(self, selected: Sequence[GateSpec], also: Sequence[str]) -> list[Configuration]:
        keys = self._keys_for(selected, also)
        return [config for config in by_phase(self.spec) if config.key in keys]

    def _unwritable(self) -> Iterator[Problem]:
        """Places of results that cannot be written: found before the first measurement, not behind the last."""
        places = [("--tokenwatt-out", self._run_dir.obstacle())]
        places += [("--tokenwatt-report", file_obstacle(path)) for path in self._options.reports]
        for option, obstacle in places:
            if obstacle is not None:
                yield Problem(str(self.spec.path), None, option, obstacle, "choose a writable place")
        if self._options.resume and not _can_be_resumed(self.run_dir):
            remedy = "name the run directory, or one that is empty or absent"
            yield Problem(str(self.spec.path), None, "--tokenwatt-resume", f"{self.run_dir} holds no run", remedy)

    def _without_baseline(self, selected: Sequence[GateSpec]) -> Iterator[Problem]:
        """Gates that compare with a baseline that there is not: said at once, though each has a verdict of its own."""
        relative = [gate for gate in selected if _needs_baseline(gate) and gate.mode == "enforce"]
        if relative and self.spec.baseline is None:
            names = ", ".join(f"{gate.config} {gate.gate}" for gate in relative)
            skipped = relative[0].limits.get("on_missing_baseline") == "record"
            what = f"there is no baseline, so that {names} will {'be skipped' if skipped else 'fail'}"
            remedy = "add a configuration with role baseline"
            yield Problem(str(self.spec.path), relative[0].line, None, what, remedy, severity="warning")

    def _without_driver(self, chosen: Sequence[Configuration]) -> Iterator[Problem]:
        """Boards that are to be read here, where no driver answers: energy would be found missing after everything."""
        boards = [config for config in chosen if any(source.source == "board" for source in config.power)]
        here = [config for config in boards if config.engine.method != "attach"]
        trouble = driver_trouble() if here else None
        if trouble is not None:
            what = f"source board cannot be read: {trouble}"
            yield Problem(str(self.spec.path), self.spec.line("power"), "power", what, severity="warning")

    def _without_candidate(self) -> Iterator[Problem]:
        """A ratio to the baseline that the spec writes down, where the baseline is all there is to measure."""
        line = self.spec.line("gates", "goodput", "min")
        if line is not None and all(config.role == "baseline" for config in self.spec.configurations):
            what = "gates.goodput.min compares with the baseline, and there is nothing to compare: it makes no gate"
            remedy = "add a configuration, or give min_tok_s or min_rps"
            yield Problem(str(self.spec.path), line, None, what, remedy, severity="warning")

    def _keys_for(self, selected: Sequence[GateSpec], also: Sequence[str] = ()) -> tuple[str, ...]:
        """The configurations that must be measured, in the order of phases."""
        wanted = {gate.config for gate in selected} | set(also)
        if any(_compares(gate) for gate in selected) and self.spec.baseline is not None:
            wanted.add(self.spec.baseline.key)
        return tuple(config.key for config in by_phase(self.spec) if config.key in wanted)

    def _judged(self, gate: GateSpec) -> GateResult:
        if _needs_the_band(gate):
            # The error of a ratio is the widest band of all configurations, so that all come first.
            for key in self._needed or ():
                self._record(key)
        baseline = self._baseline_for(gate)
        candidate = self._record(gate.config) if gate.needs != "later" else self._known(gate.config)
        return judge(gate, candidate, baseline, self._records())

    def _baseline_for(self, gate: GateSpec) -> ConfigRecord | None:
        if not _compares(gate) or self.spec.baseline is None or gate.config == self.spec.baseline.key:
            return None
        return self._record(self.spec.baseline.key)

    def _known(self, key: str) -> ConfigRecord:
        """The record as it is: what this version does not measure needs no engine."""
        phase = self._phases.get(key)
        return phase.record if phase else Phase.blank(self.spec.configuration(key))

    def _record(self, key: str) -> ConfigRecord:
        """The configuration's record; measures it, and before it what is needed of earlier phases."""
        if key not in self._phases:
            for earlier in by_phase(self.spec):
                if earlier.key == key:
                    break
                if earlier.key in (self._needed or ()) and earlier.key not in self._phases:
                    self._run_phase(earlier)
            self._run_phase(self.spec.configuration(key))
        return self._phases[key].record

    def _run_phase(self, configuration: Configuration) -> None:
        for phase in self._phases.values():
            phase.stop()
        phase = Phase(configuration, self._open_session(), self._kinds)
        self._phases[configuration.key] = phase
        phase.measure()
        if configuration.key not in self._live:
            phase.stop()

    def _open_session(self) -> Session:
        if self._session is None:
            self._options.deadline.start()
            journal = Journal(self._run_dir.file(JOURNAL))
            event = Event.RUN_STARTED if not self._options.resume else Event.RUN_RESUMED
            journal.write(event, spec=self.spec.name, invocation=list(self._options.invocation))
            self._session = Session(
                spec=self.spec,
                run_dir=self._run_dir,
                journal=journal,
                run_id=f"{self._started:%Y%m%d%H%M%S}-{secrets.token_hex(3)}",
                salt=secrets.randbits(63),
                deadline=self._options.deadline,
                environ=os.environ,
                say=self._events.line,
                shelf=self._shelf,
                earlier=self._earlier() if self._options.resume else None,
            )
        return self._session

    def _earlier(self) -> dict[str, ConfigRecord]:
        records, notes = earlier_records(self.run_dir, self.spec)
        for note in notes:
            self._events.line(note)
        return records

    def _work(self) -> Work:
        return Work(self.spec, self._kinds, self._shelf.tells() if ACCURACY in self._kinds else {})

    def _records(self) -> tuple[ConfigRecord, ...]:
        """Records of all phases so far, in the spec's order."""
        return tuple(
            self._phases[config.key].record for config in self.spec.configurations if config.key in self._phases
        )

    def _ordered_results(self) -> tuple[GateResult, ...]:
        """Gates in the spec's order, then users' own rules."""
        ranks = {f"{gate.config}::{gate.gate}": rank for rank, gate in enumerate(self.gates)}
        return tuple(sorted(self._results.values(), key=lambda result: ranks.get(result.id, len(ranks))))

    def _finish(self) -> Finished:
        self.leave(None)
        records, results = self._records(), self._ordered_results()
        report = build_report(self.spec, records, results, self._context(records))
        return Finished(
            results=results,
            report=report,
            report_path=self._run_dir.file(REPORT_NAME),
            exit_code=exit_code(results),
            title=report_title(self.spec, self._options.title),
            notes=caveats(self.spec, records, interrupted=self._interrupted),
        )

    def _write(self, finished: Finished) -> None:
        records, verdicts = self._records(), {each.id: each.verdict.value for each in finished.results}
        write_json(finished.report_path, finished.report)
        if self._run_dir.record_file is not None and records:
            write_run_record(self._run_dir.record_file, records)
        if self._session is not None:
            self._session.journal.write(Event.RUN_FINISHED, verdicts=verdicts)
        for copy in self._options.reports:
            copy.parent.mkdir(parents=True, exist_ok=True)
            write_json(copy, finished.report)

    def _context(self, records: Sequence[ConfigRecord]) -> ReportContext:
        scenario = self.spec.configurations[0].scenarios[0].name
        return ReportContext(
            generated=self._started,
            command=self._options.invocation,
            versions=_versions(),
            variance_band_pct=session_band_pct(records, scenario),
            energy_band_pct=session_energy_band_pct(records, scenario),
            accuracy=accuracy_deltas(self.spec, records),
            lengths=length_deltas(self.spec, records),
            drift=drift_deltas(self.spec, records),
            title=self._options.title,
            interrupted=self._interrupted,
        )


def _can_be_resumed(run_dir: Path) -> bool:
    """Whether a run left its journal there, or nothing is there at all."""
    return not run_dir.is_dir() or (run_dir / JOURNAL).exists() or not any(run_dir.iterdir())


def _versions() -> dict[str, str]:
    own = {"python": platform.python_version(), "pytest-tokenwatt": __version__}
    return own | {name: version(name) for name in _REQUIREMENTS}


_RATIOS = {
    "rule": ("min_ratio", "max_ratio"),
    "accuracy": ("max_drop_pts", "max_mean_drop_pts"),
    "length": ("max_shift",),
    "kl": ("max_nats_per_token",),
    "perplexity": ("max_dnll",),
}
"""Limits of a gate that compare with the baseline, by its kind; of all others ``min`` does."""


def _needs_the_band(gate: GateSpec) -> bool:
    """Whether the gate's error is the widest band of all configurations, so that all must be measured before."""
    return gate.kind == "energy" or (gate.kind == "goodput" and gate.limits.get("min") is not None)


def _needs_baseline(gate: GateSpec) -> bool:
    """Whether a limit of the gate is a ratio to the baseline."""
    ratios = _RATIOS.get(gate.kind, ("min",))
    return gate.needs != "later" and any(gate.limits.get(name) is not None for name in ratios)


def _compares(gate: GateSpec) -> bool:
    """Whether the gate shows a ratio to the baseline, limited or not."""
    return gate.kind == "energy" or _needs_baseline(gate)

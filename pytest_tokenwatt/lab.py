"""The composition root: from a spec to measurements, verdicts and the report. Knows nothing of pytest."""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from pytest_tokenwatt import __version__
from pytest_tokenwatt.campaign import drift_plan
from pytest_tokenwatt.campaign.after import Aftermath
from pytest_tokenwatt.campaign.baselines import StoredReference, captured, stored_baseline
from pytest_tokenwatt.campaign.capture import CaptureShelf
from pytest_tokenwatt.campaign.desk import Desk, Finished, LabEvents, LabOptions
from pytest_tokenwatt.campaign.foreseen import (
    compares,
    needs_the_band,
    without_baseline,
    without_candidate,
    without_driver,
    without_effect,
)
from pytest_tokenwatt.campaign.kinds import (
    ACCURACY,
    AFTER,
    AGAIN,
    AUDIT,
    BEHIND_ALL,
    BUDGET,
    DRIFT,
    EVERYTHING,
    LENGTH,
    SCORE,
    TIMED,
    of_gates,
    with_implied,
)
from pytest_tokenwatt.campaign.ledger import blank_record
from pytest_tokenwatt.campaign.misfits import misfits
from pytest_tokenwatt.campaign.order import by_phase, repeat_of_baseline
from pytest_tokenwatt.campaign.outputs import OutputShelf
from pytest_tokenwatt.campaign.phase import Phase
from pytest_tokenwatt.campaign.places import place_problems
from pytest_tokenwatt.campaign.plan import Work, later_minutes, minutes, plan_view
from pytest_tokenwatt.campaign.resume import earlier_records
from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.campaign.suites import Shelf
from pytest_tokenwatt.engine.start import RunningEngine
from pytest_tokenwatt.errors import EngineError, Problem
from pytest_tokenwatt.gates.asked import counts_drift_answers
from pytest_tokenwatt.gates.catalog import list_gates
from pytest_tokenwatt.gates.comparable import Comparing
from pytest_tokenwatt.gates.judge import judge
from pytest_tokenwatt.records import ConfigRecord, GateResult, GateSpec, Reason
from pytest_tokenwatt.records.stored import Provenance
from pytest_tokenwatt.report.lab import report_title
from pytest_tokenwatt.report.plan_text import render_plan
from pytest_tokenwatt.report.screen import Screen
from pytest_tokenwatt.spec.model import Configuration, Spec
from pytest_tokenwatt.spec.problems import preflight
from pytest_tokenwatt.store.baselines import read_baseline
from pytest_tokenwatt.store.journal import Event, Journal

REPORT_NAME = "report.json"
JOURNAL = "journal.jsonl"
_REQUIREMENTS = ("pytest", "numpy", "scipy", "httptools")


class Lab(Desk):
    """One spec's run. Creating it starts nothing and writes nothing; every measurement is taken at most once."""

    def __init__(self, spec: Spec, options: LabOptions, events: LabEvents) -> None:
        super().__init__(spec, options, events)
        self.gates = list_gates(spec)
        self._session: Session | None = None
        self._phases: dict[str, Phase] = {}
        self._needed: tuple[str, ...] | None = None
        self._kinds = EVERYTHING
        self._shelf = Shelf(spec, options.scorers)
        self._live: set[str] = set()
        self._after_ran = False
        self._closed = False
        self._reference = _reference(spec, options)
        self._compares_stored = self._reference is not None

    # --- before the run

    def preflight(self, selected: Sequence[GateSpec], also: Sequence[str] = ()) -> list[Problem]:
        """Everything that can be known to go wrong with the selected gates, errors and warnings.

        ``also`` are configurations that tests measure without a gate.
        """
        chosen = self._chosen(selected, also)
        missing = () if self._reference is not None else without_baseline(self.spec, selected)
        own = (*self._unwritable(chosen), *missing, *without_candidate(self.spec), *self._of_reference())
        own = (*own, *without_effect(self.spec, chosen, selected))
        suites = self._shelf.problems() if ACCURACY in self._kinds else ()
        prompts = drift_plan.problems(self.spec) if DRIFT in self._kinds else ()
        driver = without_driver(self.spec, chosen) if self._kinds & TIMED else ()
        found = [*preflight(self.spec, chosen), *misfits(self.spec, chosen), *driver, *suites, *prompts, *own]
        return list(dict.fromkeys(found))

    def minutes(self, selected: Sequence[GateSpec], also: Sequence[str] = ()) -> float:
        """How long the run will probably take."""
        chosen, work = self._chosen(selected, also), self._work()
        return sum(minutes(config, work) for config in chosen) + later_minutes(chosen, work)

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
        self,
        selected: Sequence[GateSpec],
        live_configs: Sequence[str] = (),
        kinds: frozenset[str] = EVERYTHING,
        measured: Sequence[str] = (),
    ) -> None:
        """Say what will be judged, for which configurations tests want the running engine, and what they measure.

        ``measured`` are the configurations that tests ask for figures, ``kinds`` what figures those are.
        """
        self._live = set(live_configs)
        base, named = self.spec.baseline, {gate.config for gate in selected} | set(live_configs)
        self._compares_stored = self._reference is not None and (base is None or base.key not in named)
        asked = kinds | set(of_gates(selected))
        if LENGTH in asked:
            asked |= {ACCURACY, DRIFT} if counts_drift_answers(self.spec) else {ACCURACY}
        if SCORE in asked:
            # A record is admitted when everything that its spec asks for is valid, and not only what it is made of.
            blocks = {AUDIT: self.spec.audit, BUDGET: self.spec.budget}
            asked |= {kind for kind, block in blocks.items() if block is not None}
        self._kinds = with_implied(asked)
        self._needed = self._keys_for(selected, (*live_configs, *measured))

    def last_phase_of(self, gate: GateSpec) -> str:
        """Key of the last configuration that must be measured before the gate can be judged, or ``AFTER`` all."""
        if gate.needs in BEHIND_ALL and self._aftermath().needed:
            return AFTER
        if not (needs_the_band(gate) or gate.needs in BEHIND_ALL):
            return gate.config
        return self._keys_for([gate], self._needed or ())[-1]

    def measured_last(self, kinds: Iterable[str]) -> bool:
        """Whether any of ``kinds`` is only known when engines were started behind the last configuration's phase."""
        return not BEHIND_ALL.isdisjoint(kinds) and self._aftermath().needed

    # --- measuring and judging

    def engine(self, config: str) -> RunningEngine:
        """The running engine of a configuration. Raises ``EngineError`` when it did not start or is over."""
        self._live.add(config)
        record = self._record(config)
        engine = self._phases[config].engine
        if engine is None:
            why = "; ".join(str(reason) for reason in record.invalid) or "its phase is over"
            raise EngineError("engine_not_running", f"the engine of {config} is not running: {why}")
        return engine

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
        """As ``Desk``; every record is stored with its provenance first."""
        if self.finished is None and self._phases:
            made = self._provenance()
            for phase in self._phases.values():
                phase.amend(replace(phase.record, provenance=made))
        done = super().finish()
        if done is not None and self._session is not None and not self._closed:
            self._closed = True
            verdicts = {each.id: each.verdict.value for each in done.results}
            self._session.journal.write(Event.RUN_FINISHED, verdicts=verdicts)
        return done

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

    def _unwritable(self, chosen: Sequence[Configuration]) -> Iterator[Problem]:
        """Places of results that cannot be written: found before the first measurement, not behind the last."""
        keys = [config.key for config in chosen]
        yield from place_problems(self.spec.path, self._run_dir, self._options, keys)
        if not self._options.resume and self._run_dir.record_file is None and (self.run_dir / JOURNAL).exists():
            what = f"{self.run_dir} holds a run already, whose files are written over"
            remedy = "name another place, or continue that run with --tokenwatt-resume"
            yield Problem(str(self.spec.path), None, "--tokenwatt-out", what, remedy, severity="warning")
        if self._options.resume and not _can_be_resumed(self.run_dir):
            remedy = "name the run directory, or one that is empty or absent"
            yield Problem(str(self.spec.path), None, "--tokenwatt-resume", f"{self.run_dir} holds no run", remedy)

    def _of_reference(self) -> Iterator[Problem]:
        """Which stored baseline counts, and what is known against it."""
        for note in self._remarks():
            yield Problem("--tokenwatt-baseline", None, None, note, severity="warning")

    def _keys_for(self, selected: Sequence[GateSpec], also: Sequence[str] = ()) -> tuple[str, ...]:
        """The configurations that must be measured, in the order of phases."""
        wanted = {gate.config for gate in selected} | set(also)
        if self._compares_stored:
            return tuple(config.key for config in by_phase(self.spec) if config.key in wanted)
        if any(compares(gate) and gate.kind != "audit" for gate in selected) and self.spec.baseline is not None:
            wanted.add(self.spec.baseline.key)
        repeat = repeat_of_baseline(self.spec)
        if AGAIN in self._kinds and wanted and repeat is not None:
            wanted.add(repeat.key)
        return tuple(config.key for config in by_phase(self.spec) if config.key in wanted)

    def _judged(self, gate: GateSpec) -> GateResult:
        if needs_the_band(gate) or gate.needs in BEHIND_ALL:
            # The error of a ratio is the widest band of all configurations, so that all come first.
            self._measure_all()
        if gate.needs in BEHIND_ALL:
            self._run_after()
        baseline, candidate = self._baseline_for(gate), self._record(gate.config)
        others = self._results_beside(gate) if gate.kind == "score" else ()
        comparing = Comparing(allow=self._options.allow, baselines=self._stored_baselines())
        return judge(gate, candidate, baseline, self._records(), others, comparing=comparing)

    def _measure_all(self) -> None:
        for key in self._needed or ():
            self._record(key)

    def _aftermath(self) -> Aftermath:
        keys = self._needed or tuple(each.key for each in by_phase(self.spec))
        return Aftermath(self.spec, self._kinds, keys, repeats=not self._compares_stored)

    def _run_after(self) -> None:
        """Once, behind all phases: what needs engine starts of its own."""
        after = self._aftermath()
        if self._after_ran or not after.needed:
            return
        self._after_ran = True
        self.leave(None)
        for changed in after.run({key: phase.record for key, phase in self._phases.items()}, self._open_session()):
            self._phases[changed.key].amend(changed)

    def _baseline_for(self, gate: GateSpec) -> ConfigRecord | None:
        base, stored = self.spec.baseline, self._stored_baseline()
        if not compares(gate) or (base is not None and gate.config == base.key):
            return None
        if stored is not None or base is None:
            return stored
        # An audit is about the baseline's engine; what else was measured of it does not matter.
        if gate.kind == "audit" and base.key not in self._phases:
            return blank_record(base)
        return self._record(base.key)

    def _stored_baseline(self) -> ConfigRecord | None:
        return self._reference.record if self._reference is not None and self._compares_stored else None

    def _stored_baselines(self) -> tuple[ConfigRecord, ...]:
        return self._reference.baselines if self._reference is not None and self._compares_stored else ()

    def _remarks(self) -> Sequence[str]:
        if self._reference is None:
            return ()
        if not self._compares_stored:
            return (f"{self._reference.chosen.path.name} is not compared with: the baseline is measured in this run",)
        return self._reference.notes

    def _provenance(self) -> Provenance:
        drivers = {gpu.driver for phase in self._phases.values() for gpu in phase.record.gpus if gpu.driver}
        return Provenance(
            recorded=self._started.isoformat(timespec="seconds"),
            finished=self._ended.isoformat(timespec="seconds"),
            tool=f"pytest-tokenwatt {__version__}",
            driver=drivers.pop() if len(drivers) == 1 else None,
            run_dir=self.run_dir.name,
            command=self._options.invocation,
            versions=_versions(),
            title=self._options.title,
            spec_name=self.spec.name,
            endpoints=dict(self._options.endpoints),
            quick=self.spec.is_quick,
            interrupted=self._interrupted,
        )

    @cached_property
    def _ended(self) -> datetime:
        """When the last measurement was over: asked for first when the run finishes."""
        return datetime.now(UTC).astimezone()

    def _record(self, key: str) -> ConfigRecord:
        """The configuration's record; measures it, and before it what is needed of earlier phases."""
        stored = self._stored_baseline()
        if stored is not None and stored.key == key:
            return stored
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
        self._audit_with(phase)
        if configuration.key not in self._live:
            phase.stop()

    def _audit_with(self, phase: Phase) -> None:
        """Where a configuration repeats the baseline, its engine scores what all others were timed on."""
        if AUDIT in self._kinds and phase.configuration == repeat_of_baseline(self.spec):
            for record in self._aftermath().audited_by(phase, self._records(), self._open_session()):
                self._phases[record.key].amend(record)

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
                outputs=OutputShelf(self._picked()),
                captures=self._stored_capture(),
            )
        return self._session

    def _stored_capture(self) -> CaptureShelf:
        """What a stored baseline was scored on, for this run's candidates."""
        if self._reference is None or not self._compares_stored or self.spec.drift is None:
            return CaptureShelf()
        found = captured(self._reference.chosen, self.spec)
        return CaptureShelf(why_none=str(found)) if isinstance(found, Reason) else CaptureShelf(held=found)

    def _picked(self) -> int:
        return self.spec.audit.picked if self.spec.audit is not None and AUDIT in self._kinds else 0

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


def _reference(spec: Spec, options: LabOptions) -> StoredReference | None:
    files = [read_baseline(path) for path in options.baselines]
    return stored_baseline(spec, files, options.allow) if files else None


def _can_be_resumed(run_dir: Path) -> bool:
    """Whether a run left its journal there, or nothing is there at all."""
    return not run_dir.is_dir() or (run_dir / JOURNAL).exists() or not any(run_dir.iterdir())


def _versions() -> dict[str, str]:
    own = {"python": platform.python_version(), "pytest-tokenwatt": __version__}
    return own | {name: version(name) for name in _REQUIREMENTS}

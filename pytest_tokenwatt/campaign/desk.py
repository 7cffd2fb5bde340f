"""What a live run and a replay share: verdicts that are taken once, the report, and what tests read."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from pytest_tokenwatt.campaign.baselines import by_reference
from pytest_tokenwatt.campaign.measured import Measured
from pytest_tokenwatt.campaign.observe import Deadline
from pytest_tokenwatt.campaign.publishing import Publication
from pytest_tokenwatt.campaign.saving import Course, SaveRequest, may_be_saved, save_baseline
from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.gates.band import session_band_pct, session_energy_band_pct
from pytest_tokenwatt.gates.deltas import accuracy_deltas
from pytest_tokenwatt.gates.divergence import drift_deltas
from pytest_tokenwatt.gates.judge import exit_code
from pytest_tokenwatt.gates.qualify import score_deltas
from pytest_tokenwatt.gates.shifts import length_deltas
from pytest_tokenwatt.gates.speeds import memory_deltas, speed_deltas
from pytest_tokenwatt.gates.user import judge_user_rule
from pytest_tokenwatt.quality.scoring import Scorer
from pytest_tokenwatt.records import ConfigRecord, GateResult, GateSpec
from pytest_tokenwatt.records.stored import Provenance
from pytest_tokenwatt.report.coverage import caveats
from pytest_tokenwatt.report.lab import ReportContext, build_report, report_title
from pytest_tokenwatt.report.screen import Screen
from pytest_tokenwatt.report.table import render_table
from pytest_tokenwatt.spec.model import Configuration, Spec
from pytest_tokenwatt.store.records_json import write_run_record
from pytest_tokenwatt.store.rundir import RunDirectory

REPORT_NAME = "report.json"


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
    interrupted in ``out`` is continued. ``scorers`` are those that others brought. Records may differ in what
    ``allow`` names and still be compared; ``baselines`` are stored ones to compare with.
    ``endpoints`` are those that the command line gave, by configuration; ``replays`` the files to judge again.
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
    allow: frozenset[str] = frozenset()
    baselines: tuple[Path, ...] = ()
    endpoints: Mapping[str, str] = field(default_factory=dict)
    replays: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that is over: its verdicts, its report and the exit code that they mean."""

    results: tuple[GateResult, ...]
    report: dict[str, Any]
    report_path: Path
    exit_code: int
    title: str
    notes: tuple[str, ...]

    def table(self, width: int, color: bool, encoding: str = "utf-8", verbosity: int = 0) -> str:
        """The table of verdicts, the notes and the report's path, for a terminal of ``width`` columns.

        ``verbosity`` is pytest's: below 0 only what did not pass, above 0 every figure with its error.
        """
        screen = Screen(width, color, encoding)
        report = str(self._shown_report()) if self.report_path.exists() else None
        return render_table(self.title, self.results, screen, notes=self.notes, report=report, verbosity=verbosity)

    def _shown_report(self) -> Path:
        """The form that people read, where it could be made."""
        page = self.report_path.with_suffix(".html")
        return page if page.exists() else self.report_path


class Desk(Measured):
    """Judges, and writes the report; where the records come from is up to whoever derives from it."""

    def __init__(self, spec: Spec, options: LabOptions, events: LabEvents) -> None:
        self.spec = spec
        self.gates: tuple[GateSpec, ...] = ()
        self._options = options
        self._events = events
        self._started = datetime.now(UTC).astimezone()
        place = RunDirectory.choose(options.out, spec.name, self._started, options.rootdir)
        self._run_dir = place.child(options.part) if options.part else place
        self._results: dict[str, GateResult] = {}
        self._beside: dict[str, GateResult] = {}
        self._interrupted: str | None = None
        self.finished: Finished | None = None

    @property
    def run_dir(self) -> Path:
        """Where this run writes; created with its first file."""
        return self._run_dir.path

    def judge(self, gate: GateSpec) -> GateResult:
        """The verdict of a gate; measures what it needs that was not measured yet."""
        identity = f"{gate.config}::{gate.gate}"
        if identity not in self._results:
            self._results[identity] = self._judged(gate)
        return self._results[identity]

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

    def finish(self) -> Finished | None:
        """Write the report; ``None`` when nothing was measured or judged. Calling it again returns the same.

        Raises ``UsageError`` or ``OSError`` when a file cannot be written; ``finished`` then has the verdicts still.
        """
        if self.finished is None and (self._results or self._records()):
            self.finished = self._finish()
            complaints = self._write(self.finished)
            self.finished = replace(self.finished, notes=(*self.finished.notes, *complaints))
        return self.finished

    def baseline_configuration(self) -> Configuration | None:
        """The baseline's configuration; of a stored baseline that the spec does not have, one of its key."""
        stored = self._stored_baseline()
        if self.spec.baseline is not None or stored is None:
            return self.spec.baseline
        changed = {"key": stored.key, "role": "baseline", "label": stored.label}
        return self.spec.configurations[0].model_copy(update=changed)

    @property
    def compares_with_stored(self) -> bool:
        """Whether a stored record stands for the baseline."""
        return self._stored_baseline() is not None

    @property
    def decides_nothing(self) -> bool:
        """Whether gates were judged and none of them could be decided for want of stored figures."""
        return False

    def save_baselines(self, requests: Sequence[SaveRequest], course: Course) -> Iterator[str]:
        """Store records as baselines, unless something speaks against it; one line for each. Raises ``OSError``."""
        records = {record.key: record for record in self._kept()}
        for request in requests:
            record = records.get(request.key)
            why = self._objection() or may_be_saved(self._ordered_results(), course, record)
            if why is not None or record is None:
                yield f"{request.path} is not stored as baseline: {why}"
            else:
                source = self._files_of(request.key)
                yield from save_baseline(
                    request.path, record, source=source, gates=course.gates, made=self._provenance()
                )

    def _objection(self) -> str | None:
        """What else speaks against storing a record."""
        return None

    def _files_of(self, key: str) -> Path | None:  # noqa: ARG002 - a replay has them elsewhere for each
        """The directory of a record's files."""
        return self.run_dir

    @abstractmethod
    def _judged(self, gate: GateSpec) -> GateResult:
        """Judge a gate, measuring what it needs if that is to be measured."""

    @abstractmethod
    def _provenance(self) -> Provenance:
        """When and by what the records were made."""

    @abstractmethod
    def leave(self, config: str | None) -> None:
        """No further item needs this configuration's engine (``None``: of any)."""

    # --- inside

    def _results_beside(self, gate: GateSpec) -> tuple[GateResult, ...]:
        """The verdicts of the configuration's other gates, whether or not they are items of this run."""
        others = [each for each in self.gates if each.config == gate.config and each.gate != gate.gate]
        for each in others:
            if f"{each.config}::{each.gate}" not in self._results:
                self._beside[f"{each.config}::{each.gate}"] = self._judged(each)
        known = {**self._beside, **self._results}
        return tuple(known[f"{each.config}::{each.gate}"] for each in others)

    def _ordered_results(self) -> tuple[GateResult, ...]:
        """Gates in the spec's order, then users' own rules."""
        ranks = {f"{gate.config}::{gate.gate}": rank for rank, gate in enumerate(self.gates)}
        return tuple(sorted(self._results.values(), key=lambda result: ranks.get(result.id, len(ranks))))

    def _finish(self) -> Finished:
        self.leave(None)
        records, results, made = self._records(), self._ordered_results(), self._provenance()
        report = build_report(self.spec, records, results, self._context(records, made))
        return Finished(
            results=results,
            report=report,
            report_path=self._run_dir.file(REPORT_NAME),
            exit_code=exit_code(results),
            title=report_title(self.spec, made.title),
            notes=(*caveats(self.spec, records, interrupted=made.interrupted), *self._remarks()),
        )

    def _stored_baselines(self) -> tuple[ConfigRecord, ...]:
        """All runs of a stored baseline; empty when it is measured in this session."""
        return ()

    def _kept(self) -> tuple[ConfigRecord, ...]:
        """The records as they were measured, for files of records."""
        return self._records()

    def _remarks(self) -> Sequence[str]:
        """Further lines below the table."""
        return ()

    def _write(self, finished: Finished) -> tuple[str, ...]:
        """Write everything; a line for each form of the report that could not be made."""
        if self._run_dir.record_file is not None and self._kept():
            write_run_record(self._run_dir.record_file, self._kept())
        published = Publication(finished.report, self._records(), finished.results, self._raw_dir())
        return published.write(finished.report_path, self._options.reports, os.environ)

    def _raw_dir(self) -> Path | None:
        """The directory of the records' raw files; ``None`` when there is none."""
        return self.run_dir

    def _context(self, records: Sequence[ConfigRecord], made: Provenance) -> ReportContext:
        scenario, base = self.spec.configurations[0].scenarios[0].name, self._stored_baseline()
        several, each = self._stored_baselines(), partial(by_reference, records, base)
        results = tuple({**self._beside, **self._results}.values())
        return ReportContext(
            generated=_instant(made.recorded) or self._started,
            finished=_instant(made.finished),
            command=made.command,
            versions=made.versions,
            variance_band_pct=session_band_pct(records, scenario, several),
            energy_band_pct=session_energy_band_pct(records, scenario, several),
            accuracy=each(lambda own: accuracy_deltas(self.spec, records, own)),
            lengths=each(lambda own: length_deltas(self.spec, records, own)),
            drift=each(lambda own: drift_deltas(self.spec, records, own)),
            speeds=each(lambda own: speed_deltas(self.spec, records, own, several)),
            memories=each(lambda own: memory_deltas(self.spec, records, own, several)),
            scores=each(lambda own: score_deltas(self.spec, records, results, own, several)),
            title=made.title,
            interrupted=made.interrupted,
            baseline=base,
        )


def _instant(text: str | None) -> datetime | None:
    """An aware instant; ``None`` for what a record from elsewhere says instead of one."""
    try:
        found = None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found is None or found.tzinfo is not None else found.astimezone()

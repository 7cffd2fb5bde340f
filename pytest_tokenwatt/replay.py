"""Judging stored records again: the same gates, report and values as of a live run, without an engine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from pytest_tokenwatt.campaign.as_recorded import adapted, compared_with, shared, spec_of
from pytest_tokenwatt.campaign.baselines import OPTION as BASELINE
from pytest_tokenwatt.campaign.baselines import StoredReference, reference_for, stored_baseline
from pytest_tokenwatt.campaign.desk import Desk, Finished, LabEvents, LabOptions
from pytest_tokenwatt.campaign.foreseen import compares, needs_baseline
from pytest_tokenwatt.campaign.kinds import EVERYTHING
from pytest_tokenwatt.campaign.places import place_problems
from pytest_tokenwatt.campaign.publishing import Publication
from pytest_tokenwatt.campaign.replaying import Merged, Named, changed_verdicts, merge, unjudged_verdicts, with_roles
from pytest_tokenwatt.errors import NothingRuns, NotMeasured, Problem, UsageError
from pytest_tokenwatt.gates.catalog import list_gates
from pytest_tokenwatt.gates.comparable import SLO, Comparing, allowed_names
from pytest_tokenwatt.gates.decidable import asks_for, undecidable
from pytest_tokenwatt.gates.finding import NOT_STORED
from pytest_tokenwatt.gates.judge import EXIT_FAIL, judge, not_stored
from pytest_tokenwatt.gates.promised import known_under
from pytest_tokenwatt.records import ConfigRecord, GateResult, GateSpec, Reason, SloBound
from pytest_tokenwatt.records.stored import Provenance
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.spec.model import Spec
from pytest_tokenwatt.store.baselines import read_baseline
from pytest_tokenwatt.store.replay.read import read_stored
from pytest_tokenwatt.store.tools.promise import under_slo

_NO_ENGINE = "a replay starts no engine: this needs a live one"


class ReplayLab(Desk):
    """Stored records under a spec's gates. Nothing is measured, and nothing is written before ``finish``.

    ``sources`` are the files and the records that they hold, in the roles that they were recorded in.

    ``gates`` are those that become items: what the records decide, and what the spec asks for and they do not.
    ``undecided`` are the others with the reason, listed without an item.
    """

    def __init__(
        self,
        spec: Spec,
        merged: Merged,
        options: LabOptions,
        events: LabEvents,
        sources: Sequence[tuple[Path, ConfigRecord]] = (),
        *,
        keeps: bool = True,
    ) -> None:
        super().__init__(spec, options, events)
        self.sources = tuple(sources)
        self._keeps = keeps
        self._merged = merged
        order = {config.key: place for place, config in enumerate(spec.configurations)}
        ordered = sorted(merged.records, key=lambda each: order[each.key])
        self._measured = {each.key: under_slo(each, _bounds(spec, each.key)) for each in ordered}
        self._stored = {key: self._under_given_slo(each) for key, each in self._measured.items()}
        self._places = merged.places
        self._reference = self._stored_reference()
        self._missing: dict[str, Reason] = {}
        self.undecided: tuple[tuple[GateSpec, Reason], ...] = ()
        self._sort_gates()

    # --- what the plugin asks of every lab

    def preflight(self, selected: Sequence[GateSpec], also: Sequence[str] = ()) -> list[Problem]:  # noqa: ARG002
        """What a reader must know of the files, and places that cannot be written."""
        place = str(self.spec.path)
        notes = [Problem(place, None, None, note, severity="warning") for note in self._merged.notes]
        return [*notes, *place_problems(self.spec.path, self._run_dir, self._options, self._stored)]

    def minutes(self, selected: Sequence[GateSpec], also: Sequence[str] = ()) -> float:  # noqa: ARG002
        """None: nothing is measured."""
        return 0.0

    def plan_text(self, selected: Sequence[GateSpec], *_: object, **__: object) -> str:
        """What would be judged."""
        lines = [f"{gate.config} {gate.gate}" for gate in selected]
        return "\n".join(["a replay starts nothing; it judges", *(f"  - {line}" for line in lines), ""])

    def select(
        self,
        selected: Sequence[GateSpec],
        live_configs: Sequence[str] = (),
        kinds: frozenset[str] = EVERYTHING,
        measured: Sequence[str] = (),
    ) -> None:
        """Nothing depends on the selection."""

    def last_phase_of(self, gate: GateSpec) -> str:
        """There are no phases: every gate stands with its configuration."""
        return gate.config

    def measured_last(self, kinds: Iterable[str]) -> bool:  # noqa: ARG002
        """Nothing is measured."""
        return False

    def engine(self, config: str) -> NoReturn:
        """Raises ``NothingRuns``: the test is to be skipped."""
        raise NothingRuns(_NO_ENGINE, where=config)

    def leave(self, config: str | None) -> None:
        """Nothing runs."""

    def interrupted(self) -> None:
        """Nothing is lost."""

    def close(self) -> None:
        """Nothing is open."""

    # --- inside

    def _stored_reference(self) -> StoredReference | None:
        """The stored baseline that counts: where none of the files is of one."""
        files = [read_baseline(path) for path in self._options.baselines]
        if not files or any(record.role == "baseline" for record in self._stored.values()):
            return None
        found = stored_baseline(self.spec, files, self._options.allow)
        fitting = [reference_for(record, found.record) for record in self._stored.values()]
        # Where it is a copy of all that is replayed, texts must not compare with it either.
        return found if found.record in fitting or fitting[0] is None else replace(found, record=fitting[0])

    def _under_given_slo(self, record: ConfigRecord) -> ConfigRecord:
        """What is known of a record under the SLO of a spec that was given, unless SLOs may differ."""
        if not self._merged.given or SLO in self._options.allow:
            return record
        return known_under(record, _bounds(self.spec, record.key))

    def _candidate(self, gate: GateSpec) -> ConfigRecord | None:
        """The record that a gate judges; that of the SLO is about the windows as they were measured."""
        return (self._measured if gate.kind == "slo" else self._stored).get(gate.config)

    def _kept(self) -> tuple[ConfigRecord, ...]:
        return tuple(self._measured.values())

    def _sort_gates(self) -> None:
        items: list[GateSpec] = []
        others: list[tuple[GateSpec, Reason]] = []
        for gate in list_gates(self.spec, self._records()):
            record = self._candidate(gate)
            if record is None:
                continue
            why = self._without_its_baseline(gate, record)
            why = why or undecidable(gate, record, self._baseline_for(gate), self._records())
            if why is None:
                items.append(gate)
            elif asks_for(self.spec, gate):
                items.append(gate)
                self._missing[f"{gate.config}::{gate.gate}"] = why
            else:
                others.append((gate, why))
        self.gates, self.undecided = tuple(items), tuple(others)

    def _without_its_baseline(self, gate: GateSpec, record: ConfigRecord) -> Reason | None:
        """A run that compared with a stored baseline failed for want of one only where it is not named again."""
        files = compared_with(record) if needs_baseline(gate) and record.role != "baseline" else None
        if files is None or self._baseline_for(gate) is not None:
            return None
        return Reason(NOT_STORED, f"{record.key} was compared with {files}; name it with {BASELINE}=FILE")

    def _judged(self, gate: GateSpec) -> GateResult:
        why = self._missing.get(f"{gate.config}::{gate.gate}")
        if why is not None:
            return not_stored(gate, why)
        others = self._results_beside(gate) if gate.kind == "score" else ()
        candidate = self._candidate(gate) or self._record(gate.config)
        baseline = self._baseline_for(gate)
        comparing = Comparing(allow=self._options.allow, baselines=self._stored_baselines())
        return judge(gate, candidate, baseline, self._records(), others, comparing=comparing)

    def _baseline_for(self, gate: GateSpec) -> ConfigRecord | None:
        base = self.spec.baseline
        if not compares(gate) or (base is not None and gate.config == base.key):
            return None
        if self._reference is not None or base is None:
            return reference_for(self._stored[gate.config], self._stored_baseline())
        return self._stored.get(base.key)

    def _record(self, key: str) -> ConfigRecord:
        if self._reference is not None and key == self._reference.record.key:
            return self._reference.record
        if key not in self._stored:
            raise NotMeasured(key, f"the replayed files hold {', '.join(self._stored)}")
        return self._stored[key]

    def _records(self) -> tuple[ConfigRecord, ...]:
        return tuple(self._stored.values())

    def _stored_baseline(self) -> ConfigRecord | None:
        return self._reference.record if self._reference is not None else None

    def _stored_baselines(self) -> tuple[ConfigRecord, ...]:
        return self._reference.baselines if self._reference is not None else ()

    def _measure_all(self) -> None:
        """Nothing is measured."""

    def _run_after(self) -> None:
        """Nothing is measured."""

    def _provenance(self) -> Provenance:
        """That of the records, as far as they share it: a replay is the same report, judged again."""
        made = [record.provenance for record in self._records()]
        title = self._options.title or shared(each.title for each in made) or self._merged.title
        return Provenance(
            recorded=max((each.recorded for each in made if each.recorded), default=None),
            finished=max((each.finished for each in made if each.finished), default=None),
            tool=shared(each.tool for each in made),
            driver=shared(each.driver for each in made),
            command=shared(each.command for each in made) or self._options.invocation,
            versions=shared(each.versions for each in made) or {},
            title=title,
            interrupted=shared(each.interrupted for each in made),
        )

    def _remarks(self) -> Sequence[str]:
        named = ", ".join(f"{gate.config} {gate.gate}" for gate, _ in self.undecided)
        listed = [f"Not decidable by what is stored, and therefore not judged: {named}"] if named else []
        of_reference = self._reference.notes if self._reference is not None else self._unused_baselines()
        judged = [result for identity, result in self._results.items() if identity not in self._missing]
        changed = changed_verdicts(self._merged.verdicts, judged)
        listed += [
            f"{gate.replace('::', ' ')} is stored as {verdict}, and nothing here judges it"
            for gate, verdict in self._unjudged().items()
        ]
        return (*self._merged.notes, *of_reference, *changed, *listed)

    def _unjudged(self) -> dict[str, str]:
        gates = [*self.gates, *(gate for gate, _ in self.undecided)]
        known = {f"{gate.config}::{gate.gate}" for gate in gates} | set(self._results)
        return unjudged_verdicts(self._merged.verdicts, known)

    def _objection(self) -> str | None:
        told = [f"{gate} {verdict}" for gate, verdict in self._unjudged().items()]
        return f"in its own run, and not judged here: {', '.join(told)}" if told else None

    def _unused_baselines(self) -> tuple[str, ...]:
        """A baseline that is replayed counts before those that are stored elsewhere."""
        names = ", ".join(path.name for path in self._options.baselines)
        return (f"the replayed files hold the baseline, so that {names} is not used",) if names else ()

    def _finish(self) -> Finished:
        done = super()._finish()
        report = {**done.report, "replayed": [run.name for run in self._replayed]}
        if self._merged.status is not None:
            report["status"] = self._merged.status
        return replace(done, report=report, exit_code=EXIT_FAIL if self.decides_nothing else done.exit_code)

    def _write(self, finished: Finished) -> tuple[str, ...]:
        if self._keeps:
            return super()._write(finished)
        published = Publication(finished.report, self._records(), finished.results, None)
        return published.summarise(None, os.environ)

    @property
    def decides_nothing(self) -> bool:
        """Whether no gate that was judged is decided by what is stored."""
        return all(identity in self._missing for identity in self._results)

    def _raw_dir(self) -> Path | None:
        """That of the only path, if the raw files can lie there."""
        if len(self._replayed) != 1:
            return None
        path = self._replayed[0]
        return path if path.is_dir() else path.parent

    def _files_of(self, key: str) -> Path | None:
        return self._places.get(key)

    @property
    def _replayed(self) -> tuple[Path, ...]:
        return self._options.replays


def _bounds(spec: Spec, key: str) -> dict[str, tuple[SloBound, ...]]:
    """The promises of a configuration by scenario: other tools' rates are judged by them."""
    return {each.name: each.bounds for each in spec.configuration(key).scenarios}


class _Quiet:
    """Progress that nobody reads."""

    def line(self, text: str) -> None:
        """Let it go."""


def open_replay(
    paths: Sequence[Path],
    *,
    spec: Path | None = None,
    allow: Sequence[str] = (),
    baselines: Sequence[Path] = (),
    title: str | None = None,
    out: Path | None = None,
    roles: Sequence[str] | None = None,
    keeps: bool = True,
) -> ReplayLab:
    """The lab of stored files: run records, run directories, lab reports, submissions, results of other tools.

    ``roles`` gives each path a role, whatever it was recorded as. Without ``keeps`` no report is written, and only
    the CI's step summary is appended to. Raises ``UsageError`` with one line for a file that
    cannot be read and for files that do not go together.
    """
    options = LabOptions(
        rootdir=Path.cwd(),
        invocation=("python", "-m", "pytest_tokenwatt", "report", *map(str, paths)),
        out=out,
        title=title,
        allow=allowed_names(allow),
        baselines=tuple(baselines),
        replays=tuple(paths),
    )
    given = load_spec(spec) if spec is not None else None
    return replay_lab(given, options, _Quiet(), roles=roles, keeps=keeps)


def replay_lab(
    given: Spec | None,
    options: LabOptions,
    events: LabEvents,
    *,
    roles: Sequence[str] | None = None,
    keeps: bool = True,
) -> ReplayLab:
    """The lab of ``options.replays`` under the spec that was ``given``, else the stored one. Raises ``UsageError``."""
    runs = [Named(path, read_stored(path)) for path in options.replays]
    if not runs:
        raise UsageError("there is nothing to replay", remedy="name a run directory, a record or a report")
    named = with_roles(runs, roles) if roles is not None else runs
    merged = merge(named, given)
    spec = adapted(spec_of(given, merged, named[0].path), merged.records)
    sources = [(each.path, record) for each in runs for record in each.run.records]
    return ReplayLab(spec, merged, options, events, sources, keeps=keeps)

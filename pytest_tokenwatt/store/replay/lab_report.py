"""Lab reports, ours and published ones, as a replay reads them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records import ConfigRecord, GoodputRecord, Reason, SuiteRecord
from pytest_tokenwatt.records.drift import DriftRecord
from pytest_tokenwatt.records.stored import Provenance, StoredFigures
from pytest_tokenwatt.store.replay import machine
from pytest_tokenwatt.store.replay.asked import profile_settings
from pytest_tokenwatt.store.replay.comparisons import comparison, control
from pytest_tokenwatt.store.replay.complete import check_validity
from pytest_tokenwatt.store.replay.engine_facts import audits, precision, startup
from pytest_tokenwatt.store.replay.fields import Fields
from pytest_tokenwatt.store.replay.named import role_of
from pytest_tokenwatt.store.replay.profiles import again, budgets, profiles
from pytest_tokenwatt.store.replay.quality import (
    Asked,
    baseline_drift,
    by_suite,
    candidate_drift,
    entries,
    perplexity_deltas,
    suites,
)
from pytest_tokenwatt.store.replay.run_records import RECORDS
from pytest_tokenwatt.store.replay.serving import Serving
from pytest_tokenwatt.store.replay.stored_spec import report_spec, suite_titles
from pytest_tokenwatt.store.replay.submission import KIND as SUBMISSION
from pytest_tokenwatt.store.replay.told import answer_sample, intervals, reasons_of_nulls, unknown
from pytest_tokenwatt.store.stored_run import StoredRun

KIND = "lab report"
SCHEMA = "tokenwatt-report/1"
_BASELINE = "baseline"
_GOODPUT = "goodput"
_OF_SERVING = "slo_differs"
_VERDICTS = ("fail", "invalid", "inconclusive", "pass")
"""The worst first."""
_QUICK, _INTERRUPTED = "Quick mode:", "Interrupted run: "


def read_lab_report(path: Path, content: Mapping[str, Any]) -> StoredRun:
    """A report's configurations as records, to be judged by its own spec. Raises ``UsageError``."""
    report = Fields(str(path), content)
    schema = report.text("schema")
    if schema not in (None, SCHEMA):
        what = f"schema {schema!r} is not {SCHEMA!r}"
        raise UsageError(what, where=str(path), remedy="read it with the version that wrote it")
    spec, notes = report_spec(report)
    rows = _rows(report)
    if schema is not None:
        check_validity(rows)
    reader = _Reader(report, spec, rows)
    return StoredRun(
        kind=KIND,
        spec=spec,
        records=tuple(reader.record(key, row) for key, row in rows.items()),
        notes=(*notes, *_beside(path)),
        status=_status(report),
        title=report.text("title"),
        verdicts=listed_verdicts(report),
    )


def listed_verdicts(report: Fields) -> dict[str, str]:
    """The verdicts of a report by the gate's id. Raises ``UsageError``."""
    listed = ((row.text("id"), row.text("verdict")) for row in report.rows("gates"))
    return {identity: verdict for identity, verdict in listed if identity is not None and verdict in _VERDICTS}


def _status(report: Fields) -> str | None:
    status = report.text("status")
    if status not in (None, "draft", "published"):
        raise report.wrong("status", f"{status!r} is neither draft nor published")
    return status


def _rows(report: Fields) -> dict[str, Fields]:
    listed = report.rows("configs")
    if not listed:
        raise report.wrong("configs", "there is no configuration" if report.has("configs") else "the key is missing")
    found: dict[str, Fields] = {}
    for row in listed:
        key = row.wanted("key")
        if key in found:
            raise row.wrong("key", f"{key} is taken by another configuration")
        found[key] = row
    return found


def _beside(path: Path) -> Iterator[str]:
    try:
        records = any(path.parent.glob(RECORDS))
    except OSError:
        records = False
    if records:
        yield f"the records beside it hold more; name the directory {path.parent} to judge by them"


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads one entry of ``configs`` after the other."""

    report: Fields
    spec: dict[str, Any]
    rows: Mapping[str, Fields]

    def record(self, key: str, row: Fields) -> ConfigRecord:
        """The record of one configuration."""
        invalid, of_serving = self._reasons(row)
        scenarios = Serving(self.report, self.spec).scenarios(row, of_serving)
        stated = row.block("profiles")
        return ConfigRecord(
            key=key,
            role=self._role(row),
            label=row.text("label") or key,
            like=row.text("like"),
            identity=machine.identity(self.report, row),
            fingerprint=machine.fingerprint(self.report, key),
            contract=None,
            scenarios=scenarios,
            invalid=invalid,
            not_covered=self._not_covered(),
            launch=machine.launch(self.report, key),
            minutes=row.block("minutes").numbers(least=0.0),
            files=row.texts("files"),
            spec=self.spec,
            power=machine.power(self.report, row),
            gpus=machine.gpus(self.report, row),
            rated_bandwidth=machine.rated_bandwidth(self.report),
            suites=self._suites(key, row),
            drift=self._drift(key, row),
            startup=startup(row.block("startup")),
            precision=precision(row.block("precision"), row.block("precision").number("stored_gib", least=0.0)),
            profiles=profiles(row.block("efficiency"), row.block("peak_memory"), stated, self._settings()),
            again=again(stated),
            budgets=budgets(row.block("budget")),
            audits=audits(row.block("timed_audit"), _first(scenarios)),
            stored=self._stored(key, row),
            provenance=self._provenance(),
        )

    def _role(self, row: Fields) -> str:
        return role_of(row.wanted("key"), row.text("role"), row.text("like"))

    def _reasons(self, row: Fields) -> tuple[tuple[Reason, ...], tuple[Reason, ...]]:
        """What speaks against the whole configuration, and what only against its serving.

        An entry has both in one list. Where nothing was served, or a suite has the same reason, it is of the whole,
        but for a goodput under another SLO, which is never of more than serving.
        """
        found = row.reasons()
        if row.data.get("slo_pass_count") is None and not any(reason.code == _OF_SERVING for reason in found):
            return found, ()
        others = [set(entry.reasons()) for entry in row.rows("accuracy") if entry.has("validity")]
        whole = tuple(reason for reason in found if others and all(reason in other for other in others))
        return whole, tuple(reason for reason in found if reason not in whole)

    def _not_covered(self) -> tuple[str, ...]:
        own = self.report.block("spec").texts("not_covered")
        return tuple(line for line in self.report.texts("not_covered") if line not in own)

    def _asked(self) -> Asked:
        titles, blocks = suite_titles(self.spec), self.report.block("spec").rows("accuracy")
        return Asked(titles, dict(zip(titles, blocks, strict=False)) if len(titles) == len(blocks) else {})

    def _hashes(self, name: str) -> Fields:
        return self.report.block("provenance").block("hashes").block(name)

    def _suites(self, key: str, row: Fields) -> dict[str, SuiteRecord]:
        """A baseline itself is compared with nothing."""
        base = next((each for each in self.rows.values() if self._role(each) == _BASELINE), row)
        compared = {} if self._role(row) == _BASELINE else entries(base, self._asked())
        hashes = self._hashes("suite_sha256").block(key)
        return suites(row, self._asked(), hashes, {} if base is row else compared, ours=self._ours)

    @property
    def _ours(self) -> bool:
        return self.report.text("schema") == SCHEMA

    def _drift(self, key: str, row: Fields) -> DriftRecord | None:
        sha256 = self._hashes("drift_sha256").text(key) or ""
        if self._role(row) != _BASELINE:
            return candidate_drift(row.block("kl"), sha256)
        others = (each.block("kl") for each in self.rows.values() if self._role(each) != _BASELINE)
        empty = Fields(row.where, {})
        return baseline_drift(row.block("kl"), next((each for each in others if each.data), empty), sha256)

    def _settings(self) -> Fields:
        return Fields(self.report.where, profile_settings(self.spec.get("profiles")), "spec.profiles")

    def _stored(self, key: str, row: Fields) -> StoredFigures:
        told = {name: entry for name, entry in entries(row, self._asked()).items() if entry.data}
        ends = {name: entry.pair("interval_pts") for name, entry in told.items()}
        of_suites = {f"accuracy.{name}": each for name, each in ends.items() if each is not None}
        compared = {name: comparison(entry, self._items(name)) for name, entry in told.items()}
        controls = {name: control(entry) for name, entry in told.items()}
        lowest, result = row.block("accuracy_summary"), row.block("submission").block("result")
        drop = result.number("mean_drop", least=-1.0, most=1.0)
        scored = any(entry.number("score") is not None for entry in told.values())
        alone = drop is not None and not (scored or self._asked().titles)
        return StoredFigures(
            # What was submitted states the mean drop alone, without the suites that it is of.
            source=SUBMISSION if alone else KIND,
            band_pct=self.report.number("variance_band_pct", least=0.0),
            delta_pts={} if self._role(row) == _BASELINE else by_suite(row, self._asked(), "delta_pts"),
            spread_pts=by_suite(row, self._asked(), "spread_pts"),
            mean_drop_pts=100.0 * drop if drop is not None and alone else lowest.number("mean_drop_pts"),
            valid_domains=(result.block("quality") if alone else lowest).count("valid_domains"),
            drift_points=result.number("drift") if alone else None,
            gpu_hours=result.number("gpu_hours", least=0.0),
            length_shift=row.number("length_shift", least=-1.0),
            verdicts=self._verdicts(key),
            perplexity=perplexity_deltas(row.block("kl").block("ppl")),
            intervals={**intervals(row), **of_suites},
            unknown=(*unknown(row), *(["variance_band_pct"] if self.report.null("variance_band_pct") else [])),
            score_se=result.number("score_se", least=0.0),
            suites={name: each for name, each in compared.items() if each is not None},
            controls={name: each for name, each in controls.items() if each is not None},
            answers=answer_sample(row),
            missing=dict(reasons_of_nulls(row)),
        )

    def _items(self, name: str) -> int | None:
        """How many different items a suite has."""
        asked = {entry.text("suite"): entry.count("n") for entry in self.report.rows("accuracy")}
        return asked.get(name)

    def _verdicts(self, key: str) -> dict[str, str]:
        """The contract: what the engine answered is not part of a report, only whether that was enough."""
        told = {row.text("verdict") for row in self.report.rows("gates") if _is_contract(row, key)}
        found = next((verdict for verdict in _VERDICTS if verdict in told), None)
        return {"contract": found} if found else {}

    def _provenance(self) -> Provenance:
        told, lines = self.report.block("provenance"), self.report.texts("not_covered")
        versions = told.block("versions").words()
        stopped = next((line.removeprefix(_INTERRUPTED) for line in lines if line.startswith(_INTERRUPTED)), None)
        tool = versions.get("pytest-tokenwatt")
        return Provenance(
            recorded=told.text("generated") or self.report.text("published"),
            finished=self._finished(),
            tool=f"pytest-tokenwatt {tool}" if tool else None,
            driver=self.report.block("hardware").text("driver"),
            command=_words(self.report.text("reproduce")) if self._ours else (),
            versions=versions,
            title=self.report.text("title"),
            quick=self._ours and any(line.startswith(_QUICK) for line in lines),
            interrupted=stopped,
        )

    def _finished(self) -> str | None:
        """The end of the run, which only submission records tell."""
        ends = (row.block("submission").text("updated_at") for row in self.rows.values())
        return next(filter(None, ends), None)


def _is_contract(row: Fields, key: str) -> bool:
    return row.text("config") == key and row.text("gate") == "contract"


def _first(scenarios: Mapping[str, GoodputRecord]) -> str:
    """What the audit of the first scenario's windows is called."""
    name = next(iter(scenarios), "default")
    return _GOODPUT if name == "default" else f"{_GOODPUT}[{name}]"


def _words(command: str | None) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command or ""))
    except ValueError:
        return ()

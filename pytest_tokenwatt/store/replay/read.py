"""Whatever a replay is given: recognised by its content, read as a spec and records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records import SCHEMA
from pytest_tokenwatt.store.ranges import out_of_range
from pytest_tokenwatt.store.replay import lab_report
from pytest_tokenwatt.store.replay.fields import Fields
from pytest_tokenwatt.store.replay.lab_report import listed_verdicts, read_lab_report
from pytest_tokenwatt.store.replay.loading import REMEDY, load_mapping
from pytest_tokenwatt.store.replay.run_records import read_run_directory, read_run_record
from pytest_tokenwatt.store.replay.submission import read_submission
from pytest_tokenwatt.store.stored_run import StoredRun
from pytest_tokenwatt.store.tools.read import read_tool_result

_RECORD = frozenset(("key", "role", "like", "scenarios", "launch", "minutes", "fingerprint", "contract"))
_SUBMISSION = frozenset(("result", "stages", "solution", "task_id", "participant", "partition", "split", "track"))
_REPORT = frozenset(
    ("id", "status", "published", "summary", "software", "runs", "variance_band_pct", "fleet", "reproduce", "configs")
)
_SPEC = frozenset(("engine", "model", "slo", "workload", "measurement", "sweep", "gates", "configs", "accuracy"))
_OWN_REPORT = "report.json"
_ENOUGH = 3
"""Keys that must be there before a file counts as one of a kind."""


def read_stored(path: Path) -> StoredRun:
    """Read a run record, a run directory, a lab report, a submission record, or another tool's result.

    A directory is read by its ``record-<config>.json``, a file by what it holds. Raises ``UsageError``, and nothing
    else, with the place and the remedy in one line: of a file that is absent, damaged or none of these, and of a value
    that cannot be what its key says.
    """
    run = _read(path)
    for record in run.records:
        for misfit in out_of_range(record):
            what = f"{record.key}: {misfit.place}: {misfit.what}"
            raise UsageError(what, where=str(path), remedy="correct the file, or write it again")
    return run


def _read(path: Path) -> StoredRun:
    if path.is_dir():
        return _with_verdicts(path, read_run_directory(path))
    content = load_mapping(path)
    if _is_record(content):
        return read_run_record(path)
    if _is_report(content):
        return read_lab_report(path, content)
    if len(_SUBMISSION & content.keys()) >= _ENOUGH:
        return read_submission(path, content)
    result = read_tool_result(content, path)
    if result is None:
        raise _strange(path, content)
    return result


def _with_verdicts(path: Path, run: StoredRun) -> StoredRun:
    """With what the directory's own report says of gates, since those of tests are in no record."""
    report = path / _OWN_REPORT
    if not report.is_file():
        return run
    try:
        return replace(run, verdicts=listed_verdicts(Fields(str(report), load_mapping(report))))
    except UsageError as error:
        return replace(run, notes=(*run.notes, f"the verdicts of the run's own tests are not known: {error}"))


def _is_record(content: Mapping[str, Any]) -> bool:
    schema = content.get("schema")
    records = isinstance(content.get("records"), list) and schema is not None
    return schema == SCHEMA or records or len(_RECORD & content.keys()) > _ENOUGH


def _is_report(content: Mapping[str, Any]) -> bool:
    known = len(_REPORT & content.keys())
    return content.get("schema") == lab_report.SCHEMA or known >= 2 * _ENOUGH


def _strange(path: Path, content: Mapping[str, Any]) -> UsageError:
    schema = content.get("schema")
    if isinstance(schema, str) and schema.startswith("tokenwatt"):
        return UsageError(f"schema {schema!r} is not known", where=str(path), remedy="read it with a newer version")
    if len(_SPEC & content.keys()) >= _ENOUGH:
        what = "is a spec, of which nothing was measured"
        return UsageError(what, where=str(path), remedy=f"run it with --tokenwatt-spec={path}")
    return UsageError("holds nothing that can be judged", where=str(path), remedy=REMEDY)

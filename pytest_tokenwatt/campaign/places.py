"""Where a run writes: what stands in the way there and what would be lost, found before anything is measured."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path

from pytest_tokenwatt.campaign.desk import LabOptions
from pytest_tokenwatt.errors import Problem, UsageError
from pytest_tokenwatt.records import ConfigRecord
from pytest_tokenwatt.store.baselines import UNKNOWN_AGE, age_text
from pytest_tokenwatt.store.records_json import read_records
from pytest_tokenwatt.store.rundir import RunDirectory, file_obstacle

OUT, REPORT = "--tokenwatt-out", "--tokenwatt-report"


def place_problems(spec: Path, run_dir: RunDirectory, options: LabOptions, keys: Collection[str]) -> Iterator[Problem]:
    """Everything against the places that ``options`` name for a run that records the configurations ``keys``.

    A place that cannot be written, one of a file that is read, and a record file whose records would be lost are
    errors; one with older records of the same configurations is a warning.
    """
    inputs = (*options.replays, *options.baselines)
    record = run_dir.record_file
    places = [(OUT, record, run_dir.obstacle()), *((REPORT, path, file_obstacle(path)) for path in options.reports)]
    for option, file, obstacle in places:
        if obstacle is not None:
            yield Problem(str(spec), None, option, obstacle, "choose a writable place")
        elif file is not None and any(each.exists() and file.exists() and each.samefile(file) for each in inputs):
            what = f"{file} is what is read here: it would be written over"
            yield Problem(str(spec), None, option, what, "name another file")
        elif option == OUT and file is not None and file.exists():
            yield _held(str(spec), file, keys)


def _held(spec: str, path: Path, keys: Collection[str]) -> Problem:
    """What happens to the records that a file holds already."""
    remedy = "name another file, or remove this one"
    try:
        held = [each.record for each in read_records(path)]
    except UsageError:
        return Problem(spec, None, OUT, f"{path} is no record of a run and would be lost", remedy)
    lost = [record.key for record in held if record.key not in keys]
    if lost:
        what = f"{path} holds the record of {', '.join(lost)}, which is not of this run and would be lost"
        return Problem(spec, None, OUT, what, remedy)
    named = ", ".join(record.key for record in held)
    what = f"{path} holds the record of {named}, {recorded_text(held[0])}: it is written over"
    return Problem(spec, None, OUT, what, severity="warning")


def recorded_text(record: ConfigRecord) -> str:
    """How long ago a record was taken, as it says itself."""
    try:
        return age_text(record.provenance.recorded, datetime.now(UTC))
    except ValueError:
        return UNKNOWN_AGE

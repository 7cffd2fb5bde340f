"""Run records and run directories as a replay reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records import ConfigRecord
from pytest_tokenwatt.store.records_json import read_records
from pytest_tokenwatt.store.replay.named import config_entry, named
from pytest_tokenwatt.store.stored_run import StoredRun

RECORDS = "record-*.json"
_JOURNAL = "journal.jsonl"


@dataclass(frozen=True, slots=True)
class _Read:
    """One record, the file that it is from, and what was left out of it."""

    path: Path
    record: ConfigRecord
    notes: tuple[str, ...]


def read_run_record(path: Path) -> StoredRun:
    """The record of one configuration, or of a run. Raises ``UsageError``."""
    return _run("run record", path, list(_read(path)))


def read_run_directory(path: Path) -> StoredRun:
    """All ``record-<config>.json`` of a directory, in the order of the spec. Raises ``UsageError``."""
    files = sorted(path.glob(RECORDS))
    if not files:
        raise _nothing(path)
    return _run("run directory", path, [each for file in files for each in _read(file)])


def _read(path: Path) -> Iterator[_Read]:
    for stored in read_records(path):
        yield _Read(path, stored.record, stored.notes)


def _nothing(path: Path) -> UsageError:
    try:
        below = sorted(file.parent.name for file in path.glob(f"*/{RECORDS}"))
    except OSError:
        below = []
    remedy = f"name one of its runs: {', '.join(dict.fromkeys(below))}" if below else "name a run directory"
    if not below and (path / _JOURNAL).is_file():
        remedy = "its run ended before a configuration was measured; go on with --tokenwatt-resume"
    return UsageError(f"holds no {RECORDS}", where=str(path), remedy=remedy)


def _run(kind: str, path: Path, read: Sequence[_Read]) -> StoredRun:
    _check_keys(path, read)
    spec, notes = _spec(read)
    ordered = sorted(read, key=lambda each: _place(each.record.key, spec))
    records = tuple(each.record for each in ordered)
    title = next((record.provenance.title for record in records if record.provenance.title), None)
    return StoredRun(
        kind=kind,
        spec=named(spec, [_entry(record, records) for record in records]),
        records=records,
        notes=(*(note for each in read for note in each.notes), *notes),
        title=title,
    )


def _check_keys(path: Path, read: Sequence[_Read]) -> None:
    first: dict[str, Path] = {}
    for each in read:
        other = first.setdefault(each.record.key, each.path)
        if other is not each.path or sum(one.record.key == each.record.key for one in read) > 1:
            what = f"two records are of the configuration {each.record.key} ({other.name}, {each.path.name})"
            raise UsageError(what, where=str(path), remedy="keep one of them")


def _spec(read: Sequence[_Read]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The spec that the records were made with, and a note where they were made with different ones."""
    for each in read:
        if not each.record.spec:
            what = f"spec: the record of {each.record.key} holds no spec, so that nothing says how to judge it"
            raise UsageError(what, where=str(each.path), remedy="write it again with this version")
    first = read[0]
    others = [each.path.name for each in read if each.record.spec != first.record.spec]
    note = f"{', '.join(others)}: made with another spec; that of {first.path.name} is used"
    return first.record.spec, (note,) if others else ()


def _place(key: str, spec: Mapping[str, Any]) -> int:
    configs = spec.get("configs")
    keys = [entry.get("key") for entry in configs if isinstance(entry, Mapping)] if isinstance(configs, list) else []
    return keys.index(key) if key in keys else len(keys)


def _entry(record: ConfigRecord, records: Sequence[ConfigRecord]) -> dict[str, Any]:
    keys = {each.key for each in records}
    like = record.like if record.like in keys else None
    return config_entry(record.key, record.role, record.label or record.key, like)

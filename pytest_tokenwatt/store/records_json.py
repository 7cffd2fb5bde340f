"""Records of configurations as files: ``record-<config>.json``, and the run's record that ``--tokenwatt-out`` names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records import SCHEMA, ConfigRecord
from pytest_tokenwatt.store.agreement import disagreeing
from pytest_tokenwatt.store.atomic import write_json
from pytest_tokenwatt.store.codec import CodecError, decode, encode
from pytest_tokenwatt.store.ranges import out_of_range
from pytest_tokenwatt.store.replay.loading import load_mapping

_WRITE_AGAIN = "write the record again with this version"
_MEASURE_AGAIN = "take the file as the run wrote it, or measure again"


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record that was read, and what the file holds that this version does not know."""

    record: ConfigRecord
    notes: tuple[str, ...]


def record_to_json(record: ConfigRecord) -> dict[str, Any]:
    """A record as JSON values, its schema first."""
    encoded = encode(record)
    return {"schema": encoded.pop("schema"), **encoded}


def write_record(path: Path, record: ConfigRecord) -> None:
    """Store one configuration's record. Raises ``ValueError`` on a number that is not finite, and ``OSError``."""
    write_json(path, record_to_json(record))


def write_run_record(path: Path, records: Sequence[ConfigRecord]) -> None:
    """Store a run's record: that of its only configuration, or a list of them under ``records``."""
    if len(records) == 1:
        write_record(path, records[0])
    else:
        write_json(path, {"schema": SCHEMA, "records": [record_to_json(record) for record in records]})


def read_record(path: Path) -> StoredRecord:
    """Read the record of exactly one configuration. Raises ``UsageError`` like ``read_records``."""
    stored = read_records(path)
    if len(stored) != 1:
        keys = ", ".join(each.record.key for each in stored)
        what = f"holds the records of {len(stored)} configurations ({keys}) where one is wanted"
        raise UsageError(what, where=str(path), remedy="name the record-<config>.json of one of them")
    return stored[0]


def read_records(path: Path) -> tuple[StoredRecord, ...]:
    """Read a record or a run's record.

    Raises ``UsageError`` naming the file and the key when it is absent, not JSON, of another schema, when a key is
    missing or of another type, outside its range, or denied by the parts that it is made of.
    """
    content = load_mapping(path)
    _check_schema(path, content)
    listed = content.get("records", [content])
    if not isinstance(listed, list) or not listed:
        raise UsageError("records: expected a list of records", where=str(path), remedy="name a record-<config>.json")
    return tuple(_record(path, each) for each in listed)


def _record(path: Path, content: Any) -> StoredRecord:
    unknown: list[str] = []
    try:
        record = decode(ConfigRecord, content, unknown=unknown.append)
    except CodecError as error:
        raise UsageError(str(error), where=str(path), remedy=_WRITE_AGAIN) from error
    for misfit in chain(out_of_range(record), disagreeing(record)):
        raise UsageError(f"{misfit.place}: {misfit.what}", where=str(path), remedy=_MEASURE_AGAIN)
    return StoredRecord(record, tuple(f"{path.name}: unknown key {key} left out" for key in sorted(unknown)))


def _check_schema(path: Path, content: dict[str, Any]) -> None:
    schema = content.get("schema")
    if schema != SCHEMA:
        what = "no record: the key schema is missing" if schema is None else f"schema {schema!r} is not {SCHEMA!r}"
        remedy = "name a record-<config>.json" if schema is None else "read it with the version that wrote it"
        raise UsageError(what, where=str(path), remedy=remedy)

"""Writes suite files: from any source of lines, checked as the suite will be when it is opened, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.quality.complaints import Complain, Complaints
from pytest_tokenwatt.quality.suite_ids import Ids
from pytest_tokenwatt.quality.suite_lines import parse_line
from pytest_tokenwatt.quality.suites import CheckGold
from pytest_tokenwatt.records.accuracy import SuiteItem

SCHEMA = "tokenwatt-suite/1"
UNKNOWN_LICENSE = "licence of the source: not known; check before you publish"

Rows: TypeAlias = Iterable[tuple[int, Mapping[str, Any]]]
"""Suite lines as objects, each with the line of the source that it comes from."""

ReadRows: TypeAlias = Callable[[Path, Complain], Rows]
"""Reads a source; what is wrong with a line goes to the second argument and the line is skipped."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """What to write: the rows of ``read`` from ``source`` (``None``: they come from no file).

    ``format`` names the source's form, ``shots`` the worked examples in each prompt (``None``: not known), ``scorer``
    the one that ``check_gold`` belongs to; ``others`` are further files that the prompts come from.
    """

    format: str
    read: ReadRows
    source: Path | None
    scorer: str
    check_gold: CheckGold
    license: str = UNKNOWN_LICENSE
    shots: int | None = None
    others: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Converted:
    """A suite that was written: where, the hash of its bytes, how many items."""

    path: Path
    meta: Path
    sha256: str
    items: int


def convert(conversion: Conversion, target: Path) -> Converted:
    """Write ``target`` and ``<name>.meta.json`` beside it; the same source always gives the same bytes.

    Raises ``SpecError`` with every line that cannot be asked or scored, and ``UsageError`` when the target cannot be
    written or is a file that no conversion wrote; then nothing is left behind.
    """
    meta = target.with_name(f"{target.name.removesuffix('.jsonl')}.meta.json")
    _check_target(conversion, target, meta)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _replacing(meta) as beside, _replacing(target) as suite:
            items, sha256 = _write_rows(conversion, target, suite)
            converted = Converted(target, meta, sha256, items)
            beside.write(_meta(conversion, converted))
    except OSError as error:
        raise UsageError(f"cannot be written ({error.strerror})", where=str(target), remedy="check the path") from error
    return converted


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A temporary sibling that takes the place of the file when all went well, and else disappears."""
    sibling = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with sibling.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        sibling.replace(path)
    finally:
        sibling.unlink(missing_ok=True)


def _check_target(conversion: Conversion, target: Path, meta: Path) -> None:
    remedy = "choose another name"
    if target.is_dir():
        raise UsageError("is a directory", where=str(target), remedy="name a file in it")
    for path in (conversion.source, *conversion.others):
        if path is not None and path.exists() and target.exists() and path.samefile(target):
            raise UsageError("is read and cannot be written at once", where=str(target), remedy=remedy)
    if target.exists() and not meta.exists():
        raise UsageError("is there already, and not from here", where=str(target), remedy=f"{remedy}, or remove it")


def _write_rows(conversion: Conversion, target: Path, file: BinaryIO) -> tuple[int, str]:
    """How many items were written, and the hash of the bytes."""
    complaints = Complaints(conversion.source or target)
    digest, items = hashlib.sha256(), 0
    for line in _checked(conversion, complaints):
        file.write(line)
        digest.update(line)
        items += 1
    if not items and not complaints.count:
        complaints.add(None, None, "gives no items", "check the file")
    complaints.raise_any()
    return items, digest.hexdigest()


def _checked(conversion: Conversion, complaints: Complaints) -> Iterator[bytes]:
    ids = Ids()
    for number, row in conversion.read(conversion.source or Path(), complaints.add):
        line = parse_line(number, row, complaints.add)
        if line is None:
            continue
        ids.add(line.item.id, number)
        flaw = conversion.check_gold(line.item)
        if flaw is not None:
            remedy = f"correct the line, which must suit the scorer {conversion.scorer}"
            complaints.add(number, None, flaw, remedy)
        yield json.dumps(as_row(line.item), ensure_ascii=False).encode() + b"\n"
    for number, earlier in ids.repeated():
        complaints.add(number, "id", f"is that of line {earlier}, too", "ids must differ")


def as_row(item: SuiteItem) -> Mapping[str, Any]:
    """An item as the object of its line."""
    row = {key: getattr(item, key) for key in ("id", "prompt", "messages", "answer", "choices", "domain", "template")}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in row.items() if value}


def _meta(conversion: Conversion, converted: Converted) -> bytes:
    meta = {
        "schema": SCHEMA,
        "suite": converted.path.name,
        "sha256": converted.sha256,
        "items": converted.items,
        "shots": conversion.shots,
        "scorer": conversion.scorer,
        "format": conversion.format,
        "sources": [_source(path) for path in (conversion.source, *conversion.others) if path is not None],
        "license": conversion.license,
    }
    text = json.dumps(meta, indent=2, ensure_ascii=False) + "\n"
    return text.encode("utf-8", "backslashreplace")  # A file's name may hold bytes that are no text.


def _source(path: Path) -> Mapping[str, str]:
    """By name and bytes, not by place: where it lay is nobody's business and would differ everywhere."""
    with path.open("rb") as file:
        return {"file": path.name, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}

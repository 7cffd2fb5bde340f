"""Suites from CSV: a header line, then one item a row."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from pytest_tokenwatt.quality.complaints import Complain, nearest
from pytest_tokenwatt.quality.jsonl import MAX_LINE_BYTES, usable

COLUMNS = ("prompt", "answer", "id", "choices", "domain", "template")
"""The first two must be there; ``x-*`` columns are passed over."""

_LIST_REMEDY = 'separate the options by |, or write a JSON list such as ["yes", "no"]'


def read_csv(path: Path, complain: Complain) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The lines of a suite from a UTF-8 CSV with commas; ids are the row's number where there is no such column."""
    if not usable(path, complain):
        return
    before = csv.field_size_limit(MAX_LINE_BYTES)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from _rows(file, complain)
    except UnicodeDecodeError:
        complain(None, None, "is not UTF-8", "save it as UTF-8")
    except OSError as error:
        complain(None, None, f"cannot be read ({error.strerror})", "check the file and its permissions")
    finally:
        csv.field_size_limit(before)


def _rows(file: TextIO, complain: Complain) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.reader(file, strict=True)
    try:
        columns = [name.strip() for name in next(reader, [])]
        if not columns or not _header(columns, complain):
            return
        line, row = reader.line_num + 1, 0
        for cells in reader:
            if cells:
                row += 1
                found = _row(line, row, dict(zip(columns, cells, strict=False)), len(cells) - len(columns), complain)
                if found is not None:
                    yield line, found
            line = reader.line_num + 1
    except csv.Error as error:
        complain(reader.line_num, None, f"is not CSV ({error})", 'put text with commas or lines in "quotes"')


def _header(columns: list[str], complain: Complain) -> bool:
    """Whether the first line names columns that make a suite."""
    absent = [name for name in COLUMNS[:2] if name not in columns]
    unknown = [name for name in columns if name not in COLUMNS and not name.startswith("x-")]
    for name in absent:
        remedy = f"name the columns in the first line, with commas: {','.join(COLUMNS)}"
        complain(1, name, "there is no such column", remedy)
    for name in unknown if not absent else ():
        complain(1, name or "a column without name", "unknown column", nearest(name, COLUMNS))
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        complain(1, twice, "is there twice", "remove one of the columns")
    return not absent and not unknown and twice is None


def _row(line: int, row: int, cells: dict[str, str], extra: int, complain: Complain) -> Mapping[str, Any] | None:
    if extra:
        what = f"has {abs(extra)} {'cells more' if extra > 0 else 'cells less'} than there are columns"
        complain(line, None, what, 'put text with commas in "quotes"')
        return None
    found: dict[str, Any] = {name: cells[name] for name in COLUMNS if name in cells}
    for name in ("choices", "domain", "template"):
        if not found.get(name, "").strip():
            found.pop(name, None)
    found.setdefault("id", str(row))
    if "choices" in found:
        found["choices"] = _choices(line, found["choices"], complain)
    return found


def _choices(line: int, cell: str, complain: Complain) -> Any:
    """A list of options, as JSON or separated by bars."""
    if not cell.lstrip().startswith("["):
        return [option.strip() for option in cell.split("|")]
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        complain(line, "choices", "is no JSON list", _LIST_REMEDY)
        return None

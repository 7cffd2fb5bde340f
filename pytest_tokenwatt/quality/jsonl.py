"""JSON lines as a stream: one line in memory at a time, and every way a file can be broken said at its line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, Self

from pytest_tokenwatt.quality.complaints import Complain

MAX_LINE_BYTES = 16 * 2**20
"""A longer line is no line of a suite; it bounds the memory that any file can take."""

_BOM = b"\xef\xbb\xbf"
_NOT_TEXT = {
    b"\xff\xfe": ("is UTF-16", "save it as UTF-8"),
    b"\xfe\xff": ("is UTF-16", "save it as UTF-8"),
    b"\x1f\x8b": ("is compressed (gzip)", "unpack it"),
}
_REMEDY = "write one JSON object a line"


class Written(float):
    """A number with all the digits that the file has, which a float need not keep."""

    def __new__(cls, text: str) -> Self:
        """Raises ``ValueError`` for what is too large for a float."""
        number = super().__new__(cls, text)
        if not math.isfinite(number):
            raise ValueError(f"{text} is too large a number")
        return number

    def __init__(self, text: str) -> None:
        self.text = text


def read_rows(path: Path, complain: Complain) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON-lines file with their lines (from 1); what is wrong goes to ``complain`` and is skipped.

    UTF-8 with or without a byte order mark, LF or CRLF; blank lines are passed over.
    """
    if not usable(path, complain):
        return
    try:
        with path.open("rb") as file:
            for number, line in _lines(file, complain):
                row = _row(number, line, complain)
                if row is not None:
                    yield number, row
    except OSError as error:
        complain(None, None, f"cannot be read ({error.strerror})", "check the file and its permissions")


def usable(path: Path, complain: Complain) -> bool:
    """Whether there is a file of UTF-8 text to read, as far as its first bytes tell."""
    try:
        if not path.is_file():  # A pipe, for one, would wait for a writer.
            complain(None, None, _why_no_file(path), "check the path")
            return False
        with path.open("rb") as file:
            flaw = _NOT_TEXT.get(file.read(2))
    except OSError as error:
        complain(None, None, f"cannot be read ({error.strerror})", "check the file and its permissions")
        return False
    if flaw is not None:
        complain(None, None, *flaw)
    return flaw is None


def _why_no_file(path: Path) -> str:
    if path.is_dir():
        return "is a directory"
    return "is not a regular file" if path.exists() else "there is no such file"


def _lines(file: BinaryIO, complain: Complain) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            complain(number, None, f"is longer than {MAX_LINE_BYTES // 2**20} MiB", _REMEDY)
            _pass_over(file, line)
            continue
        text = line.rstrip(b"\r\n").removeprefix(_BOM if number == 1 else b"")
        if text.strip():
            yield number, text


def _pass_over(file: BinaryIO, line: bytes) -> None:
    while line and not line.endswith(b"\n"):
        line = file.readline(MAX_LINE_BYTES)


def _row(number: int, line: bytes, complain: Complain) -> dict[str, Any] | None:
    try:
        row = json.loads(line.decode(), parse_float=Written, parse_constant=_refuse)
    except UnicodeDecodeError as error:
        complain(number, None, f"is not UTF-8 (byte {error.start + 1})", "save the file as UTF-8")
        return None
    except json.JSONDecodeError as error:
        complain(number, None, f"is not JSON ({error.msg}, column {error.colno})", _REMEDY)
        return None
    except ValueError as error:
        complain(number, None, f"is not JSON ({_short(error)})", _REMEDY)
        return None
    except RecursionError:
        complain(number, None, "is nested too deeply", _REMEDY)
        return None
    if not isinstance(row, dict):
        complain(number, None, f"is no JSON object, but {'a list' if isinstance(row, list) else 'a value'}", _REMEDY)
        return None
    return row


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _short(error: ValueError) -> str:
    """The first clause: Python goes on about its limit of digits in an integer."""
    return str(error).split(";")[0].split(":")[0]

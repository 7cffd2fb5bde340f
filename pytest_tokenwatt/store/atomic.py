"""Files that are either whole or absent: a temporary sibling, flushed to disk, then renamed over the name."""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


def write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` whole: a reader sees the old file or the new one. Raises ``OSError`` and leaves no sibling."""
    sibling = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        _write_synced(sibling, data)
        sibling.replace(path)
    except BaseException:
        sibling.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` whole, as UTF-8. Undecodable bytes that the text carries become ``\\udcXX`` escapes."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` whole as JSON (see ``dump_json``). Raises ``ValueError`` on NaN or infinity, and ``OSError``."""
    write_text(path, dump_json(value, where=path.name))


def dump_json(value: Any, *, where: str = "JSON", indent: int | None = 2) -> str:
    """JSON text with keys in the order given, readable characters and a newline at the end.

    JSON has no NaN and no infinity: ``ValueError`` names the place of the first one, since whoever produced it owes
    a ``None`` and a reason instead.
    """
    try:
        return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False) + "\n"
    except ValueError as error:
        place = next(_non_finite(value, ""), None)
        if place is None:
            raise
        raise ValueError(f"{where}: {place} is not a finite number; give null and a reason") from error


def _non_finite(value: Any, place: str) -> Iterator[str]:
    if isinstance(value, float) and not math.isfinite(value):
        yield place or "the value"
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _non_finite(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for index, inner in enumerate(value):
            yield from _non_finite(inner, f"{place}[{index}]")


def _write_synced(path: Path, data: bytes) -> None:
    # Opened by hand because tempfile would make the file readable by its owner only.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(directory: Path) -> None:
    """Make the rename itself durable; not every platform lets a directory be opened."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        return
    finally:
        os.close(descriptor)

"""What happened when: one JSON line an event, on disk before the next thing happens."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from pytest_tokenwatt.errors import TokenwattError, UsageError
from pytest_tokenwatt.store.atomic import dump_json


class Event(StrEnum):
    """What a journal tells; later versions may add events, so readers keep unknown ones."""

    RUN_STARTED = "run_started"
    RUN_RESUMED = "run_resumed"
    PHASE_STARTED = "phase_started"
    ENGINE_READY = "engine_ready"
    MEASUREMENT_STARTED = "measurement_started"
    WINDOW_FINISHED = "window_finished"
    MEASUREMENT_FINISHED = "measurement_finished"
    SUITE_STARTED = "suite_started"
    SUITE_FINISHED = "suite_finished"
    DRIFT_STARTED = "drift_started"
    DRIFT_FINISHED = "drift_finished"
    PROFILE_STARTED = "profile_started"
    PROFILE_FINISHED = "profile_finished"
    BUDGET_FINISHED = "budget_finished"
    AUDIT_FINISHED = "audit_finished"
    POWER_FINISHED = "power_finished"
    PHASE_FINISHED = "phase_finished"
    INTERRUPTED = "interrupted"
    RUN_FINISHED = "run_finished"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: the event, its instant on both clocks (seconds), and what it tells."""

    event: str
    wall_s: float
    monotonic_s: float
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JournalLog:
    """The entries of a journal in order; ``torn`` counts lines that a killed run left unfinished."""

    entries: tuple[Entry, ...]
    torn: int


class Journal:
    """Appends events to a file. Each is one unbuffered write, so a killed process loses none that was written."""

    def __init__(self, path: Path) -> None:
        """Open ``path`` for appending. Raises ``UsageError`` when that cannot be done."""
        self.path = path
        self._lock = threading.Lock()
        try:
            self._file = path.open("ab", buffering=0)
            _claim(self._file, path)
            if _ends_torn(path):
                self._file.write(b"\n")
        except OSError as error:
            raise UsageError(f"the journal cannot be opened: {error.strerror or error}", where=str(path)) from error

    def write(self, event: Event, **data: Any) -> None:
        """Append one event with JSON-able ``data``. Raises ``ValueError`` on NaN, ``TokenwattError`` on a full disk."""
        stamped = {"event": event.value, "wall_s": time.time(), "monotonic_s": time.monotonic(), **data}
        line = dump_json(stamped, where=f"{self.path.name} {event}", indent=None).encode("utf-8", "backslashreplace")
        try:
            with self._lock:
                self._file.write(line)
        except OSError as error:
            what = f"the journal cannot be written: {error.strerror or error}"
            raise TokenwattError(what, where=str(self.path), remedy="free space there and run again") from error

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_journal(path: Path) -> JournalLog:
    """Read a journal, leaving out lines that are not whole. Raises ``UsageError`` when there is no such file."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(f"the journal cannot be read: {error.strerror or error}", where=str(path)) from error
    entries = [_entry(line) for line in lines if line.strip()]
    whole = tuple(entry for entry in entries if entry is not None)
    return JournalLog(whole, torn=len(entries) - len(whole))


def _entry(line: bytes) -> Entry | None:
    try:
        data = json.loads(line)
        stamps = float(data.pop("wall_s")), float(data.pop("monotonic_s"))
        return Entry(str(data.pop("event")), *stamps, data)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _claim(file: IO[bytes], path: Path) -> None:
    """Two runs that write into one directory at once would overwrite each other's results."""
    try:
        import fcntl
    except ImportError:  # Windows, where nothing is measured
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        what = "another run writes into this directory now"
        raise UsageError(what, where=str(path.parent), remedy="name another one with --tokenwatt-out=PATH") from error


def _ends_torn(path: Path) -> bool:
    """Whether the last line has no end: an earlier run was killed while it wrote."""
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"

"""Where a run writes: chosen at the start, created only when the first file is written."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Self

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.store.atomic import write_text

RUNS = "tokenwatt-runs"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
REMEDY = "choose a writable place with --tokenwatt-out=PATH"


def file_part(text: str) -> str:
    """``text`` as part of a file name: letters, digits, dot, dash and underscore, never empty, never hidden."""
    return _UNSAFE.sub("-", text).strip("-.") or "run"


class RunDirectory:
    """The directory of one run, or of one spec within it.

    ``path`` is where it will be; ``create`` settles it (two runs may start in the same second) and only then anything
    exists on disk. ``record_file`` is where a copy of the run's record goes when the user named a ``.json`` file.
    """

    def __init__(self, path: Path, *, record_file: Path | None = None, fresh: bool = False) -> None:
        self.path = path
        self.record_file = record_file
        self.created = False
        self._fresh = fresh
        self._parent: RunDirectory | None = None

    @classmethod
    def choose(cls, out: Path | None, name: str, started: datetime, root: Path) -> Self:
        """The place that ``--tokenwatt-out`` asks for, or ``tokenwatt-runs/<started>-<name>`` below ``root``.

        ``a.json`` means the record in that file and the directory ``a`` beside it.
        """
        if out is None:
            return cls(root / RUNS / f"{started:%Y-%m-%dT%H-%M-%S}-{file_part(name)}", fresh=True)
        place = root / out
        if place.suffix.lower() == ".json":
            return cls(place.with_suffix(""), record_file=place)
        return cls(place)

    def child(self, name: str) -> RunDirectory:
        """The subdirectory of one spec, when a run has several; each spec needs another name.

        Raises ``UsageError`` when the run's record was to go into one file.
        """
        if self.record_file is not None:
            what = "one record file was named for several specs"
            raise UsageError(what, where=str(self.record_file), remedy="name a directory with --tokenwatt-out=PATH")
        child = RunDirectory(self.path / file_part(name))
        child._parent = self
        return child

    def obstacle(self) -> str | None:
        """Why the directory cannot come to be, as far as that can be seen before; ``None`` when nothing is known."""
        record = None if self.record_file is None else file_obstacle(self.record_file)
        return record or _obstacle(self.path)

    def create(self) -> Path:
        """Create the directory with its ``.gitignore`` unless that is done. Raises ``UsageError`` if it cannot be."""
        if not self.created:
            try:
                self._create()
            except OSError as error:
                what = f"the run directory cannot be written: {error.strerror or error}"
                raise UsageError(what, where=str(self.path), remedy=REMEDY) from error
            self.created = True
        return self.path

    def file(self, name: str) -> Path:
        """Path of a file in the directory, which is created for it. Raises ``UsageError`` like ``create``."""
        return self.create() / name

    def _create(self) -> None:
        if self._parent is not None:
            self.path = self._parent.create() / self.path.name
            self.path.mkdir(exist_ok=True)
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._fresh:
            self.path = next(_made(self.path))
        else:
            self.path.mkdir(exist_ok=True)
        # A directory that the user filled keeps its own rules: it may be the root of a repository.
        if not any(self.path.iterdir()):
            write_text(self.path / ".gitignore", "*\n")


def file_obstacle(path: Path) -> str | None:
    """Why a file cannot be written at ``path``, whose directories may have to be made; ``None`` when none is known."""
    return f"{path} is a directory" if path.is_dir() else _obstacle(path.parent)


def _obstacle(directory: Path) -> str | None:
    above = next(place for place in (directory, *directory.parents) if place.exists())
    if not above.is_dir():
        return f"{above} is a file, not a directory"
    return None if os.access(above, os.W_OK | os.X_OK) else f"{above} is not writable"


def _made(wanted: Path) -> Iterator[Path]:
    """Create ``wanted``, or the first of ``wanted-2``, ``wanted-3`` … that nobody else has created."""
    for number in itertools.count(1):
        path = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        yield path

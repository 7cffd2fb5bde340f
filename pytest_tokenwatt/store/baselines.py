"""Baseline files: the record of one configuration as JSON, and beside it what was scored of its drift.

The JSON names its companions, and is renamed into place last: what was there before stays whole until then.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records import ConfigRecord
from pytest_tokenwatt.store.atomic import write_bytes
from pytest_tokenwatt.store.records_json import read_record, write_record

SCORES = ".drift.npz"
UNKNOWN_AGE = "recorded at an unknown time"
_HASH_DIGITS = 8
_STORE_ONE = "store one with --tokenwatt-save-baseline=FILE"


@dataclass(frozen=True, slots=True)
class StoredBaseline:
    """A baseline file that was read.

    ``age_text`` is such as "recorded 12 days ago (2026-11-18)". ``notes`` say what the file holds that this version
    does not know.
    """

    record: ConfigRecord
    path: Path
    age_text: str
    notes: tuple[str, ...] = ()


def read_baseline(path: Path, now: datetime | None = None) -> StoredBaseline:
    """Read a baseline file, or the record of a run's only configuration; ``now`` is an aware instant.

    Raises ``UsageError`` when it is absent, damaged, of another schema, or holds several records.
    """
    if not path.exists():
        remedy = f"correct --tokenwatt-baseline, or {_STORE_ONE}"
        raise UsageError("there is no such baseline file", where=str(path), remedy=remedy)
    stored = read_record(path)
    try:
        age = age_text(stored.record.provenance.recorded, now or datetime.now(UTC))
    except ValueError as error:
        what = f"provenance.recorded: {error}"
        raise UsageError(what, where=str(path), remedy=f"{_STORE_ONE} again") from None
    return StoredBaseline(stored.record, path, age, stored.notes)


# --- age


def recorded_at(recorded: str | None) -> datetime | None:
    """The aware instant that a record states; one without an offset is taken for UTC. Raises ``ValueError``."""
    if recorded is None:
        return None
    try:
        instant = datetime.fromisoformat(recorded)
    except ValueError:
        raise ValueError(f"{recorded!r:.60} is no ISO instant") from None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def age_text(recorded: str | None, now: datetime) -> str:
    """How long ago a record was taken, and its date where it was taken. Raises ``ValueError`` for no ISO instant."""
    instant = recorded_at(recorded)
    if instant is None:
        return UNKNOWN_AGE
    return f"recorded {_ago(now - instant)} ({instant:%Y-%m-%d})"


def _ago(age: timedelta) -> str:
    if age < timedelta(minutes=-1):
        return "later than this machine's clock says it is"
    minutes = max(0, int(age.total_seconds() // 60))
    for unit, size in (("day", 24 * 60), ("hour", 60), ("minute", 1)):
        count = minutes // size
        if count:
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return "just now"


# --- files


def scores_name(tag: str, corpus: str | None = None) -> str:
    """Name of the file of scored sequences, or of a corpus' scored windows, beside a baseline file."""
    return f"{tag}{SCORES}" if corpus is None else f"perplexity-{tag}-{corpus}.npz"


def write_baseline(path: Path, record: ConfigRecord, scores: Mapping[str | None, Path]) -> ConfigRecord:
    """Store a record as a baseline file with copies of its drift's scores, and return it as stored.

    ``scores`` are the files of the sequences (under ``None``) and of each corpus' windows; without them the record
    names none. Files that the baseline stored before at ``path`` named are removed once the new one is in place.
    Raises ``ValueError`` on a number that is not finite, and ``OSError``; what was at ``path`` before is then whole.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    before = _named(path)
    data = {corpus: source.read_bytes() for corpus, source in scores.items()}
    tag = _tag(path, data)
    written = {scores_name(tag, corpus): content for corpus, content in data.items()}
    stored = _naming(record, scores_name(tag) if None in data else None)
    fresh = [path.with_name(name) for name in written if not path.with_name(name).exists()]
    try:
        for name, content in written.items():
            write_bytes(path.with_name(name), content)
        write_record(path, stored)
    except BaseException:
        needed = _named(path)  # an interrupt may come when the record is in place already
        for companion in fresh:
            if companion.name not in needed:
                companion.unlink(missing_ok=True)
        raise
    for name in before - written.keys():
        path.with_name(name).unlink(missing_ok=True)
    return stored


def _naming(record: ConfigRecord, scores: str | None) -> ConfigRecord:
    """The record with the files that are beside it; logs and samples stay in the run directory."""
    drift = record.drift and replace(record.drift, file=scores)
    return replace(record, files=(), drift=drift)


def _tag(path: Path, data: Mapping[str | None, bytes]) -> str:
    """What the companions are called after: the file, unless others have these names, which may still be needed."""
    if all(_free(path.with_name(scores_name(path.stem, corpus)), content) for corpus, content in data.items()):
        return path.stem
    digest = hashlib.sha256()
    for corpus, content in data.items():
        digest.update(f"{corpus}:{len(content)}:".encode() + content)
    return f"{path.stem}.{digest.hexdigest()[:_HASH_DIGITS]}"


def _free(path: Path, content: bytes) -> bool:
    return not path.exists() or (path.is_file() and path.read_bytes() == content)


def _named(path: Path) -> set[str]:
    """The companions that the baseline at ``path`` names, if there is one and they were stored with it."""
    try:
        record = read_record(path).record
    except UsageError:
        return set()
    return set(_companions(path.stem, record))


def _companions(stem: str, record: ConfigRecord) -> Iterator[str]:
    file = record.drift.file if record.drift else None
    ours = re.compile(rf"{re.escape(stem)}(\.[0-9a-f]{{{_HASH_DIGITS}}})?{re.escape(SCORES)}")
    if record.drift is None or file is None or not ours.fullmatch(file):
        return
    yield file
    for corpus in record.drift.perplexity:
        name = scores_name(file.removesuffix(SCORES), corpus)
        if Path(name).name == name:  # a file that was tampered with shall not have others removed
            yield name

"""What an engine answered to a suite, item by item as it came: ``answers-<config>-<suite>.jsonl``.

The first line says what was asked of whom; each further one is an answer. A run that was interrupted goes on from
here, and a replay can score anew.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pytest_tokenwatt.errors import TokenwattError, UsageError
from pytest_tokenwatt.records.accuracy import Answer
from pytest_tokenwatt.store.atomic import dump_json
from pytest_tokenwatt.store.codec import CodecError, decode, encode
from pytest_tokenwatt.store.rundir import file_part

Key = tuple[str, int, str]
"""Pass (``main``, ``control``), seed and id of the item."""

_LONGEST_PART = 80


def answers_name(config: str, suite: str, pairs: Iterable[tuple[str, str]]) -> str:
    """The file name for a configuration and a suite, another one for each of a run's ``pairs`` of the two.

    Where another pair would be called the same (``a-b`` and ``c``, ``a`` and ``b-c``; letters' case is not told apart),
    a hash follows.
    """
    plain = _plain_name(config, suite)
    rivals = {pair for pair in pairs if _plain_name(*pair).casefold() == plain.casefold()}
    if rivals <= {(config, suite)}:
        return f"{plain}.jsonl"
    return f"{plain}-{hashlib.sha256(repr((config, suite)).encode()).hexdigest()[:8]}.jsonl"


def _plain_name(config: str, suite: str) -> str:
    return f"answers-{file_part(config)[:_LONGEST_PART]}-{file_part(suite)[:_LONGEST_PART]}"


class AnswerLog:
    """Appends answers to a file; ``known`` are those of an earlier run that asked the same of the same engine."""

    def __init__(self, path: Path, head: Mapping[str, Any], *, resume: bool) -> None:
        """Open ``path``. With ``resume`` and an equal ``head``, go on behind its answers; else start anew.

        Raises ``UsageError`` when the file cannot be opened.
        """
        self.path = path
        self._lock = threading.Lock()
        self.known: dict[Key, Answer] = read_answers(path, head) if resume else {}
        try:
            self._file = path.open("ab" if self.known else "wb", buffering=0)
            if self.known:
                self._file.write(b"\n")  # the last line may have been torn; empty ones are passed over
            else:
                self._append(dict(head))
        except OSError as error:
            raise UsageError(f"the answers cannot be stored: {error.strerror or error}", where=str(path)) from error

    def write(self, key: Key, answer: Answer) -> None:
        """Append one answer; nothing once it is closed. Raises ``TokenwattError`` on a full disk."""
        part, seed, name = key
        self._append({"part": part, "seed": seed, "id": name, **encode(answer)})

    def close(self) -> None:
        """Close the file; may be called twice."""
        with self._lock:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, line: Mapping[str, Any]) -> None:
        text = dump_json(line, where=self.path.name, indent=None).encode("utf-8", "backslashreplace")
        try:
            with self._lock:
                # Behind Ctrl-C the event loop may still hold an answer that has just come.
                if not self._file.closed:
                    self._file.write(text)
        except OSError as error:
            what = f"the answers cannot be stored: {error.strerror or error}"
            raise TokenwattError(what, where=str(self.path), remedy="free space there and run again") from error


def read_answers(path: Path, head: Mapping[str, Any] | None = None) -> dict[Key, Answer]:
    """The answers of a file; none when it is absent or its first line is not ``head``. Torn lines are left out.

    Items that failed are left out, too: a run that goes on asks them again.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError:
        return {}
    if head is not None and _json(lines[0]) != json.loads(dump_json(dict(head), where=path.name)):
        return {}
    found = (_answer(_json(line)) for line in lines[1:])
    return {key: answer for key, answer in filter(None, found) if answer.error is None}


def _answer(told: Any) -> tuple[Key, Answer] | None:
    try:
        key = (str(told["part"]), int(told["seed"]), str(told["id"]))
        fields = {name: value for name, value in told.items() if name not in ("part", "seed", "id")}
        return key, decode(Answer, fields, unknown=lambda _: None)
    except (CodecError, KeyError, TypeError, ValueError):
        return None


def _json(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None

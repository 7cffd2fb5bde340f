"""Reads a spec file: bytes to text to data, each failure as one line that names the place.

Bounds on size, depth and aliases keep a hostile file from hanging the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from pytest_tokenwatt.errors import Problem, SpecError
from pytest_tokenwatt.spec.builder import MAX_DEPTH, Builder, KeyPath, failure, problem
from pytest_tokenwatt.spec.yaml12 import TAG, Loader

MAX_BYTES = 1 << 20
MAX_EVENTS = 200_000

_SUFFIXES = (".yaml", ".yml", ".json")
_PAIR = re.compile(r"(?<!\\)((?:\\\\)*)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE)
_START = "start with a mapping such as `engine: {endpoint: http://127.0.0.1:8000/v1}`"


@dataclass(frozen=True, slots=True)
class Source:
    """A spec file as data: ``raw`` as written, ``lines`` (from 1) of its key paths, and what was wrong meanwhile.

    ``unreadable`` are the paths at which ``raw`` holds nothing because of a problem.
    """

    name: str
    raw: dict[str, Any]
    lines: dict[KeyPath, int]
    problems: tuple[Problem, ...] = ()
    unreadable: frozenset[KeyPath] = frozenset()


def read_source(path: Path) -> Source:
    """Read and parse a file. Raises ``SpecError`` when there is no mapping to work with."""
    name = str(path)
    text = _read_text(path, name)
    if path.suffix.lower() == ".json":
        text = _json_as_yaml(text)
    return parse_source(text, name)


def parse_source(text: str, name: str) -> Source:
    """Parse a spec's text. Raises ``SpecError`` when there is no mapping to work with."""
    try:
        _bounded(text, name)
        root = Loader(text).get_single_node()
    except yaml.YAMLError as error:
        raise SpecError([_syntax_problem(error, text, name)]) from None
    except (ValueError, RecursionError, OverflowError):
        raise failure(name, None, "is not valid YAML") from None
    if root is None or (isinstance(root, yaml.ScalarNode) and root.tag == f"{TAG}null"):
        raise failure(name, None, "the file is empty", _START)
    if not isinstance(root, yaml.MappingNode):
        what = "a list" if isinstance(root, yaml.SequenceNode) else "a single value"
        raise failure(name, root.start_mark.line + 1, f"the file holds {what}, and a spec is one mapping", _START)
    builder = Builder(name)
    raw = builder.mapping(root, ())
    return Source(name, raw, builder.lines, tuple(builder.problems), frozenset(builder.unreadable))


def _read_text(path: Path, name: str) -> str:
    try:
        if path.is_dir():
            raise failure(name, None, "is a directory", "name a spec file")
        if not path.exists():
            raise failure(name, None, "no such file", _similar_file(path))
        if not path.is_file():
            raise failure(name, None, "is not a regular file", "name a spec file")
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise failure(name, None, f"has {size:,} bytes, more than a spec can need ({MAX_BYTES:,})", "is it a spec?")
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the name is not valid"
        raise failure(name, None, f"cannot be read: {reason}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise failure(name, line, "is not UTF-8 text", "save the file as UTF-8") from None


def _similar_file(path: Path) -> str | None:
    folder = path.parent
    if not folder.is_dir():
        return f"there is no directory {folder} either"
    names = [entry.name for entry in folder.iterdir() if entry.suffix in _SUFFIXES]
    near = get_close_matches(path.name, names, 1)
    return f"did you mean {folder / near[0]}?" if near else None


def _json_as_yaml(text: str) -> str:
    """JSON may indent with tabs and write an astral character as two escapes; YAML allows neither."""

    def joined(match: re.Match[str]) -> str:
        units = bytes.fromhex(match[2] + match[3])
        return match[1] + units.decode("utf-16-be")

    return _PAIR.sub(joined, text.replace("\t", " "))


def _bounded(text: str, name: str) -> None:
    """Refuse several documents, deep nesting and sheer size before anything recursive runs."""
    documents = depth = 0
    for count, event in enumerate(_events(text), 1):
        line = event.start_mark.line + 1 if event.start_mark else None
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
        elif isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if documents > 1:
            raise failure(name, line, "a second document starts here", "keep one spec a file")
        if depth > MAX_DEPTH:
            raise failure(name, line, f"is nested more than {MAX_DEPTH} levels deep")
        if count > MAX_EVENTS:
            raise failure(name, line, "holds more than a spec can need", "is it a spec?")


def _events(text: str) -> Iterator[yaml.Event]:
    events: Iterator[yaml.Event] = yaml.parse(text, Loader)
    return events


def _syntax_problem(error: yaml.YAMLError, text: str, name: str) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line = mark.line + 1 if mark is not None else None
    what = getattr(error, "problem", None) or "it cannot be parsed"
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        what = "a control character is not allowed"
    at_line = text.splitlines()[line - 1] if line is not None and line <= len(text.splitlines()) else ""
    if "\t" in at_line[: len(at_line) - len(at_line.lstrip())] or "'\\t'" in what:
        return problem(name, line, (), "is not valid YAML: a tab where YAML wants spaces", "indent with spaces")
    return problem(name, line, (), f"is not valid YAML: {' '.join(what.split())}", _syntax_remedy(what, at_line))


def _syntax_remedy(what: str, at_line: str) -> str:
    if "${" in at_line:
        return 'quote "${…}" inside { } and [ ]'
    if "mapping values are not allowed" in what:
        return "quote a text that holds ': '"
    if "alias" in what:
        return "define the anchor (&name) above its use"
    if "cannot start any token" in what:
        return "quote a text that starts with a special character"
    return "check the indentation, quotes and brackets here and above"

"""Turns YAML nodes into plain data and keeps the line of every key path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from pytest_tokenwatt.errors import Problem, SpecError
from pytest_tokenwatt.spec.yaml12 import TAG, parse_scalar

KeyPath = tuple[str | int, ...]

MAX_DEPTH = 40
MAX_VALUES = 20_000

# Below these keys every scalar is text as written, so that `--port, 8000` and `OMP_NUM_THREADS: 2` need no quotes.
_TEXT_BELOW = frozenset(("command", "up", "down", "prepare", "cleanup", "logs", "args", "env"))
_TEXT_AT = frozenset(
    ("version", "name", "title", "label", "key", "like", "kernels", "host", "precision", "configs", "gpus", "stop")
)
FREE_FORM = frozenset(("extra_body", "geometry", "match"))
"""Blocks whose keys and values are the user's own."""


def failure(name: str, line: int | None, what: str, remedy: str | None = None) -> SpecError:
    """The one problem after which nothing more can be said about a file."""
    return SpecError([problem(name, line, (), what, remedy)])


def problem(name: str, line: int | None, path: KeyPath, what: str, remedy: str | None = None) -> Problem:
    """A problem whose every part is on one line, whatever the file's keys and values hold."""
    return Problem(name, line, one_line(dotted(path)) or None, one_line(what), one_line(remedy or "") or None)


def one_line(text: str) -> str:
    """``text`` with characters that cannot be printed written as escapes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


@dataclass(slots=True)
class Builder:
    """Turns nodes into data. A node that several aliases share is built once per place, so that each has its path."""

    name: str
    lines: dict[KeyPath, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unreadable: set[KeyPath] = field(default_factory=set)
    values: int = 0

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        """The data of a mapping that stands at ``path``."""
        built: dict[str, Any] = {}
        for key, key_node, value_node in self._pairs(node, path, len(path)):
            self.lines[(*path, key)] = key_node.start_mark.line + 1
            built[key] = self._value(value_node, (*path, key))
        return built

    def _value(self, node: yaml.Node, path: KeyPath) -> Any:
        self._count(node, len(path))
        if isinstance(node, yaml.MappingNode):
            self._check_tag(node, "map", path)
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            self._check_tag(node, "seq", path)
            return [self._item(item, (*path, place)) for place, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _item(self, node: yaml.Node, path: KeyPath) -> Any:
        self.lines[path] = node.start_mark.line + 1
        return self._value(node, path)

    def _count(self, node: yaml.Node, depth: int) -> None:
        self.values += 1
        line = node.start_mark.line + 1
        if depth > MAX_DEPTH:
            raise failure(self.name, line, f"is nested more than {MAX_DEPTH} levels deep", "an alias holds itself?")
        if self.values > MAX_VALUES:
            raise failure(self.name, line, f"unfolds to more than {MAX_VALUES:,} values", "use fewer aliases")

    def _pairs(self, node: yaml.MappingNode, path: KeyPath, depth: int) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        """A mapping's own entries, then those of its merge keys that it does not have itself."""
        seen: dict[str, int] = {}
        merges: list[yaml.Node] = []
        for key_node, value_node in node.value:
            self._count(key_node, depth)
            if key_node.tag == f"{TAG}merge":
                merges.append(value_node)
                continue
            key = self._key(key_node, path, seen)
            if key is not None:
                seen[key] = key_node.start_mark.line + 1
                yield key, key_node, value_node
        for merged in merges:
            for key, key_node, value_node in self._merged(merged, path, depth + 1):
                if key not in seen:
                    seen[key] = key_node.start_mark.line + 1
                    yield key, key_node, value_node

    def _merged(self, node: yaml.Node, path: KeyPath, depth: int) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        self._count(node, depth)
        if isinstance(node, yaml.MappingNode):
            yield from self._pairs(node, path, depth)
        elif isinstance(node, yaml.SequenceNode):
            for part in node.value:
                yield from self._merged(part, path, depth + 1)
        else:
            self._report(node, (*path, "<<"), "must merge a mapping or a list of mappings", "write <<: *anchor")

    def _key(self, node: yaml.Node, path: KeyPath, seen: dict[str, int]) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self._report(node, path, "a key must be a text, not a list or a mapping", None)
            return None
        key = str(node.value)
        if not _encodable(key):
            self._report(node, path, "a key holds half a character (an unpaired surrogate)", None)
            return None
        if key in seen:
            self._report(node, (*path, key), f"is written twice, first in line {seen[key]}", "keep one of them")
            return None
        return key

    def _check_tag(self, node: yaml.Node, kind: str, path: KeyPath) -> None:
        if node.tag != TAG + kind:
            self._report_tag(node, path)

    def _scalar(self, node: yaml.Node, path: KeyPath) -> Any:
        kind, text = node.tag.removeprefix(TAG), str(node.value)
        if kind in ("str", "merge"):
            return self._text(node, path)
        if kind == "null":
            return None
        if kind not in ("bool", "int", "float"):
            self._report_tag(node, path)
            return None
        if _is_text(path):
            return text
        try:
            return parse_scalar(kind, text)
        except (ValueError, OverflowError):
            self._unreadable(node, path, f"is not a{'n' if kind == 'int' else ''} {kind} that can be read", None)
            return None

    def _text(self, node: yaml.Node, path: KeyPath) -> str | None:
        text = str(node.value)
        if _encodable(text):
            return text
        self._unreadable(node, path, "holds half a character (an unpaired surrogate)", "write the character itself")
        return None

    def _report_tag(self, node: yaml.Node, path: KeyPath) -> None:
        tag = node.tag.replace(TAG, "!!")
        self._unreadable(node, path, f"the YAML tag {tag[:60]} is not allowed", "write plain values")

    def _report(self, node: yaml.Node, path: KeyPath, what: str, remedy: str | None) -> None:
        line = node.start_mark.line + 1
        self.problems.append(problem(self.name, line, path, what, remedy))

    def _unreadable(self, node: yaml.Node, path: KeyPath, what: str, remedy: str | None) -> None:
        self._report(node, path, what, remedy)
        self.unreadable.add(path)


def dotted(path: KeyPath) -> str:
    """A key path for people: ``gates.rules[0].max``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def _is_text(path: KeyPath) -> bool:
    keys = [part for part in path if isinstance(part, str)]
    if not FREE_FORM.isdisjoint(keys):
        return False
    return not _TEXT_BELOW.isdisjoint(keys) or (bool(keys) and keys[-1] in _TEXT_AT)


def _encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)

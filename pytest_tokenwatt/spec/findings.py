"""Collects what is wrong with a spec, in the product's own words and at the line where it stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pytest_tokenwatt.errors import Problem
from pytest_tokenwatt.spec.builder import KeyPath, problem
from pytest_tokenwatt.spec.reader import Source
from pytest_tokenwatt.spec.scalars import Block, shown

ROOT: tuple[KeyPath, ...] = ((),)

_SECRETS = {
    **dict.fromkeys(("api_key", "apikey", "token", "api_token", "auth_token", "bearer", "secret"), "api_key_env"),
    **dict.fromkeys(("password", "passwd"), "password_env"),
    **dict.fromkeys(("headers", "header", "authorization"), "headers_env"),
}
_MARKS = ("[key]", "<mix>", "<number>")
_BOUNDS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}


class Findings:
    """The problems of one file, each reported once.

    A value may come from several places of the file (a configuration's override, else the block above). ``heads``
    are the key paths of these places, most specific first.
    """

    def __init__(self, source: Source, data: Mapping[str, Any]) -> None:
        self._source = source
        self._data = data
        self._seen: set[tuple[KeyPath, str]] = set()
        self._unreadable = set(source.unreadable)
        self._problems: list[Problem] = list(source.problems)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All problems by line."""
        return tuple(sorted(self._problems, key=lambda found: found.line or 0))

    def unreadable(self, path: KeyPath, what: str, remedy: str) -> None:
        """A problem that makes any other finding at this path pointless."""
        self.add(path, what, remedy)
        self._unreadable.add(path)

    def add(self, path: KeyPath, what: str, remedy: str | None = None) -> None:
        """A problem at a key path of the file."""
        if (path, what) in self._seen or any(path[:n] in self._unreadable for n in range(len(path) + 1)):
            return
        self._seen.add((path, what))
        self._problems.append(problem(self._source.name, self.line(path), path, what, remedy))

    def add_errors(self, error: ValidationError, block: type[BaseModel], heads: Iterable[KeyPath] = ROOT) -> None:
        """Everything that a block's validation found."""
        places = tuple(heads)
        for detail in error.errors(include_url=False):
            if detail["type"] == "too_short" and detail["input"]:
                continue  # the list is not empty: its entries have their own findings
            loc = _plain(detail)
            what, remedy = _worded(detail, block, loc)
            # Appended args have no place of their own: a flaw of the first ones is not reported again for the sum.
            appended = loc[:2] == ("engine", "args") and any((head + loc, what) in self._seen for head in places)
            if not appended:
                self.add(self.place(loc, places), what, remedy)

    def place(self, loc: KeyPath, heads: Iterable[KeyPath]) -> KeyPath:
        """Where a key of a merged block was written."""
        written = [self._written(head, loc) for head in heads]
        return next((path for path, whole in written if whole), max(written, key=lambda each: len(each[0]))[0])

    def line(self, path: KeyPath) -> int | None:
        """The line of a key path, or of what encloses it."""
        lines = self._source.lines
        return next((lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in lines), None)

    def _written(self, head: KeyPath, loc: KeyPath) -> tuple[KeyPath, bool]:
        """The path without the list places of a block that may stand alone, and whether the file has all of it."""
        path, node, whole = head, descend(self._data, head), True
        for part in loc:
            if part == 0 and isinstance(node, Mapping):
                continue
            path = (*path, part)
            node, whole = _step(node, part, whole)
        return path, whole


def _step(node: Any, part: str | int, whole: bool) -> tuple[Any, bool]:
    if isinstance(node, Mapping) and part in node:
        return node[str(part)], whole
    if isinstance(node, list) and isinstance(part, int) and part < len(node):
        return node[part], whole
    return None, False


def descend(data: Any, path: KeyPath) -> Any:
    """What stands at a key path; ``None`` when there is nothing."""
    for part in path:
        data, _ = _step(data, part, True)
    return data


def _plain(detail: ErrorDetails) -> KeyPath:
    """The location without the marks that the validator puts in for keys and alternatives."""
    loc = detail["loc"]
    kept = loc[-1:] if detail["type"] == "extra_forbidden" else ()  # the user's own key, whatever it looks like
    return (*(part for part in loc[: len(loc) - len(kept)] if part not in _MARKS), *kept)


def _worded(detail: ErrorDetails, block: type[BaseModel], loc: KeyPath) -> tuple[str, str]:
    """What is wrong and the remedy."""
    kind, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    if kind == "spec":
        return str(context["what"]), str(context["remedy"])
    if kind == "missing":
        return "is missing", "add it"
    if kind == "extra_forbidden":
        return "unknown key", _unknown_remedy(str(loc[-1]), fields_at(block, loc[:-1]), block)
    if kind == "literal_error":
        return f"must be {context['expected']}, not {shown(value)}", _choice_remedy(str(context["expected"]), value)
    if kind in _BOUNDS:
        bound, word = _BOUNDS[kind]
        return f"must be {word} {context[bound]:g}, not {shown(value)}", ""
    if kind == "too_short":
        return "must not be an empty list", "remove the key for the default"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"must be a mapping, not {shown(value)}", ""
    if kind in ("tuple_type", "list_type"):
        return f"must be a list, not {shown(value)}", "write [ … ]"
    return f"is not valid: {shown(value)}", ""


def _choice_remedy(expected: str, value: object) -> str:
    near = get_close_matches(str(value), [word.strip(" '") for word in expected.replace(" or ", ",").split(",")], 1)
    return f"did you mean {near[0]}?" if near else ""


def _unknown_remedy(key: str, known: Mapping[str, Any], block: type[BaseModel]) -> str:
    safe = _SECRETS.get(key.lower().replace("-", "_"))
    if safe in known:
        example = "{Header-Name: NAME}" if safe == "headers_env" else "NAME"
        return f"put the secret into an environment variable and write its name: {safe}: {example}"
    near = get_close_matches(key, list(known), 1)
    if near:
        return f"did you mean {near[0]}?"
    owners = _blocks_with(key, block)
    if owners:
        return f"it belongs to {' or '.join(owners)}"
    return f"known keys: {', '.join(known)}" if known else ""


def _blocks_with(key: str, block: type[BaseModel]) -> list[str]:
    """Blocks one level down that know the key."""
    return [name for name, field in block.model_fields.items() if key in _inner(field.annotation)]


def fields_at(block: type[BaseModel], loc: KeyPath) -> Mapping[str, Any]:
    """The fields of the block at a location below ``block``; empty where keys are free."""
    fields: Mapping[str, Any] = block.model_fields
    for part in loc:
        if part in fields:
            fields = _inner(fields[str(part)].annotation)
    return fields


def _inner(annotation: Any) -> Mapping[str, Any]:
    """The fields of the first block that an annotation holds."""
    if isinstance(annotation, type) and issubclass(annotation, Block):
        return annotation.model_fields
    for argument in get_args(annotation):
        found = _inner(argument)
        if found:
            return found
    return {}

"""Expands ``${VAR}`` and ``${VAR:-default}`` in every text value of a spec.

The default counts when the variable is unset or empty. ``$${`` is a literal ``${``; every other ``$`` stands for
itself, so that shell snippets survive. Keys, and the ``x-*`` blocks that exist for anchors and notes, are not expanded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from pytest_tokenwatt.spec.builder import FREE_FORM, KeyPath
from pytest_tokenwatt.spec.scalars import Expanded

_REFERENCE = re.compile(r"\$(?P<escaped>\$\{)|\$\{(?P<inside>[^{}]*)(?P<close>\}?)")
_INSIDE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-.*)?", re.DOTALL)
_KEEPS_X = FREE_FORM | {"env", "headers_env"}


@dataclass(frozen=True, slots=True)
class Expansion:
    """What stands where the file has references, and which paths could not be expanded (path, what, remedy)."""

    data: dict[str, Any]
    failures: tuple[tuple[KeyPath, str, str], ...]


def expand(raw: Mapping[str, Any], environ: Mapping[str, str]) -> Expansion:
    """Expand all values and leave out ``x-*`` and ``$schema`` keys."""
    expander = _Expander(environ)
    return Expansion(expander.mapping(raw, ()), tuple(expander.failures))


def without_notes(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The same data without ``x-*`` and ``$schema`` keys, unexpanded."""
    return _Expander(None).mapping(raw, ())


@dataclass(slots=True)
class _Expander:
    environ: Mapping[str, str] | None
    failures: list[tuple[KeyPath, str, str]] = field(default_factory=list)

    def mapping(self, value: Mapping[str, Any], path: KeyPath) -> dict[str, Any]:
        keep_all = any(part in _KEEPS_X for part in path)
        return {
            key: self._value(part, (*path, key))
            for key, part in value.items()
            if keep_all or not (key.startswith("x-") or key == "$schema")
        }

    def _value(self, value: Any, path: KeyPath) -> Any:
        if isinstance(value, Mapping):
            return self.mapping(value, path)
        if isinstance(value, list):
            return [self._value(part, (*path, place)) for place, part in enumerate(value)]
        if isinstance(value, str) and "${" in value and self.environ is not None:
            return self._text(value, path, self.environ)
        return value

    def _text(self, text: str, path: KeyPath, environ: Mapping[str, str]) -> str:
        replaced = False

        def value(match: re.Match[str]) -> str:
            nonlocal replaced
            if match["escaped"]:
                return "${"
            replaced = True
            return self._variable(match, path, environ)

        expanded = _REFERENCE.sub(value, text)
        return Expanded(expanded) if replaced else expanded

    def _variable(self, match: re.Match[str], path: KeyPath, environ: Mapping[str, str]) -> str:
        inside = _INSIDE.fullmatch(match["inside"])
        if inside is None or not match["close"]:
            self._fail(
                path, "holds a ${ that is not a variable", "write ${NAME} or ${NAME:-default}, or $${ for a plain ${"
            )
            return ""
        name, default = inside["name"], inside["default"]
        if default is not None:
            return environ.get(name) or default[2:]
        if name not in environ:
            self._fail(path, f"the variable {name} is not set", _unset_remedy(name, environ))
            return ""
        return environ[name]

    def _fail(self, path: KeyPath, what: str, remedy: str) -> None:
        self.failures.append((path, what, remedy))


def _unset_remedy(name: str, environ: Mapping[str, str]) -> str:
    near = get_close_matches(name, list(environ), 1, 0.8)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"set it, or write ${{{name}:-default}}{hint}"

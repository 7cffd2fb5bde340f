"""Placeholders in commands: ``{port}`` and its like are replaced, every other brace stays as it is.

A placeholder is a name of letters, digits and underscores in single braces, not behind a ``$``. So JSON arguments
(``{"a": 1}``, ``{}``), shell variables (``${x}``) and brace groups survive; ``{{name}}`` gives a literal ``{name}``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from pytest_tokenwatt.errors import EngineError

NAMES = ("port", "model", "run_id", "config", "run_dir", "python")

_PLACEHOLDER = re.compile(r"\{\{([A-Za-z_]\w*)\}\}|(?<!\$)\{([A-Za-z_]\w*)\}")


def fill(text: str, values: Mapping[str, str], where: str) -> str:
    """``text`` with its placeholders replaced.

    Raises ``EngineError`` (``bad_command``) for a name that does not exist or that has no value here.
    """

    def replace(match: re.Match[str]) -> str:
        literal, name = match.groups()
        return f"{{{literal}}}" if literal else _value(name, values, where)

    return _PLACEHOLDER.sub(replace, text)


def fill_all(argv: Iterable[str], values: Mapping[str, str], where: str) -> tuple[str, ...]:
    """Every argument filled; ``where`` names the key of the spec in the error."""
    return tuple(fill(argument, values, where) for argument in argv)


def uses(name: str, texts: Iterable[str]) -> bool:
    """Whether any of the texts holds this placeholder."""
    return any(match.group(2) == name for text in texts for match in _PLACEHOLDER.finditer(text))


def _value(name: str, values: Mapping[str, str], where: str) -> str:
    if name in values:
        return values[name]
    if name in NAMES:
        remedy = "set model.path or engine.model" if name == "model" else "write the value itself"
        raise EngineError("bad_command", f"{where}: {{{name}}} has no value here", remedy=remedy)
    known = ", ".join(f"{{{known}}}" for known in NAMES)
    near = difflib.get_close_matches(name, NAMES, n=1)
    guess = f"did you mean {{{near[0]}}}? " if near else ""
    raise EngineError(
        "bad_command",
        f"{where}: unknown placeholder {{{name}}}",
        remedy=f"{guess}known are {known}; write {{{{{name}}}}} for the literal text",
    )

"""Whether a configuration's merged engine can be started: one method, its port, known placeholders."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

from pytest_tokenwatt.spec.builder import KeyPath
from pytest_tokenwatt.spec.scalars import Expanded
from pytest_tokenwatt.spec.serving import Engine

PLACEHOLDERS = ("port", "model", "run_id", "config", "run_dir", "python")

_PLACEHOLDER = re.compile(r"(?<![${])\{([A-Za-z_]\w*)\}(?!\})")
_COMMANDS = ("command", "args", "up", "down", "logs", "prepare", "cleanup", "env")
_SECRET = re.compile(
    r"(^|[-_])(api[-_]?key|access[-_]key|secret([-_]key)?|passw(or)?d|(hf|hub|auth|access|api|github|ngc)[-_]token)$",
    re.IGNORECASE,
)
_IN_THE_OPEN = "holds a secret in the open"
_REMEDY = "write ${NAME} and set that variable, or leave it out where the environment is inherited"

Finding = tuple[KeyPath, str, str]


def start_findings(engine: Engine) -> Iterator[Finding]:
    """What is wrong with the start of a configuration: key path, what, remedy.

    That no method is given at all, or no model, is left to preflight: a replay needs none, and the command line may
    name an endpoint.
    """
    yield from _method_findings(engine)
    yield from _placeholder_findings(engine)


def _method_findings(engine: Engine) -> Iterator[Finding]:
    launched, attached = engine.command is not None, engine.endpoint is not None
    if launched and attached:
        yield ("engine", "endpoint"), "excludes command", "keep command to have it started, endpoint to attach to it"
    for key in ("up", "logs"):
        if launched and getattr(engine, key) is not None:
            yield ("engine", key), "excludes command", f"{key} is for an engine with an endpoint"
    if engine.up is not None and not attached and not launched:
        yield ("engine", "up"), "needs an endpoint", "add endpoint: the URL at which the model answers"
    if engine.up is not None and engine.down is None:
        yield ("engine", "up"), "needs a down", "add the command that undoes it, such as down: [docker, rm, -f, NAME]"
    if engine.down is not None and engine.up is None:
        yield ("engine", "down"), "needs an up", "add the command that it undoes, or remove it"
    if engine.args and not launched and attached:
        yield ("engine", "args"), "needs a command to be appended to", "write the options into up, or use command"


def _placeholder_findings(engine: Engine) -> Iterator[Finding]:
    for key, name in used_placeholders(engine):
        if name not in PLACEHOLDERS:
            yield ("engine", key), f"unknown placeholder {{{name}}}", _placeholder_remedy(name)
    words = [*(engine.command or ()), *engine.args, *_texts(engine.env)]
    if engine.command is not None and not any("port" in word.lower() or word == "-p" for word in words):
        yield ("engine", "command"), "does not say where to listen", 'add the engine\'s port option: --port, "{port}"'


def used_placeholders(engine: Engine) -> Iterator[tuple[str, str]]:
    """Key and name of every placeholder."""
    for key in _COMMANDS:
        for text in _texts(getattr(engine, key)):
            for match in _PLACEHOLDER.finditer(text):
                yield key, match[1]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for text in value.values() if text is not None)
    elif value is not None:
        for part in value:
            yield from _texts(part)


def _placeholder_remedy(name: str) -> str:
    near = get_close_matches(name, PLACEHOLDERS, 1)
    known = ", ".join(f"{{{each}}}" for each in PLACEHOLDERS)
    return f"did you mean {{{near[0]}}}?" if near else f"known: {known}; write {{{{{name}}}}} for the literal text"


def open_secrets(engine: Mapping[str, Any]) -> Iterator[Finding]:
    """Secrets that stand in the spec itself, in ``env`` or as an option of a command; takes the block as data."""
    env = engine.get("env")
    for name, value in env.items() if isinstance(env, Mapping) else ():
        if _SECRET.search(name) and isinstance(value, str) and value and not isinstance(value, Expanded):
            yield ("engine", "env", name), _IN_THE_OPEN, _REMEDY
    for key in _COMMANDS:
        words = engine.get(key)
        commands = [words, *words] if isinstance(words, list) else []
        if any(isinstance(command, list) and _has_open_secret(command) for command in commands):
            yield ("engine", key), _IN_THE_OPEN, _REMEDY


def _has_open_secret(words: list[Any]) -> bool:
    texts = [word if isinstance(word, str) else "" for word in words]
    for word, following in pairwise([*texts, ""]):
        name, equals, value = word.partition("=")
        if not _SECRET.search(name) or isinstance(word, Expanded):
            continue
        option = name.startswith("-") and following and not following.startswith("-")
        if value or (not equals and option and not isinstance(following, Expanded)):
            return True
    return False

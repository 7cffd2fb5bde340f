"""The arguments that an engine was started with, as it tells them itself."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pytest_tokenwatt.engine.scrub import MASK, is_telling

_LOGGED = re.compile(r"non-default args: (\{.*\})\s*$")
_KEY = re.compile(r"\s*'(\w+)'\s*:")
_SKIPPED_SECTIONS = frozenset({"compilation_config", "observability_config", "instance_id"})


def from_log(lines: Iterable[str]) -> dict[str, str]:
    """vLLM's last line of non-default arguments, by argument name; empty when the log has none.

    ``lines`` must be whole lines: a cut one is not read. A value that is no Python literal is kept as it is written.
    """
    found: dict[str, Any] = {}
    for line in lines:
        match = _LOGGED.search(line)
        if match:
            found = dict(_items(match.group(1)))
    return _readable(found)


def from_server_info(told: Any) -> dict[str, str]:
    """vLLM's ``/server_info?config_format=json``: the scalar settings of each section as ``section.name``."""
    config = told.get("vllm_config") if isinstance(told, dict) else None
    if not isinstance(config, dict):
        return {}
    flat: dict[str, Any] = {}
    for section, settings in config.items():
        if section in _SKIPPED_SECTIONS:
            continue
        if isinstance(settings, dict):
            flat.update({f"{section}.{name}": value for name, value in settings.items() if _is_scalar(value)})
        elif _is_scalar(settings):
            flat[section] = settings
    return _readable(flat)


def _readable(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: MASK if is_telling(name) else _shown(value) for name, value in sorted(values.items())}


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, sort_keys=True)
    except (TypeError, ValueError):
        return str(value)


def _items(text: str) -> Iterator[tuple[str, Any]]:
    for item in top_level_parts(text[1:-1]):
        match = _KEY.match(item)
        if match:
            yield match.group(1), _value(item[match.end() :].strip())


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def top_level_parts(text: str) -> Iterator[str]:
    """The parts of a written dict or call between its top-level commas; objects without a literal form do no harm."""
    depth, quote, start, place = 0, "", 0, 0
    while place < len(text):
        character = text[place]
        if quote:
            place += character == "\\"
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "([{<":
            depth += 1
        elif character in ")]}>":
            depth -= 1
        elif character == "," and depth == 0:
            yield text[start:place]
            start = place + 1
        place += 1
    yield text[start:]


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)

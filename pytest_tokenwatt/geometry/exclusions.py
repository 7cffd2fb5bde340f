"""Which modules a quantised checkpoint keeps in the model's own type, as its configuration lists them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from pytest_tokenwatt.geometry.keys import Keys

_LISTS = (
    "modules_to_not_convert",
    "ignore",
    "ignored_layers",
    "exclude_modules",
    "exclude",
    "llm_int8_skip_modules",
)
_WRAPPERS = frozenset({"model", "language_model", "text_model"})
_SPELLINGS = {"block_sparse_moe": "mlp", "feed_forward": "mlp", "shared_expert": "shared_experts"}


@dataclass(frozen=True, slots=True)
class Exclusions:
    """Module names, globs (``*``) and regular expressions (``re:…``) of what stays unquantised."""

    names: frozenset[str]
    patterns: tuple[Callable[[str], bool], ...]

    @classmethod
    def of(cls, config: Keys) -> Exclusions:
        """All lists of a quantization_config together."""
        return cls.read(entry for name in _LISTS for entry in config.sequence(name) or ())

    @classmethod
    def read(cls, entries: Iterable[Any]) -> Exclusions:
        """Entries that are no strings, or no regular expression after ``re:``, are passed over."""
        texts = [entry for entry in entries if isinstance(entry, str) and entry]
        plain = frozenset(common_name(text) for text in texts if not _is_pattern(text))
        return cls(plain - {""}, tuple(matcher(text) for text in texts if _is_pattern(text)))

    def holds(self, name: str) -> bool:
        """Whether the module, or one that it is part of, is listed; a listed ``mlp.gate`` is found at any depth."""
        parts = name.split(".")
        runs = (".".join(parts[i:j]) for i in range(len(parts)) for j in range(i + 1, len(parts) + 1))
        return any(run in self.names for run in runs) or any(matches(name) for matches in self.patterns)


def common_name(name: str) -> str:
    """A module's path as ``Matrix.name`` has it: without what wraps the language model, in one spelling."""
    parts = name.split(".")
    while parts and parts[0] in _WRAPPERS:
        parts = parts[1:]
    return ".".join(_SPELLINGS.get(part, part) for part in parts)


def _is_pattern(text: str) -> bool:
    return text.startswith("re:") or "*" in text


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a name, wrapped as checkpoints have it or not, matches ``re:…`` (from its start) or a glob."""
    if not pattern.startswith("re:"):
        glob = common_name(pattern)
        return lambda name: fnmatchcase(name, glob) or fnmatchcase(name, f"{glob}.*")
    try:
        compiled = re.compile(pattern.removeprefix("re:"))
    except re.error:
        return lambda _name: False
    return lambda name: any(compiled.match(full) is not None for full in (name, f"model.{name}"))

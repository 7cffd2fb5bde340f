"""Text for a spec file: values that mean what they say, and comments that stay comments."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
_WIDTH = 118


def scalar(value: Any) -> str:
    """A value in YAML's flow style; ``${`` stands for itself."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(key)}: {scalar(part)}" for key, part in value.items()) + "}"
    if not isinstance(value, str):
        return json.dumps(value)
    if _BARE.fullmatch(value) and value.casefold() not in _WORDS:
        return value
    return f'"{"".join(map(_letter, value))}"'.replace("${", "$${")


def _letter(letter: str) -> str:
    """A letter between double quotes. A lone surrogate, which a server may send, fits no file."""
    if letter in '"\\':
        return f"\\{letter}"
    if "\ud800" <= letter <= "\udfff":
        return "\ufffd"
    return letter if letter.isprintable() else f"\\U{ord(letter):08x}"


def comment(text: str, *, lead: str = "# ", hanging: str = "") -> Iterator[str]:
    """Comment lines of one paragraph; what a server sent cannot break out of them."""
    plain = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    wrapper = textwrap.TextWrapper(
        _WIDTH, initial_indent=lead, subsequent_indent=lead + hanging, break_long_words=False, break_on_hyphens=False
    )
    yield from wrapper.wrap(plain)


def file_name(text: str) -> str:
    """A name that fits a directory, made of a model's."""
    bare = re.sub(r"[^A-Za-z0-9._-]+", "-", text.rstrip("/").rpartition("/")[2]).strip("-.")
    return bare[:60].rstrip("-.").lower() or "tokenwatt"


def joined(lines: Iterable[str]) -> str:
    """The lines as a file's text."""
    return "".join(f"{line}\n" for line in lines)

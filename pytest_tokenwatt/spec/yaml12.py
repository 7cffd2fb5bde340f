"""A safe YAML parser whose scalars follow the core schema of YAML 1.2.

There ``no``, ``off`` and ``on`` are text, ``8000:8000`` is no base-60 number, and ``1e3`` is a number.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from yaml import SafeLoader as _Parser
else:
    _Parser = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

TAG = "tag:yaml.org,2002:"


class Loader(_Parser):
    """Parses events and composes nodes; constructs nothing."""

    yaml_implicit_resolvers: dict[str | None, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own


for _kind, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    ("merge", r"<<", ["<"]),
):
    Loader.add_implicit_resolver(TAG + _kind, re.compile(rf"(?:{_pattern})\Z"), _first)


def parse_scalar(kind: str, text: str) -> bool | int | float:
    """The value of a bool, int or float. Raises ``ValueError`` for a text that an explicit tag forced into the kind."""
    if kind == "bool":
        return _parse_bool(text)
    if kind == "int":
        return int(text, 0) if text[:2].lower() in ("0x", "0o") else int(text)
    return float(re.sub(r"\.(inf|nan)", r"\1", text, flags=re.IGNORECASE))


def _parse_bool(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(text)
    return lowered == "true"

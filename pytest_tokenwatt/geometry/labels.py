"""Labels of a precision, such as ``W8A8KV8``: bits of weights, activations and KV cache."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from pytest_tokenwatt.records.profiles import Precision

_PARTS = {"W": "weights", "A": "activations", "KV": "kv"}
_LABEL = re.compile(r"(?:(?:W|A|KV)\d{1,2}(?:\.\d{1,3})?)+")
_PART = re.compile(r"(W|A|KV)(\d{1,2}(?:\.\d{1,3})?)")
_FILLERS = re.compile(r"[\s_\-/·,]+")
_NAMES: Mapping[str, str] = MappingProxyType({"weights": "weights", "activations": "activations", "kv": "KV cache"})


def label_of(weights: float | None, activations: float | None, kv: float | None) -> str | None:
    """The label of three widths in bits; ``None`` unless all are known."""
    if weights is None or activations is None or kv is None:
        return None
    return f"W{weights:g}A{activations:g}KV{kv:g}"


def declared_bits(declared: str) -> dict[str, float] | None:
    """What a declared label says of ``weights``, ``activations`` and ``kv``; ``None`` when it is no such label.

    Case, spaces and dashes do not count; a label may leave a part out, which then is not compared.
    """
    plain = _FILLERS.sub("", declared).upper()
    if not _LABEL.fullmatch(plain):
        return None
    parts = _PART.findall(plain)
    found = {_PARTS[name]: float(bits) for name, bits in parts}
    return found if len(found) == len(parts) else None


def bits_apart(declared: str, read: Precision) -> str | None:
    """What of a declared label is not what was read, in words; ``None`` when nothing differs that could be read."""
    wanted = declared_bits(declared)
    if wanted is None:
        return f"{declared!r} is no label such as W8A8KV8, so nothing can equal it"
    apart = [
        f"{_NAMES[part]}: {bits:g} bits declared, {_bits(read, part):g} read{_where(read, part)}"
        for part, bits in wanted.items()
        if _bits(read, part) not in (None, bits)
    ]
    return "; ".join(apart) or None


def _bits(read: Precision, part: str) -> float | None:
    found: Mapping[str, float | None] = {"weights": read.weights, "activations": read.activations, "kv": read.kv}
    return found[part]


def _where(read: Precision, part: str) -> str:
    return f" from {read.sources[part]}" if part in read.sources else ""

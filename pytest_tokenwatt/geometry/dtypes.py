"""Names of number formats: how many bits a weight or a cached value takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

_SIXTEEN = ("bf16", "bfloat16", "fp16", "float16", "half", "f16")
_THIRTY_TWO = ("fp32", "float32", "float", "f32")
_FP8 = ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "e4m3", "e5m2", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz")
_WIDTH = re.compile(r"(?:w|u?int|m?xint|fp|nf|float|mxfp|nvfp)(\d{1,2})(?![0-9])")
_PLAIN = MappingProxyType({**dict.fromkeys(_SIXTEEN, 16), **dict.fromkeys(_THIRTY_TWO, 32)})

KV_BITS: Mapping[str, float] = MappingProxyType(
    {
        **_PLAIN,
        **dict.fromkeys(_FP8, 8.0),
        "int8": 8.0,
        "int4": 4.0,
        # 16 values share an FP8 scale.
        "nvfp4": 4.5,
    }
)
"""Bits of one value of the KV cache, its scales within."""


def plain_bits(name: str) -> int | None:
    """Bits of an unquantised type; ``None`` for any other name."""
    return _PLAIN.get(name.removeprefix("torch.").lower())


def weight_bits(name: str) -> int | None:
    """Bits of a weight by a type's name such as ``bf16``, ``w4a16`` or ``mxfp4``; ``None`` when it does not tell."""
    known = plain_bits(name)
    if known is not None:
        return known
    if name.lower() in _FP8:
        return 8
    found = _WIDTH.match(name.lower())
    return int(found[1]) if found else None

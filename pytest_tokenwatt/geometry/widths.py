"""Widths in bits by the names that engines give to types and to quantisation while they load a model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pytest_tokenwatt.geometry.dtypes import plain_bits


@dataclass(frozen=True, slots=True)
class Widths:
    """Bits of weights and of what enters their matrices; ``None`` for activations in the model's own type."""

    weights: float
    activations: float | None


@dataclass(frozen=True, slots=True)
class Reading:
    """A figure, such as bits, with where it was read; when it is ``None``, ``where`` says why.

    ``claims`` is the number format (``FP8``, ``FP4``) that hardware must compute in for bits of activations to be so.
    """

    bits: float | None
    where: str
    claims: str = ""


ONLINE: Mapping[str, Widths] = MappingProxyType(
    {
        **dict.fromkeys(("fp8", "fp8_per_tensor", "fp8_per_block", "fp8_per_channel", "ptpc_fp8"), Widths(8, 8)),
        **dict.fromkeys(("int8_per_channel_weight_only", "experts_int8"), Widths(8, None)),
        "mxfp8": Widths(8, 8),
        "nvfp4_per_token": Widths(4, 4),
        "bitsandbytes": Widths(4, None),
    }
)
"""What vLLM's ``--quantization`` makes of an unquantised checkpoint while it loads it."""

_KEYS_AND_VALUES = re.compile(r"k(\d)v(\d)")
_KV_WIDTH = re.compile(r"^(?:nvfp|mxfp|fp|u?int|e\dm\d_?fp|float)(\d{1,2})(?!\d)|(\d)bit")
_PLAIN_FP8 = ("e4m3", "e5m2")


def kv_width(name: str) -> float | None:
    """Bits of a cached value without scales, by the cache's type; the mean where keys and values differ."""
    lowered = name.removeprefix("torch.").lower()
    own = plain_bits(lowered)
    if own is not None:
        return float(own)
    if lowered in _PLAIN_FP8:
        return 8.0
    both = _KEYS_AND_VALUES.search(lowered)
    if both:
        return (int(both[1]) + int(both[2])) / 2
    found = _KV_WIDTH.search(lowered)
    return float(found[1] or found[2]) if found else None

"""Numbers that look random and are a pure function of their key: what the embedded model is made of."""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Hashes: TypeAlias = npt.NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""Odd, and no near multiple of anything: spreads consecutive numbers over all bits."""


def mix(value: Hashes) -> Hashes:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every input bit flips every output bit half the time."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def uniform(value: Hashes) -> npt.NDArray[np.float64]:
    """Hashes to (0, 1)."""
    return ((value >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def normal(value: Hashes) -> npt.NDArray[np.float64]:
    """Hashes to a standard normal, closely enough: the sum of four uniforms of 16 bits."""
    mask = np.uint64(0xFFFF)
    total = sum(((value >> np.uint64(shift)) & mask).astype(np.float64) for shift in (0, 16, 32, 48))
    drawn: npt.NDArray[np.float64] = (total / 65_535 - 2.0) * np.sqrt(3.0)
    return drawn


def text_hashes(text: str, count: int) -> Hashes:
    """``count`` hashes of a text, ``(count,)``."""
    start = np.uint64(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()))
    return mix(start ^ mix(np.arange(1, count + 1, dtype=np.uint64) * GOLDEN))

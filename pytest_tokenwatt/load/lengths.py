"""How many tokens a request has: distributions that are drawn by index from a seeded generator."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Tokens: TypeAlias = npt.NDArray[np.int64]

Z_P90 = 1.28155
"""The standard normal's 90th percentile, with the digits that the definition of chat-mix-v1 uses."""

MAX_TOKENS = 2**40
"""Far beyond any context; keeps an extreme draw of an uncapped lognormal inside 64 bits."""


class Lengths(Protocol):
    """One side of a request (input or output) as a distribution over token counts."""

    @property
    def fixed(self) -> int | None:
        """The only value, or ``None`` when it varies."""
        ...

    def draw(self, count: int, generator: np.random.Generator) -> Tokens:
        """``count`` lengths ≥ 1; the first m do not depend on ``count``."""
        ...


@dataclass(frozen=True, slots=True)
class Lognormal:
    """A lognormal by its median and 90th percentile in tokens: sigma = ln(p90 / median) / 1.28155."""

    median: float
    p90: float

    @property
    def fixed(self) -> int | None:
        """``None``: it varies."""
        return None

    @property
    def sigma(self) -> float:
        """The standard deviation of the logarithm."""
        return math.log(self.p90 / self.median) / Z_P90

    def draw(self, count: int, generator: np.random.Generator) -> Tokens:
        """``count`` lengths, rounded, at least 1."""
        drawn = self.median * np.exp(self.sigma * generator.standard_normal(count))
        return np.clip(np.rint(drawn), 1, MAX_TOKENS).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every request has the same number of tokens."""

    tokens: int

    @property
    def fixed(self) -> int | None:
        """The only value."""
        return self.tokens

    def draw(self, count: int, generator: np.random.Generator) -> Tokens:  # noqa: ARG002
        """``count`` times the same length."""
        return np.full(count, self.tokens, dtype=np.int64)

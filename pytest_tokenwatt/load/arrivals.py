"""Poisson arrivals: unit-exponential gaps drawn by index, scaled by the rate."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Instants: TypeAlias = npt.NDArray[np.float64]


def poisson_arrivals(rate_rps: float, span_s: float, generator: np.random.Generator) -> Instants:
    """Instants in [0, ``span_s``) of a Poisson process of ``rate_rps`` requests a second, ascending.

    Gap i is the generator's i-th unit exponential over the rate, whatever the rate and the span: two rates see the same
    draw, stretched.
    """
    if not (rate_rps > 0 and math.isfinite(rate_rps)):
        raise ValueError(f"a Poisson process needs a positive finite rate, not {rate_rps!r}")
    expected = rate_rps * span_s
    batch = int(expected + 6 * math.sqrt(expected) + 16)
    unit = np.cumsum(generator.standard_exponential(batch))
    while unit[-1] < expected:
        more = generator.standard_exponential(batch)
        unit = np.concatenate([unit, unit[-1] + np.cumsum(more)])
    instants: Instants = unit[unit < expected] / rate_rps
    return instants[instants < span_s]

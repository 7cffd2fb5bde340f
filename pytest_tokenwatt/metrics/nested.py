"""The divergence that the top-K do not show, extrapolated from two nested cut-offs of one response."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_tokenwatt.metrics.clustered_mean import mean_se

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Nested:
    """``per_mass`` is the divergence, in nats, that a unit of tail mass is taken to hold; ``se`` is clustered."""

    kl: float
    se: float | None
    per_mass: float


def nested(low: Floats, low_half: Floats, tail: Floats, tail_half: Floats) -> Nested | None:
    """From the bound and the tail mass at K and at K/2, each the mean of a sequence, one value a sequence.

    D = (mean low_K − mean low_K/2) / (mean t_K/2 − mean t_K) and kl = mean low_K + mean t_K · D: what lies outside K
    is taken to hold as much divergence per mass as what lies between the two. The error is that of the linearised
    kl (delta method), whose value of a sequence is low + D t + t̄ ((low − low_half) − D (t_half − t)) / (t̄_half − t̄).
    Without a tail kl is the bound. ``None`` when nothing lies between the cut-offs.
    """
    bound, outside = float(low.mean()), float(tail.mean())
    if not outside:
        return Nested(bound, mean_se(low), 0.0)
    between = float(tail_half.mean()) - outside
    if between <= 0:
        return None
    per_mass = (bound - float(low_half.mean())) / between
    surplus = (low - low_half) - per_mass * (tail_half - tail)
    return Nested(bound + outside * per_mass, mean_se(low + per_mass * tail + outside / between * surplus), per_mass)

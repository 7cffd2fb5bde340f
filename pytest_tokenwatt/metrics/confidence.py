"""The divergence where the baseline is sure and where it is not."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_EDGES = (0.5, 0.9, 0.99)
_NAMES = ("<0.5", "0.5-0.9", "0.9-0.99", "≥0.99")


def by_confidence(confidence: npt.NDArray[np.float64], low: npt.NDArray[np.float64]) -> dict[str, tuple[float, float]]:
    """Range of the baseline's largest probability → (mean of ``low`` over its positions, positions).

    Both arrays have one value a position. A range without positions is left out.
    """
    bins = np.digitize(confidence, _EDGES)
    members = [(name, low[bins == place]) for place, name in enumerate(_NAMES)]
    return {name: (float(values.mean()), float(len(values))) for name, values in members if len(values)}

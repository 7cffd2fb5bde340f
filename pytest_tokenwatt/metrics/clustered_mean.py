"""The mean of clusters and its error."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def mean_se(values: npt.NDArray[np.float64] | Sequence[float]) -> float | None:
    """Standard error of the mean over clusters, from one value a cluster; ``None`` below two, which tell nothing."""
    if len(values) < 2:
        return None
    return float(np.std(values, ddof=1) / len(values) ** 0.5)

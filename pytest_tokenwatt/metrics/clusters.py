"""How much less a sample tells when its pairs come in clusters: items of one template, seeds of one item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Clustering:
    """The cluster-robust error of a mean difference (in its unit), and what it means for the sample.

    ``design_effect`` is the variance over that of independent pairs, at least 1: fewer pairs are never counted as more.
    """

    clusters: int
    se: float
    design_effect: float


def clustering(differences: npt.NDArray[np.int8 | np.float64], labels: Sequence[str]) -> Clustering:
    """Of n differences (of outcomes −1, 0, 1), each with the label of its cluster.

    The variance of the mean is G / (G − 1) · Σ_g (Σ_{i in g} (d_i − mean))² / n² over G clusters (Liang and Zeger's
    sandwich for a mean). Where differences do not vary at all there is nothing to estimate it from; the design effect
    is then that of perfect correlation, Σ m_g² / n. Raises ``ValueError`` below two clusters.
    """
    _, members = np.unique(np.asarray(labels), return_inverse=True)
    sizes = np.bincount(members)
    n, clusters = len(differences), len(sizes)
    if clusters < 2:
        raise ValueError("one cluster tells nothing of how clusters differ")
    residuals = differences - differences.mean()
    sums = np.bincount(members, weights=residuals)
    between = clusters / (clusters - 1) * float(np.sum(sums**2)) / n**2
    within = float(np.sum(residuals**2)) / (n - 1) / n
    if within <= 0:
        return Clustering(clusters, 0.0, float(np.sum(sizes.astype(np.float64) ** 2)) / n)
    return Clustering(clusters, max(between, within) ** 0.5, max(1.0, between / within))

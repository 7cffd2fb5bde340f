"""Perplexity of one configuration against the baseline's, window by window of the same text."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from pytest_tokenwatt.metrics.clustered_mean import mean_se
from pytest_tokenwatt.records import Reason
from pytest_tokenwatt.records.drift import PerplexityDelta, PerplexityRecord


def perplexity(baseline: PerplexityRecord, other: PerplexityRecord) -> PerplexityDelta:
    """Compare one corpus on two configurations; ppl = exp(mean over windows of the nll per token). Raises nothing.

    Where the other could only score the beginnings of the windows, so does the baseline count: by ``base_nll``.
    """
    if other.base_nll and not baseline.invalid:
        baseline = replace(baseline, nll=other.base_nll)
    invalid = (*_reasons(baseline, other), *_unequal(baseline, other))
    if invalid:
        return PerplexityDelta(baseline.name, None, None, None, None, other.windows, other.tokens, invalid)
    differences = np.subtract(other.nll, baseline.nll)
    return PerplexityDelta(
        name=baseline.name,
        dnll=float(differences.mean()),
        dnll_se=mean_se(differences),
        ppl=ppl_of(other.nll),
        ppl_bf16=ppl_of(baseline.nll),
        windows=other.windows,
        tokens=other.tokens,
    )


def ppl_of(nll: tuple[float, ...]) -> float | None:
    """exp(mean over windows); ``None`` without windows, or when it is no finite number."""
    mean = math.fsum(nll) / len(nll) if nll and all(map(math.isfinite, nll)) else math.inf
    try:
        return math.exp(mean) if math.isfinite(mean) else None
    except OverflowError:
        return None


def _reasons(baseline: PerplexityRecord, other: PerplexityRecord) -> tuple[Reason, ...]:
    return tuple(dict.fromkeys((*baseline.invalid, *other.invalid)))


def _unequal(baseline: PerplexityRecord, other: PerplexityRecord) -> tuple[Reason, ...]:
    if baseline.sha256 != other.sha256 or len(baseline.nll) != len(other.nll):
        return (Reason("unequal_windows", f"{baseline.name}: the two did not score the same token ids"),)
    if not baseline.nll:
        return (Reason("nothing_scored", f"{baseline.name}: no window was scored"),)
    lost = sum(not math.isfinite(value) for record in (baseline, other) for value in record.nll)
    if lost:
        return (Reason("nll_not_finite", f"{baseline.name}: {lost} windows have no finite log-likelihood"),)
    return ()

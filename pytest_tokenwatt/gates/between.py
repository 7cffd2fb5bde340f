"""What runs of one baseline on record say of a ratio's error beyond what one run could show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_tokenwatt.metrics.spread import spread_pct
from pytest_tokenwatt.records import ConfigRecord
from pytest_tokenwatt.records.profiles import Ratio


def rates(name: str, baselines: Sequence[ConfigRecord]) -> list[float | None]:
    """Output tok/s of a profile in every run that has it."""
    runs = [record.profiles[name] for record in baselines if not record.invalid and name in record.profiles]
    return [run.output_tok_s for run in runs if not run.invalid]


def peaks_gib(name: str, baselines: Sequence[ConfigRecord]) -> list[float | None]:
    """Peak memory of a profile in every run that has it."""
    runs = [record.profiles[name] for record in baselines if not record.invalid and name in record.profiles]
    return [run.memory.peak_gib for run in runs if not run.invalid]


def widened(ratio: Ratio, figures: Sequence[float | None], share: float = 1.0) -> Ratio:
    """A ratio whose error holds ``share`` of (max − min) / mean of the baseline's figures over its runs.

    As drift it is common to all profiles; of the two the larger counts. Below two runs nothing changes.
    """
    spread = spread_pct(figures)
    if spread is None or ratio.value is None:
        return ratio
    between = ratio.value * share * spread / 100.0
    if ratio.error is None:
        return replace(ratio, error=between, drift=between, missing=None)
    more = max(0.0, between - ratio.drift)
    return replace(ratio, error=ratio.error + more, drift=ratio.drift + more)

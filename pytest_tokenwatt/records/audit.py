"""The audit of timed runs: whether what was timed is what the model says."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_tokenwatt.records.base import Reason


@dataclass(frozen=True, slots=True)
class Served:
    """One timed request whose tokens were kept: the prompt as the server echoed it, and what it served."""

    name: str
    prompt: tuple[int, ...]
    output: tuple[int, ...]
    max_tokens: int
    ignore_eos: bool


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One timed run of a candidate, its outputs and the baseline's own ones scored by the baseline.

    ``engine_…`` are of the candidate's served outputs, ``bf16_…`` of the baseline's to the same prompts. ``…_mean`` are
    log-probabilities per token (mean over samples), ``…_top1`` shares of tokens that are the baseline's likeliest.
    ``gap`` = ``bf16_mean`` − ``engine_mean``, with the median and the largest over samples. ``length_ratio`` is the
    median of candidate / baseline tokens, ``length_ratio_min`` the least. ``empty`` outputs of the candidate,
    ``empty_alone`` those where the baseline's is not, ``empty_reference`` the baseline's. ``samples`` = ``picked`` −
    ``empty``. ``run`` names the timed run. ``status`` is ``audited``, or ``invalid`` with reasons.
    """

    run: str
    status: str
    picked: int
    samples: int
    empty: int
    empty_alone: int
    empty_reference: int
    engine_mean: float | None = None
    bf16_mean: float | None = None
    gap: float | None = None
    gap_median: float | None = None
    gap_max: float | None = None
    engine_top1: float | None = None
    bf16_top1: float | None = None
    top1_gap: float | None = None
    length_ratio: float | None = None
    length_ratio_min: float | None = None
    invalid: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()

"""A profile with its KV cache cut to little more than it used: whether the engine does as well as before."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from pytest_tokenwatt.metrics.polling import polled_too_slowly
from pytest_tokenwatt.records import Reason
from pytest_tokenwatt.records.profiles import BudgetRun, PeakMemory, ProfileRecord, ProfileRun

_TWO_SIDED_95 = 0.975
_LEAST_READINGS = 3
"""Fewer may all have missed the moments at which most requests ran."""


@dataclass(frozen=True, slots=True)
class Budget:
    """``budget_gib`` = ``factor`` · the measured peak; ``kv_gib`` is the pool that leaves weights and the rest as is.

    Both ``None`` with their reason in ``missing``.
    """

    factor: float
    budget_gib: float | None = None
    kv_gib: float | None = None
    missing: str | None = None


def plan_budget(memory: PeakMemory, factor: float) -> Budget:
    """The pool with which the peak may be ``factor`` times the measured one: ``factor`` · peak − weights − other."""
    if memory.peak_gib is None or memory.weights_gib is None or memory.other_gib is None:
        return Budget(factor, missing=memory.missing.get("peak_gib", "the peak was not measured"))
    budget_gib = factor * memory.peak_gib
    kv_gib = budget_gib - memory.weights_gib - memory.other_gib
    if kv_gib <= 0:
        return Budget(factor, budget_gib, missing=f"{budget_gib:.4g} GiB leave nothing for the KV cache")
    return Budget(factor, budget_gib, kv_gib)


def budget_run(budget: Budget, full: ProfileRecord, run: ProfileRun | None, *, drift: float | None = None) -> BudgetRun:
    """The profile ``full`` against its ``run`` with the pool of ``budget``; no run where the budget is not known.

    Healthy: at least as many requests ran at once, none was preempted, and the rate is not below the full one by more
    than the error of one further run, 1 − e^−h with h = t(0.975, n − 1) · sd(log rates) · √(1 + 1/n) over the n full
    runs. The further run is on another engine start, and starts differ by more than repeats of one do: ``drift``,
    |A′ − A| / A of the baseline's two starts, is added where it was measured, and is the error alone where n is 1. One
    broken condition suffices for ``False``; else one that is not known leaves ``None``, and a note says which.
    """
    reasons: tuple[Reason, ...]
    if run is None:
        reasons = (Reason("budget_unknown", budget.missing or "the profile was not run with it"),)
    else:
        reasons = run.invalid
    full_running = _most([each.peaks.running for each in full.runs])
    checks = () if run is None or reasons else tuple(_checks(full, full_running, run, drift))
    return BudgetRun(
        profile=full.name,
        factor=budget.factor,
        budget_gib=budget.budget_gib,
        kv_gib=budget.kv_gib,
        running=None if run is None else run.peaks.running,
        full_running=full_running,
        healthy=_verdict([held for held, _ in checks]),
        value=None if run is None else run.output_tok_s,
        invalid=reasons,
        notes=(*(note for held, note in checks if not held), *(run.notes if run is not None else ())),
    )


def _verdict(held: Sequence[bool | None]) -> bool | None:
    """The conjunction: false when any is, else unknown when any is or there is none."""
    if False in held:
        return False
    return True if held and None not in held else None


def _checks(
    full: ProfileRecord, full_running: float | None, run: ProfileRun, drift: float | None
) -> Iterator[tuple[bool | None, str]]:
    """Each condition: whether it held (``None``: not known), and what to say where it did not."""
    running, preempted, readings = run.peaks.running, run.peaks.preemptions, run.peaks.readings
    if running is None or full_running is None:
        yield None, "how many requests ran at once is not known"
    elif running < full_running and 0 < readings < _LEAST_READINGS:
        yield None, f"how many requests ran at once is not known: metrics came {readings} times"
    elif (slow := _unseen(full, running, full_running, run)) is not None:
        yield None, f"how many requests ran at once is not known: {slow}"
    else:
        yield running >= full_running, f"{running:g} requests ran at once, {full_running:g} with the whole pool"
    if preempted is None:
        yield None, "whether requests were preempted is not known"
    else:
        yield preempted == 0, f"{preempted:g} preemptions"
    yield _fast(full, run, drift)


def _unseen(full: ProfileRecord, running: float, full_running: float, run: ProfileRun) -> str | None:
    """Why the most requests that were seen at once may not be the most that ran, where it matters."""
    if running < full_running:
        return polled_too_slowly(run.peaks)
    if running >= full.concurrency:
        return None
    return next((slow for each in full.runs if (slow := polled_too_slowly(each.peaks))), None)


def _fast(full: ProfileRecord, run: ProfileRun, drift: float | None) -> tuple[bool | None, str]:
    rate, value = full.output_tok_s, run.output_tok_s
    if rate is None or value is None:
        return None, "the output rate with or without the cut is not known"
    below = f"{value:.4g} tok/s, {rate:.4g} with the whole pool"
    if value >= rate:
        return True, below
    own = _further_run_error(full.runs)
    if own is None and drift is None:
        return None, f"{below}; one run does not tell by how much another may be slower"
    error = (own or 0.0) + (drift or 0.0)
    return value >= rate * (1.0 - error), f"{below}, {error:.1%} less would be within its error"


def _further_run_error(runs: Sequence[ProfileRun]) -> float | None:
    """How much slower, as a share, one further run may be (95 %); ``None`` below two runs."""
    logs = [math.log(run.output_tok_s) for run in runs if run.output_tok_s]
    if len(logs) < 2:
        return None
    half = stdtrit(len(logs) - 1, _TWO_SIDED_95) * np.std(logs, ddof=1) * math.sqrt(1.0 + 1.0 / len(logs))
    return float(-np.expm1(-half))


def _most(readings: Sequence[float | None]) -> float | None:
    return max((reading for reading in readings if reading is not None), default=None)

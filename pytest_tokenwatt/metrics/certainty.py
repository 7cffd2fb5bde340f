"""Where one request stands against one bound, known while the load runs.

The watch that decides when to stop and the judge of a finished window use these same functions, so that a probe that
was stopped because its verdict was certain is judged to that verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from pytest_tokenwatt.metrics.latency import JUDGED_TOKENS, tpot_so_far_s
from pytest_tokenwatt.records import RequestProgress, SloBound


class Standing(Enum):
    """Met or missed are certain; open may become either; absent has no such latency (TPOT of one token)."""

    MET = "met"
    MISSED = "missed"
    OPEN = "open"
    ABSENT = "absent"


def standing(seen: RequestProgress, bound: SloBound, planned_tokens: int, now_s: float, settle: bool) -> Standing:
    """The request against the bound at ``now_s``.

    A failed request misses every bound. A running one misses when even the earliest possible end would be too late.
    With ``settle`` (behind the last window) a running request with ``JUDGED_TOKENS`` is judged by its TPOT so far. The
    gaps of ITL are in the chunk stamps, which are not looked at here: met then means no more than ended.
    """
    if seen.error is not None:
        return Standing.MISSED
    bound_s = bound.bound_ms / 1e3
    if bound.metric == "ttft":
        return _arrival(seen.first_token_s, seen.scheduled_s, bound_s, now_s)
    if bound.metric == "e2e":
        return _arrival(seen.last_token_s if seen.ended else None, seen.scheduled_s, bound_s, now_s)
    judged = seen.ended or (settle and seen.tokens >= JUDGED_TOKENS)
    if bound.metric == "itl":
        return Standing.MET if judged else Standing.OPEN
    return _tpot(seen, bound_s, planned_tokens, now_s, judged)


def _arrival(instant_s: float | None, scheduled_s: float, bound_s: float, now_s: float) -> Standing:
    latency_s = (now_s if instant_s is None else instant_s) - scheduled_s
    if latency_s > bound_s:
        return Standing.MISSED
    return Standing.OPEN if instant_s is None else Standing.MET


def _tpot(seen: RequestProgress, bound_s: float, planned_tokens: int, now_s: float, judged: bool) -> Standing:
    if not seen.ended and overdue(seen, bound_s, planned_tokens, now_s):
        return Standing.MISSED
    if not judged:
        return Standing.OPEN
    value_s = tpot_so_far_s(seen)
    if value_s is None:
        return Standing.ABSENT
    return Standing.MET if value_s <= bound_s else Standing.MISSED


def overdue(seen: RequestProgress, bound_s: float, planned_tokens: int, now_s: float) -> bool:
    """Whether a running request would exceed a TPOT bound even if all its remaining tokens came now."""
    divisor = planned_tokens - seen.first_tokens
    return seen.first_token_s is not None and divisor >= 1 and (now_s - seen.first_token_s) / divisor > bound_s


def bound_per_metric(bounds: Sequence[SloBound]) -> Mapping[str, SloBound]:
    """What a single request must meet: of several percentiles of a metric, the bound of the highest one."""
    highest: dict[str, SloBound] = {}
    for bound in bounds:
        known = highest.get(bound.metric)
        if known is None or bound.percentile > known.percentile:
            highest[bound.metric] = bound
    return highest

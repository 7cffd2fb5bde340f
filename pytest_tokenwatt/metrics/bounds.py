"""A window against one bound of the SLO: certain pass, certain failure, or undecided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from pytest_tokenwatt.metrics.certainty import Standing
from pytest_tokenwatt.metrics.percentiles import allowed_misses
from pytest_tokenwatt.metrics.samples import LatencySamples, itl_judged, stands
from pytest_tokenwatt.records import RequestRecord, SloBound


class Outcome(Enum):
    """What is known of a window and a bound; ``VOID``: nothing has this latency."""

    MET = "met"
    MISSED = "missed"
    UNDECIDED = "undecided"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class Tally:
    """Of ``total`` planned observations, ``missed`` are certainly above the bound and ``open`` not known.

    An observation is a request, or for ITL a token.
    """

    bound: SloBound
    total: int
    missed: int
    open: int

    @property
    def allowed(self) -> int:
        """How many may lie above the bound."""
        return allowed_misses(self.bound.percentile, self.total)

    @property
    def outcome(self) -> Outcome:
        """Certain only where open observations cannot change it."""
        if self.missed > self.allowed:
            return Outcome.MISSED
        if self.total == 0:
            return Outcome.VOID
        return Outcome.MET if self.missed + self.open <= self.allowed else Outcome.UNDECIDED


def tally(
    bound: SloBound,
    records: Sequence[RequestRecord],
    samples: LatencySamples,
    unscheduled_tokens: Sequence[int],
    now_s: float,
) -> Tally:
    """Count a window's requests, and those of its plan that were never scheduled (by their planned output tokens)."""
    if bound.metric == "itl":
        return _tally_tokens(bound, records, samples, unscheduled_tokens)
    counts = Counter(stands(record, bound, now_s) for record in records)
    remaining = counts[Standing.OPEN] + len(unscheduled_tokens)
    total = counts[Standing.MET] + counts[Standing.MISSED] + remaining
    return Tally(bound, total, counts[Standing.MISSED], remaining)


def _tally_tokens(
    bound: SloBound, records: Sequence[RequestRecord], samples: LatencySamples, unscheduled_tokens: Sequence[int]
) -> Tally:
    running = [record for record in records if not itl_judged(record)]
    remaining = sum(max(0, record.planned_output_tokens - 1) for record in running)
    remaining += sum(max(0, tokens - 1) for tokens in unscheduled_tokens)
    known = samples.itl
    return Tally(bound, known.n + remaining, known.above(bound.bound_ms / 1e3), remaining)


def describe_miss(count: Tally, samples: LatencySamples) -> str:
    """One readable line: "TPOT p99 61.2 ms > 50 ms", or how many were too late when the percentile is infinite."""
    bound = count.bound
    name = f"{bound.metric.upper() if bound.metric != 'e2e' else 'e2e'} p{bound.percentile:g}"
    value = samples.of(bound.metric).percentile(bound.percentile)
    if value is not None and bound.bound_ms / 1e3 < value < float("inf"):
        return f"{name} {value * 1e3:.4g} ms > {bound.bound_ms:g} ms"
    unit = "tokens" if bound.metric == "itl" else "requests"
    missed = f"{count.missed} of {count.total} {unit} late or failed"
    return f"{name} > {bound.bound_ms:g} ms: {missed}, {count.allowed} allowed"

"""Puts the confirming windows of one scenario together, and compares goodput between configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_tokenwatt.metrics.energy import energy_figures, energy_record
from pytest_tokenwatt.metrics.percentiles import Sample, needed_requests
from pytest_tokenwatt.metrics.samples import METRICS, REPORTED, LatencySamples, percentiles
from pytest_tokenwatt.metrics.search import SearchResult
from pytest_tokenwatt.metrics.spread import drift_pct, spread_pct, widest
from pytest_tokenwatt.records import EnergyRecord, Figure, GoodputRecord, Percentile, SloBound, WindowResult

CAMPAIGN_FIGURES = ("mbu_pct", "mbu_engine_pct", "idle_power_w")
"""Figures that need more than the windows: the campaign adds them to the record."""
UNPOWERED = "no power was read in the confirming windows"


def aggregate(
    *,
    scenario: str,
    mode: str,
    bounds: Sequence[SloBound],
    repeats: int,
    result: SearchResult,
    samples: Sequence[LatencySamples],
    windows: Sequence[WindowResult],
    notes: Sequence[str] = (),
) -> GoodputRecord:
    """The record of one scenario.

    ``samples`` are those of ``result.windows``; ``windows`` are all that were judged, in their order.
    Rates are sums over the confirming windows divided by their lengths, percentiles are of the pooled sample. Without
    a passing rate there is neither rate nor goodput, and the percentiles are those of the windows that failed.
    """
    confirmed = result.rate_rps is not None and not result.invalid
    shown = result.windows if confirmed else ()
    pooled = LatencySamples.pooled(samples, max(1, len(samples))) if samples else None
    goodput = [window.goodput_tok_s for window in shown]
    energy = energy_record(shown)
    return GoodputRecord(
        scenario=scenario,
        mode=mode,
        slo=tuple(bounds),
        rate_rps=result.rate_rps if confirmed else None,
        goodput_tok_s=_rate(shown, [window.good_tokens for window in shown]),
        output_tok_s=_rate(shown, [window.output_tokens for window in shown]),
        percentiles=percentiles(pooled, bounds) if pooled else (),
        slo_pass_count=sum(window.passes and not window.invalid for window in result.windows),
        repeats=repeats,
        highest_passing_rps=result.highest_passing_rps,
        lowest_failing_rps=result.lowest_failing_rps,
        bracket=result.bracket,
        backoffs=result.backoffs,
        error_pct=bracket_error_pct(result) if confirmed else None,
        variance_band_pct=spread_pct(goodput),
        misses=result.misses,
        invalid=result.invalid,
        notes=(*result.notes, *notes),
        windows=tuple(windows),
        figures=_figures(result if confirmed else None, shown, pooled, bounds, _why(result), energy),
        energy=energy,
    )


def _why(result: SearchResult) -> str:
    if result.invalid:
        return str(result.invalid[0])
    return "no rate passed" + (f": {result.misses[0]}" if result.misses else "")


def _rate(windows: Sequence[WindowResult], tokens: Sequence[int]) -> float | None:
    """Tokens per second over windows; ``None`` when a window could not count its tokens."""
    seconds = sum(window.end_s - window.start_s for window in windows)
    if not windows or seconds <= 0 or any(window.output_tok_s is None for window in windows):
        return None
    return sum(tokens) / seconds


def bracket_error_pct(result: SearchResult) -> float | None:
    """100 · (lowest failing − highest passing) / rate; ``None`` when no failing rate was searched."""
    if result.rate_rps is None or result.highest_passing_rps is None or result.lowest_failing_rps is None:
        return None
    return 100.0 * (result.lowest_failing_rps - result.highest_passing_rps) / result.rate_rps


def variance_band_pct(
    records: Sequence[GoodputRecord], again: Sequence[tuple[GoodputRecord, GoodputRecord]] = ()
) -> float | None:
    """The largest spread over repeats of any configuration and |A′ − A| / A of each pair (A, A′) in ``again``.

    ``None`` when nothing was measured twice.
    """
    drifts = [drift_pct(first.goodput_tok_s, second.goodput_tok_s) for first, second in again]
    return widest([*(record.variance_band_pct for record in records), *drifts])


def goodput_ratio_error(candidate: GoodputRecord, baseline: GoodputRecord, band_pct: float | None) -> float | None:
    """The goodput ratio's error: the largest of the band and both bracket widths, as a share; ``None``: unknown."""
    parts = [candidate.error_pct, baseline.error_pct, band_pct]
    known = [part for part in parts if part is not None]
    return max(known) / 100.0 if known else None


def is_measurable(ratio: float, error: float | None) -> bool:
    """Whether a ratio differs from 1 by more than its error; a difference inside it is none that was measured.

    An unknown error leaves nothing measurable.
    """
    return error is not None and abs(ratio - 1.0) > error


def figure_names(bounds: Sequence[SloBound]) -> frozenset[str]:
    """Names of all figures that a record under this SLO has, measured or not; metrics of the server not among them."""
    latencies = [f"{metric}_p{percentile:g}_ms" for metric in (*METRICS, "ttft_from_send") for percentile in REPORTED]
    counted = _figures(None, (), None, bounds, "", None)
    return frozenset([*counted, *CAMPAIGN_FIGURES, *latencies, *(bound.name for bound in bounds)])


def _figures(
    result: SearchResult | None,
    windows: Sequence[WindowResult],
    pooled: LatencySamples | None,
    bounds: Sequence[SloBound],
    why: str,
    energy: EnergyRecord | None,
) -> Mapping[str, Figure]:
    """Every number that a rule may name; those of a configuration without a passing rate have a reason instead."""
    rate = None if result is None else result.rate_rps
    counted = {
        "rate_rps": (rate, "req/s"),
        "goodput_tok_s": (_rate(windows, [window.good_tokens for window in windows]), "tok/s"),
        "output_tok_s": (_rate(windows, [window.output_tokens for window in windows]), "tok/s"),
        "requests": (_total([window.planned for window in windows]), "requests"),
        "failed_requests": (_total([sum(window.failures.values()) for window in windows]), "requests"),
        "waiting_growth": (_largest([window.waiting_growth for window in windows]), "requests"),
        "schedule_lag_p99_ms": (_largest([window.client.lag_p99_ms for window in windows]), "ms"),
    }
    figures = {name: Figure(value, unit, reason=_reason(value, why)) for name, (value, unit) in counted.items()}
    figures |= energy_figures(energy, why if result is None else UNPOWERED)
    latencies = percentiles(pooled, bounds) if pooled is not None and result is not None else ()
    figures |= {latency.name: _latency_figure(latency) for latency in latencies}
    if pooled is not None and result is not None:
        figures |= {f"ttft_from_send_p{p:g}_ms": _sample_figure(pooled.ttft_from_send, p) for p in REPORTED}
    return figures


def _reason(value: float | None, why: str) -> str | None:
    return why if value is None else None


def _total(values: Sequence[int]) -> float | None:
    return float(sum(values)) if values else None


def _largest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _latency_figure(latency: Percentile) -> Figure:
    why = "the rank falls on a failed request" if latency.infinite else f"{latency.n} observations do not resolve it"
    return Figure(
        latency.value_ms,
        "ms",
        low=latency.low_ms,
        high=latency.high_ms,
        n=latency.n,
        reason=_reason(latency.value_ms, why),
    )


def _sample_figure(sample: Sample, percentile: float) -> Figure:
    value = sample.percentile(percentile)
    if value is None or value == float("inf") or sample.n < needed_requests(percentile):
        return Figure(None, "ms", n=sample.n, reason=f"{sample.n} observations do not resolve it")
    low, high = sample.interval(percentile)
    return Figure(
        value * 1e3,
        "ms",
        low=None if low is None else low * 1e3,
        high=None if high is None else high * 1e3,
        n=sample.n,
    )

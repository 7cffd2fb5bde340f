"""guidellm's ``benchmarks.json``: report schema 2 (0.8), schema 1 (0.5), and the one before it had a number (0.3).

A file holds one benchmark a strategy. ``time_per_output_token_ms`` includes the first token and is not used: TPOT is a
request's ``inter_token_latency_ms``, (last token − first token) / (output tokens − 1), of which the file's percentiles
are weighted by tokens, so that it needs the requests themselves. Percentiles are nearest rank over successful requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from pytest_tokenwatt.store.replay.fields import Fields, shown
from pytest_tokenwatt.store.tools.figures import latency, needed, positive
from pytest_tokenwatt.store.tools.guidellm_requests import from_requests
from pytest_tokenwatt.store.tools.tool_run import FROM_SEND, Latency, ToolRun, ToolWindow

TOOL = "guidellm"
_OPEN = ("constant", "poisson")
_CLOSED = {"synchronous": "one request was in flight (closed loop)", "concurrent": "requests in flight were fixed"}
_HELD = "the client may have held requests back at max_concurrency, which hides their waiting"
_PERCENTILES = {"p50": 50.0, "p75": 75.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p999": 99.9}
_LATENCIES = {"ttft": ("time_to_first_token_ms", 1.0), "e2e": ("request_latency", 1e3)}


def is_guidellm(content: Mapping[str, Any]) -> bool:
    """Whether there are benchmarks with this tool's metrics."""
    benchmarks = content.get("benchmarks")
    first = benchmarks[0] if isinstance(benchmarks, list) and benchmarks else None
    return isinstance(first, dict) and isinstance(first.get("metrics"), dict) and ("args" in first or "config" in first)


def read_guidellm(report: Fields) -> ToolRun:
    """One window a benchmark. Raises ``UsageError``."""
    benchmarks = report.rows("benchmarks")
    sampled = [_sample(benchmark) for benchmark in benchmarks]
    windows = [_window(report, each, sample) for each, sample in zip(benchmarks, sampled, strict=True)]
    return ToolRun(
        TOOL,
        report.block("metadata").text("guidellm_version"),
        _model(report, benchmarks[0]),
        _instant(benchmarks[0].number("start_time")),
        tuple(windows),
        tuple(_notes(benchmarks, sampled, windows)),
    )


def _strategy(benchmark: Fields) -> Fields:
    return benchmark.block("config" if "config" in benchmark.data else "args").block("strategy")


def _window(report: Fields, benchmark: Fields, sample: Mapping[str, Latency] | None) -> ToolWindow:
    strategy, metrics = _strategy(benchmark), benchmark.block("metrics")
    finished, failed, cut = _counts(benchmark)
    kind = strategy.text("type_") or "unknown"
    held = sample is None and _held_back(strategy, metrics)
    rate_rps = positive(strategy, "rate") if kind in _OPEN and not held else None
    in_flight = {"synchronous": 1, "concurrent": strategy.count("streams")}.get(kind)
    at = f"@{rate_rps:g}" if rate_rps else f"@{in_flight}" if in_flight and kind == "concurrent" else ""
    return ToolWindow(
        label=f"{kind}{at}",
        rate_rps=rate_rps,
        in_flight=in_flight or None,
        no_rate=None if rate_rps else _HELD if held else _CLOSED.get(kind, f"{shown(kind)} offers no fixed rate"),
        duration_s=positive(benchmark, "duration"),
        finished=finished,
        failed=failed,
        cut=cut,
        input_tokens=_sum(metrics.block("prompt_token_count")),
        output_tokens=_sum(metrics.block("output_token_count")),
        good_rps=metrics.block("request_goodput").block("successful").number("mean", least=0.0),
        latencies=sample or _aggregates(metrics),
        load=_load(report, benchmark, strategy),
    )


def _held_back(strategy: Fields, metrics: Fields) -> bool:
    """Whether as many requests were in flight as the client allows; matters where latencies count from sending."""
    limit = strategy.count("max_concurrency")
    highest = metrics.block("request_concurrency").block("total").number("max")
    return strategy.text("type_") in _OPEN and limit is not None and (highest is None or highest >= limit)


def _counts(benchmark: Fields) -> tuple[int, int, int]:
    """Requests that succeeded and failed in the measured time, and those that were cut off, or failed outside of it.

    A worker that waits for the instant of its next request when the run ends counts in ``requests_made`` as
    incomplete, although that request was never due: requests that were sent are listed.
    """
    metrics = benchmark.block("metrics")
    totals = (metrics if "request_totals" in metrics.data else benchmark).block("request_totals")
    finished, failed = needed(totals, "successful"), needed(totals, "errored")
    made = benchmark.block("scheduler_metrics" if "scheduler_metrics" in benchmark.data else "run_stats")
    made = made.block("requests_made")
    listed = benchmark.block("requests").data.get("incomplete")
    sent = len(listed) if isinstance(listed, list) else made.count("incomplete") or 0
    lost = max(0, (made.count("errored") or 0) - failed)
    return finished, failed, max(totals.count("incomplete") or 0, sent) + lost


def _sum(metric: Fields) -> int | None:
    total = metric.block("successful").number("total_sum", least=0.0)
    return None if total is None else round(total)


def _aggregates(metrics: Fields) -> dict[str, Latency]:
    found: dict[str, Latency] = {}
    for metric, (key, factor) in _LATENCIES.items():
        told = metrics.block(key).block("successful").block("percentiles")
        values = {name: told.number(name, least=0.0) for name in _PERCENTILES}
        each = latency(
            told, key, {_PERCENTILES[name]: factor * value for name, value in values.items() if value is not None}
        )
        found |= {metric: each} if each else {}
    return found | ({FROM_SEND: found["ttft"]} if "ttft" in found else {})


def _sample(benchmark: Fields) -> Mapping[str, Latency] | None:
    kind = _strategy(benchmark).text("type_")
    return from_requests(benchmark.block("requests"), _counts(benchmark)[0], scheduled=kind in _OPEN)


def _load(report: Fields, benchmark: Fields, strategy: Fields) -> dict[str, Any] | None:
    """The strategy and the data; without a description of the data nothing is known."""
    spec = report.block("config").data.get("spec")
    places = (
        Fields(report.where, spec) if isinstance(spec, dict) else report.block("config"),
        report.block("args"),
        benchmark.block("request_loader"),
    )
    data = next((place.data["data"] for place in places if place.data.get("data")), None)
    keys = ("type_", "rate", "streams", "random_seed")
    return None if data is None else {"data": data, **{key: strategy.data.get(key) for key in keys}}


def _model(report: Fields, benchmark: Fields) -> str | None:
    config = report.block("config")
    places = (
        (config.block("spec").block("backend"), "model"),
        (config.block("backend"), "model"),
        (report.block("args"), "model"),
        (benchmark.block("worker"), "backend_model"),
    )
    return next((name for place, key in places if (name := place.text(key))), None)


def _instant(epoch_s: float | None) -> str | None:
    try:
        return None if epoch_s is None else datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return None


def _notes(
    benchmarks: list[Fields], sampled: list[Mapping[str, Latency] | None], windows: list[ToolWindow]
) -> Iterator[str]:
    if any(sample is None for sample in sampled):
        yield "where the file does not list every request, TTFT and E2E count from sending, percentiles are the tool's"
        yield "TPOT needs every request: the tool's percentiles of it are weighted by tokens"
    if any(sample is not None for sample in sampled):
        due = "from the instant at which a request was due at a fixed rate, else from its sending"
        yield f"latencies are computed from the listed requests: TTFT and E2E {due}"
    yield "ITL is not covered: the file holds one mean gap a request"
    yield "rates are over finished requests of the tool's measured time"
    for benchmark, window in zip(benchmarks, windows, strict=True):
        for warning in benchmark.rows("warnings"):
            yield f"{window.label}: {warning.text('message') or warning.text('code') or 'a warning'}"

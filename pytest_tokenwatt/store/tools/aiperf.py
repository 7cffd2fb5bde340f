"""aiperf's ``profile_export_aiperf.json``: schemas 1.x, and the ones before them without a version.

Every metric is a mapping with its unit and statistics over successful requests; ``adj_`` metrics, which newer versions
add where requests failed, count those as never answered. ``inter_token_latency`` is a request's mean, (latency − TTFT)
/ (output tokens − tokens of the first chunk): TPOT. Its tokens are counted by the tool's own tokenizer unless told
otherwise, which is checked against the server's ``usage`` where the file has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pytest_tokenwatt.records import Reason
from pytest_tokenwatt.store.replay.fields import Fields, shown
from pytest_tokenwatt.store.tools.figures import latency
from pytest_tokenwatt.store.tools.tool_run import FROM_SEND, Latency, ToolRun, ToolWindow

TOOL = "aiperf"
_METRICS = ("request_throughput", "request_latency", "request_count", "time_to_first_token", "output_token_throughput")
_TO_MS = {"ms": 1.0, "s": 1e3, "sec": 1e3, "us": 1e-3, "ns": 1e-6}
_PERCENTILES = {"p50": 50.0, "p75": 75.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}
_LATENCIES = {"ttft": "time_to_first_token", "tpot": "inter_token_latency", "e2e": "request_latency"}
_TOKENS_OFF = 0.001


def is_aiperf(content: Mapping[str, Any]) -> bool:
    """Whether at least two of its metrics stand there with a unit, beside its configuration."""
    metrics = [content.get(name) for name in _METRICS]
    told = sum(isinstance(metric, dict) and "unit" in metric for metric in metrics)
    return told >= 2 and ("input_config" in content or "aiperf_version" in content)


def read_aiperf(result: Fields) -> ToolRun:
    """One window. Raises ``UsageError``."""
    config = result.block("input_config")
    rate_rps, in_flight, no_rate = _load(config)
    finished, failed, cut = _counts(result, config)
    counted = _Tokens(result)
    window = ToolWindow(
        label=f"{rate_rps:g} req/s" if rate_rps else f"{in_flight} in flight" if in_flight else "varying load",
        rate_rps=rate_rps,
        in_flight=in_flight,
        no_rate=no_rate,
        duration_s=_duration_s(result),
        finished=finished,
        failed=failed,
        cut=cut,
        input_tokens=counted.input,
        output_tokens=counted.output,
        good_rps=result.block("goodput").number("avg", least=0.0),
        latencies=_latencies(result, trusted=counted.agree),
        load=_settings(config),
        invalid=tuple(_faults(result)),
    )
    model = _model(config)
    return ToolRun(TOOL, result.text("aiperf_version"), model, None, (window,), tuple(_notes(config, counted)))


class _Tokens:
    """Input and output tokens: the server's count where the file has it, else the tool's own."""

    def __init__(self, result: Fields) -> None:
        usage, own = _total(result, "usage_completion_tokens"), _total(result, "output_sequence_length", "total_osl")
        self.served = usage is not None
        self.output = own if usage is None else usage
        self.own = own
        self.agree = usage is None or own is None or abs(own - usage) <= _TOKENS_OFF * usage
        read = _total(result, "usage_prompt_tokens")
        self.input = _total(result, "input_sequence_length", "total_isl") if read is None else read


def _total(result: Fields, metric: str, otherwise: str | None = None) -> int | None:
    """A metric's sum over requests, or the average of one that is a sum itself; older files only have the latter."""
    total = result.block(metric).number("sum", least=0.0)
    if total is None and otherwise is not None:
        total = result.block(otherwise).number("avg", least=0.0)
    return None if total is None else round(total)


def _counts(result: Fields, config: Fields) -> tuple[int, int, int]:
    """Requests that succeeded, failed, and were asked for and are not accounted for."""
    finished = _average(result, "request_count")
    failed = _average(result, "error_request_count", 0)
    errors = sum(row.count("count") or 0 for row in result.rows("error_summary"))
    failed = max(failed, errors)
    asked = [phase.count("requests") or 0 for phase in _phases(config)]
    return finished, failed, max(0, sum(asked) - finished - failed)


def _average(result: Fields, metric: str, otherwise: int | None = None) -> int:
    block = result.block(metric)
    value = block.count("avg")
    if value is None and otherwise is None:
        raise block.wrong("avg", "the key is missing")
    return otherwise or 0 if value is None else value


def _duration_s(result: Fields) -> float:
    """The tool's duration; older files lack it, and tell a rate and a count."""
    told = result.block("benchmark_duration")
    if told.number("avg") is not None:
        value = (told.number("avg", least=0.0) or 0.0) * _to_ms(told) / 1e3
    else:
        rate = result.block("request_throughput").number("avg", least=0.0)
        value = _average(result, "request_count") / rate if rate else 0.0
    if value <= 0:
        raise told.wrong("avg", "the run has no duration")
    return value


def _to_ms(metric: Fields) -> float:
    unit = metric.text("unit") or "ms"
    if unit not in _TO_MS:
        raise metric.wrong("unit", f"expected one of {', '.join(_TO_MS)}, found {shown(unit)}")
    return _TO_MS[unit]


def _latencies(result: Fields, *, trusted: bool) -> dict[str, Latency]:
    """TTFT, TPOT and E2E; no TPOT where its tokens are not those that the server counted."""
    found: dict[str, Latency] = {}
    for metric, name in _LATENCIES.items():
        if metric == "tpot" and not trusted:
            continue
        told, adjusted = result.block(name), result.block(f"adj_{name}")
        each = latency(told, name, _values(told), with_failed=_values(adjusted) if adjusted.data else None)
        found |= {metric: each} if each else {}
    return found | ({FROM_SEND: found["ttft"]} if "ttft" in found else {})


def _values(metric: Fields) -> dict[float, float]:
    found = {percentile: metric.number(key, least=0.0) for key, percentile in _PERCENTILES.items()}
    return {percentile: _to_ms(metric) * value for percentile, value in found.items() if value is not None}


def _phases(config: Fields) -> list[Fields]:
    """The phases that were measured; warm-up is not."""
    phases = config.rows("phases")
    return [phase for phase in phases if (phase.text("kind") or phase.text("name") or "profiling") != "warmup"]


def _load(config: Fields) -> tuple[float | None, int | None, str | None]:
    """The offered rate, or the requests in flight and why there was no rate."""
    phases = _phases(config)
    if len(phases) > 1:
        return None, None, f"{len(phases)} phases were measured together"
    settings = phases[0] if phases else config.block("loadgen")
    rate_rps = settings.number("rate" if phases else "request_rate", least=0.0)
    in_flight = settings.count("concurrency")
    if settings.data.get("rate_ramp") or settings.text("type") in ("user_centric", "fixed_schedule"):
        return None, None, "the rate was not fixed"
    if rate_rps and in_flight:
        return (
            None,
            None,
            f"the client may have held requests back at concurrency {in_flight}, which hides their waiting",
        )
    if rate_rps:
        return rate_rps, None, None
    if in_flight:
        return None, in_flight, "requests were sent when others had finished (closed loop)"
    return None, None, "the file does not say at which rate requests were sent"


def _settings(config: Fields) -> dict[str, Any] | None:
    """What was offered, by the tool's own configuration; ``None`` where the file does not hold it."""
    keys = ("datasets", "phases", "loadgen", "input")
    return {key: config.data[key] for key in keys if key in config.data} or None


def _model(config: Fields) -> str | None:
    models = config.data.get("models")
    if isinstance(models, dict):
        names = [name for row in config.block("models").rows("items") if (name := row.text("name"))]
    else:
        names = list(config.block("endpoint").texts("model_names"))
    return names[0] if names else None


def _faults(result: Fields) -> Iterator[Reason]:
    if result.flag("was_cancelled"):
        yield Reason("run_incomplete", "the run was cancelled")
    if result.flag("is_complete") is False:
        yield Reason("run_incomplete", result.text("incomplete_reason") or "the tool calls its run incomplete")


def _notes(config: Fields, counted: _Tokens) -> Iterator[str]:
    yield "TTFT and E2E count from the sending of a request, not from the instant at which it was due"
    yield "percentiles are the tool's: interpolated, over successful requests unless it adjusts them for failed ones"
    yield "ITL is not covered: the tool has gaps between chunks, not tokens"
    if not counted.agree:
        told = f"{counted.own} output tokens by the tool's tokenizer, {counted.output} by the server"
        yield f"{told}: the server's count is used, and TPOT is not covered without --use-server-token-count"
    elif not counted.served:
        yield "output tokens, and so TPOT, are by the tool's own tokenizer: the file has no count of the server"
    bounds = config.block("slos").data or config.block("input").block("goodput").data
    if bounds:
        told = ", ".join(f"{shown(key)} {shown(value)}" for key, value in bounds.items())
        yield f"good_rps counts requests within {told}, each by itself: no bounds on percentiles, so no SLO"

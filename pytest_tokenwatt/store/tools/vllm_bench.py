"""The result file of ``vllm bench serve --save-result``, with and without ``--save-detailed``.

Its keys are those of vLLM's ``benchmarks/serve.py``: latencies in ms from the sending of a request, percentiles
interpolated over requests that succeeded, ``max_concurrency`` a limit that the client waits for, ``request_rate``
"inf" when all requests are sent at once. TPOT = (latency − TTFT) / (output tokens − 1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_tokenwatt.store.replay.fields import Fields
from pytest_tokenwatt.store.tools.figures import latency, needed, positive
from pytest_tokenwatt.store.tools.tool_run import FROM_SEND, Latency, ToolRun, ToolWindow

TOOL = "vllm bench serve"
_TYPICAL = ("duration", "completed", "num_prompts", "request_throughput", "total_input_tokens", "request_rate")
_NAMES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e"}
_KEY = re.compile(r"(?:p(?P<percentile>\d{1,2}(?:\.\d{1,4})?)|(?P<median>median))_(?P<metric>ttft|tpot|itl|e2el)_ms")


def is_vllm_bench(content: Mapping[str, Any]) -> bool:
    """Whether the keys are those of this tool, one or two of them missing."""
    typical = sum(key in content for key in _TYPICAL)
    return typical >= len(_TYPICAL) - 2 and ("backend" in content or "endpoint_type" in content)


def read_vllm_bench(result: Fields) -> ToolRun:
    """One window at the rate or concurrency of the file. Raises ``UsageError``."""
    detail = _Detail.of(result)
    finished, failed, cut = _counts(result)
    rate_rps, in_flight, no_rate = _load(result)
    goodput = result.number("request_goodput", least=0.0)
    window = ToolWindow(
        label=f"{rate_rps:g} req/s" if rate_rps else f"{in_flight} in flight" if in_flight else "varying load",
        rate_rps=rate_rps,
        in_flight=in_flight,
        no_rate=no_rate,
        duration_s=positive(result, "duration"),
        finished=finished,
        failed=failed,
        cut=cut,
        input_tokens=result.count("total_input_tokens"),
        output_tokens=result.count("total_output_tokens"),
        good_rps=goodput,
        latencies=_with_send(detail.latencies() if detail else _aggregates(result)),
        load=None if failed or cut else _settings(result),
    )
    return ToolRun(TOOL, None, result.text("model_id"), None, (window,), tuple(_notes(result, detail, goodput)))


def _counts(result: Fields) -> tuple[int, int, int]:
    """Requests that succeeded, failed, and are not accounted for; older versions do not say how many failed."""
    prompts, finished = result.count("num_prompts"), needed(result, "completed")
    failed = result.count("failed")
    if failed is None:
        return finished, max(0, (prompts or 0) - finished), 0
    return finished, failed, max(0, (prompts or 0) - finished - failed)


def _load(result: Fields) -> tuple[float | None, int | None, str | None]:
    """The offered rate, or the requests in flight and why there was no rate."""
    limit, asked = result.count("max_concurrency"), result.data.get("request_rate")
    if result.text("ramp_up_strategy"):
        return None, None, "the rate was ramped up during the run"
    if asked is None:
        return None, None, "the file does not say at which rate requests were sent"
    if asked == "inf":
        in_flight = limit or result.count("num_prompts") or None
        return None, in_flight, "requests were sent when others had finished (closed loop), or all at once"
    rate_rps = positive(result, "request_rate")
    highest = result.count("max_concurrent_requests")
    if limit is None or (highest is not None and highest < limit):
        return rate_rps, None, None
    return None, None, f"the client may have held requests back at max_concurrency {limit}, which hides their waiting"


def _settings(result: Fields) -> dict[str, Any]:
    keys = ("num_prompts", "request_rate", "burstiness", "max_concurrency", "total_input_tokens")
    return {key: result.data.get(key) for key in keys} | {"ramp": result.text("ramp_up_strategy")}


def _aggregates(result: Fields) -> dict[str, Latency]:
    found: dict[str, dict[float, float]] = {}
    for key in result.data:
        match = _KEY.fullmatch(key)
        value = result.number(key, least=0.0) if match else None
        if match and value is not None:
            found.setdefault(_NAMES[match["metric"]], {})[float(match["percentile"] or 50)] = value
    return {
        metric: each
        for metric in _NAMES.values()
        if (each := latency(result, metric, found.get(metric, {}), by_request=metric != "itl"))
    }


def _with_send(latencies: Mapping[str, Latency]) -> dict[str, Latency]:
    """The tool's TTFT counts from sending: it is both."""
    return dict(latencies) | ({FROM_SEND: latencies["ttft"]} if "ttft" in latencies else {})


@dataclass(frozen=True, slots=True)
class _Detail:
    """Lists with one entry a request, in s; those of requests that failed are left out."""

    ttfts: tuple[float, ...]
    itls: tuple[tuple[float, ...], ...]
    ends: tuple[float, ...]
    tokens: tuple[int, ...]

    @classmethod
    def of(cls, result: Fields) -> _Detail | None:
        """``None`` where the lists are not there or do not fit the counts."""
        lists = [result.data.get(key) for key in ("ttfts", "itls", "output_lens", "errors")]
        ttfts, itls, tokens, errors = (each if isinstance(each, list) else [] for each in lists)
        if not ttfts or len({len(ttfts), len(itls), len(tokens), len(errors)}) != 1:
            return None
        latencies = result.data.get("latencies")
        ends = latencies if isinstance(latencies, list) and len(latencies) == len(ttfts) else [None] * len(ttfts)
        rows = [row for row in zip(ttfts, itls, tokens, ends, errors, strict=True) if not row[4]]
        if len(rows) != result.count("completed") or not all(map(_fits, rows)):
            return None
        return cls(
            tuple(float(row[0]) for row in rows),
            tuple(tuple(map(float, row[1])) for row in rows),
            tuple(float(row[3] if row[3] is not None else row[0] + sum(row[1])) for row in rows),
            tuple(int(row[2]) for row in rows),
        )

    def latencies(self) -> dict[str, Latency]:
        """All metrics in ms, sorted."""
        several = [place for place, tokens in enumerate(self.tokens) if tokens > 1]
        tpots = [(self.ends[place] - self.ttfts[place]) / (self.tokens[place] - 1) for place in several]
        gaps = [gap for gaps in self.itls for gap in gaps]
        found = {"ttft": self.ttfts, "tpot": tpots, "itl": gaps, "e2e": self.ends}
        return {
            metric: Latency(sample=tuple(sorted(1e3 * value for value in values)), by_request=metric != "itl")
            for metric, values in found.items()
            if values
        }


def _fits(row: tuple[Any, ...]) -> bool:
    """Whether one request's first token, gaps, tokens and end are numbers that can be; a TTFT of 0 is none."""
    first, gaps, tokens, end, _ = row
    if not isinstance(gaps, list) or not all(_number(value) for value in (first, tokens, *gaps)):
        return False
    return bool(first > 0 and tokens >= 1 and (end is None or (_number(end) and end >= first)))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _notes(result: Fields, detail: _Detail | None, goodput: float | None) -> Iterator[str]:
    yield "TTFT and E2E count from the sending of a request, not from the instant at which it was due"
    if detail is None:
        yield "percentiles are the tool's: interpolated, and over successful requests (--save-detailed keeps them all)"
    yield "output tokens are the server's count, or where it sends none that of the tool's tokenizer"
    if goodput is not None:
        yield f"the tool's goodput is {goodput:g} req/s; the file does not keep the bounds that it was counted by"
    burstiness = result.number("burstiness")
    if burstiness is not None and burstiness != 1.0:
        yield f"arrivals are no Poisson process: burstiness {burstiness:g}"
    if result.number("burstiness") is None or result.data.get("request_rate") is None:
        yield "the file does not say how arrivals were drawn"

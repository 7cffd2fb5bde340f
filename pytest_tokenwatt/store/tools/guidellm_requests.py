"""Latencies of guidellm's listed requests, in ms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_tokenwatt.store.replay.fields import Fields
from pytest_tokenwatt.store.tools.tool_run import FROM_SEND, Latency


def from_requests(requests: Fields, finished: int, *, scheduled: bool) -> Mapping[str, Latency] | None:
    """TTFT, TPOT and E2E of all requests that finished; ``None`` unless the file lists them all, complete.

    ``scheduled``: TTFT and E2E count from the instant at which the request was due, where the file tells it.
    """
    listed = requests.data.get("successful")
    if not isinstance(listed, list) or not listed or len(listed) != finished:
        return None
    rows = requests.rows("successful")
    ttfts = _all([row.number("time_to_first_token_ms", least=0.0) for row in rows])
    ends = _all([row.number("request_latency", least=0.0) for row in rows])
    if ttfts is None or ends is None or not all(ttfts) or not all(ends):
        return None
    late = _all([_late_ms(row) for row in rows]) if scheduled else None
    waits = late or [0.0] * len(rows)
    tpots = [row.number("inter_token_latency_ms", least=0.0) for row in rows if (row.count("output_tokens") or 0) > 1]
    found = {
        "ttft": [ttft + wait for ttft, wait in zip(ttfts, waits, strict=True)],
        "tpot": _all(tpots) or [],
        "e2e": [1e3 * end + wait for end, wait in zip(ends, waits, strict=True)],
        FROM_SEND: ttfts,
    }
    return {metric: Latency(sample=tuple(sorted(values))) for metric, values in found.items() if values}


def _all(values: Sequence[float | None]) -> list[float] | None:
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else None


def _late_ms(row: Fields) -> float | None:
    """How long after its due instant a request was sent; clocks of two processes may make it negative, which is 0."""
    timings = row.block("info").block("timings")
    due, sent = timings.number("targeted_start"), timings.number("request_start")
    if due is None or sent is None:
        due, sent = row.block("scheduler_info").number("targeted_start_time"), row.number("start_time")
    return None if due is None or sent is None else max(0.0, 1e3 * (sent - due))

"""A closed loop of another tool as a profile that was run once, and what makes two loads comparable."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pytest_tokenwatt.records.profiles import PeakMemory, ProfileRecord, ProfileRun
from pytest_tokenwatt.store.tools.known import percentiles
from pytest_tokenwatt.store.tools.tool_run import ToolWindow


def closed_loop(tool: str, window: ToolWindow) -> ProfileRecord | None:
    """The profile of a window with a fixed number of requests in flight that all finished; ``None`` of any other.

    Its lengths are the means over the requests. A profile's window, too, reaches from the first sending to the last
    end, so that the rate is the same figure.
    """
    lost = window.failed or window.cut or window.invalid
    if window.in_flight is None or lost or not window.finished or window.load is None:
        return None
    if not window.input_tokens or not window.output_tokens:
        return None
    return ProfileRecord(
        name=f"concurrency-{window.in_flight}",
        concurrency=min(window.in_flight, window.finished),
        input_tokens=max(1, round(window.input_tokens / window.finished)),
        output_tokens=max(1, round(window.output_tokens / window.finished)),
        requests=window.finished,
        runs=(_run(window, window.output_tokens),),
        output_tok_s=window.output_tok_s,
        memory=PeakMemory(),
        load_sha256=load_hash(tool, window.load) or "",
        notes=(f"told by {tool}; token counts are means over {window.finished} requests",),
    )


def load_hash(tool: str, load: Mapping[str, Any] | None) -> str | None:
    """SHA-256 (hex) over a load; another tool asks in another way, so that the two are not compared."""
    if load is None:
        return None
    return hashlib.sha256(json.dumps({"tool": tool, "load": load}, sort_keys=True).encode()).hexdigest()


def _run(window: ToolWindow, output_tokens: int) -> ProfileRun:
    medians = {found.metric: found.value_ms for found, _ in percentiles(window) if found.percentile == 50.0}
    return ProfileRun(
        label=window.label,
        window_s=window.duration_s,
        output_tokens=output_tokens,
        output_tok_s=window.output_tok_s,
        requests=window.finished,
        failed=window.failed,
        held_share=None,
        client_cpu_share=None,
        ttft_p50_ms=medians.get("ttft"),
        tpot_p50_ms=medians.get("tpot"),
        e2e_p50_ms=medians.get("e2e"),
    )

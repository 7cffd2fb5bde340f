"""What any load tool tells of its runs, whatever its file looks like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_tokenwatt.records import Reason

FROM_SEND = "ttft_from_send"
"""Time to first token since a request was sent, where ``ttft`` may count from its scheduled instant."""


@dataclass(frozen=True, slots=True)
class Latency:
    """One latency in ms, of the requests that finished.

    ``percentiles`` are the tool's own. ``sample`` holds one value a request (or token) where the file lists them, and
    then counts alone. ``with_failed`` are percentiles for which the tool counted failed requests as never answered;
    ``None`` where it has none of these. ``by_request`` is false for latencies of tokens, of which failed requests
    have an unknown number.
    """

    percentiles: Mapping[float, float] = field(default_factory=dict)
    sample: tuple[float, ...] | None = None
    with_failed: Mapping[float, float] | None = None
    by_request: bool = True


@dataclass(frozen=True, slots=True)
class ToolWindow:
    """One run at one load.

    ``rate_rps`` is the offered rate of an open loop, ``in_flight`` the requests in flight of a closed one; a load that
    is neither has ``no_rate`` alone, which says why no rate was offered. ``cut`` requests were neither finished nor
    failed when the run ended. ``good_rps`` are requests per second within the tool's own goodput bounds. ``load``
    holds what must be equal for two runs to be comparable; ``None``: not known.
    """

    label: str
    rate_rps: float | None
    in_flight: int | None
    no_rate: str | None
    duration_s: float
    finished: int
    failed: int
    cut: int
    input_tokens: int | None
    output_tokens: int | None
    good_rps: float | None
    latencies: Mapping[str, Latency]
    load: Mapping[str, Any] | None
    invalid: tuple[Reason, ...] = ()

    @property
    def total(self) -> int:
        """All requests that were to be answered."""
        return self.finished + self.failed + self.cut

    @property
    def output_tok_s(self) -> float | None:
        """Output tokens of finished requests per second of the whole run, its ramp and its end included."""
        return None if self.output_tokens is None else self.output_tokens / self.duration_s


@dataclass(frozen=True, slots=True)
class ToolRun:
    """One file: ``tool`` with its version where known, the served model, when it was measured, and its windows.

    ``notes`` say what the file leaves open or defines differently.
    """

    tool: str
    version: str | None
    model: str | None
    recorded: str | None
    windows: tuple[ToolWindow, ...]
    notes: tuple[str, ...]

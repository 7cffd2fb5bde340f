"""Goodput as a test reads it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_tokenwatt.errors import NotMeasured

if TYPE_CHECKING:
    from pytest_tokenwatt.records import Figure, GoodputRecord, Percentile, Reason, WindowResult


@dataclass(frozen=True, slots=True)
class Goodput:
    """Goodput of one configuration at the highest rate that meets its SLO.

    Any recorded figure can be read by its name: ``goodput.ttft_p99_ms``, ``goodput.tpot_p50_ms``,
    ``goodput.output_tok_s``. Raises ``NotMeasured`` for a figure without a value, ``AttributeError`` for a name that
    is no figure.
    """

    config: str
    record: GoodputRecord = field(repr=False)

    @property
    def scenario(self) -> str:
        """Name of the scenario (``default`` without ``scenarios:``)."""
        return self.record.scenario

    @property
    def tok_s(self) -> float:
        """Tokens per second that belong to requests meeting every SLO metric, over the confirm windows."""
        return self._known("goodput_tok_s", self.record.goodput_tok_s)

    @property
    def rate_rps(self) -> float:
        """The offered rate, in requests per second, at which all repeats passed."""
        return self._known("rate_rps", self.record.rate_rps)

    @property
    def output_tok_s(self) -> float:
        """All output tokens delivered per second over the confirm windows."""
        return self._known("output_tok_s", self.record.output_tok_s)

    @property
    def error_pct(self) -> float:
        """Width of [highest passing, lowest failing] rate over the rate, in per cent."""
        return self._known("error_pct", self.record.error_pct)

    @property
    def percentiles(self) -> tuple[Percentile, ...]:
        """Pooled latency percentiles with their intervals."""
        return self.record.percentiles

    @property
    def windows(self) -> tuple[WindowResult, ...]:
        """Every judged window, probes included, in the order of measurement."""
        return self.record.windows

    @property
    def validity(self) -> tuple[Reason, ...]:
        """Reasons not to believe the measurement; empty when it is valid."""
        return self.record.invalid

    def figure(self, name: str) -> Figure:
        """The figure of that name with its error and interval. Raises like attribute access."""
        figure = self.record.figures.get(name)
        if figure is None:
            raise AttributeError(self._unknown(name))
        return figure

    def __getattr__(self, name: str) -> float:
        if name.startswith("_"):
            raise AttributeError(name)
        figure = self.figure(name)
        if figure.value is None:
            raise NotMeasured(name, figure.reason or self._why())
        return figure.value

    def _known(self, name: str, value: float | None) -> float:
        if value is None:
            raise NotMeasured(f"{self.config} {name}", self._why())
        return value

    def _why(self) -> str:
        reasons = [str(reason) for reason in self.record.invalid] or list(self.record.misses)
        return "; ".join(reasons) or "no rate passed"

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self.record.figures, n=3)
        return f"no figure {name!r}; nearest: {', '.join(near) or 'none'}"

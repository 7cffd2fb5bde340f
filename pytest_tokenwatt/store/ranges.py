"""What each value of a record can be: numbers within their range, words among those that are written."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from pytest_tokenwatt.records import ConfigRecord, Figure
from pytest_tokenwatt.store.misfit import ASIDE, Misfit, parts
from pytest_tokenwatt.store.replay.loading import joined

_ROUNDING = 1e-6
"""By how much a sum of shares or a mean of logarithms may miss its bound."""
_SIGNED = frozenset(
    {
        *("bf16_mean", "engine_mean", "gap", "gap_median", "gap_max", "top1_gap"),
        *("decode_gap", "kl_sampled", "waiting_growth", "seed"),
        "DriftRecord.k",  # -1: all of the vocabulary
    }
)
"""Fields that may be negative: differences, log-probabilities, growth. All other numbers are sizes."""
_ROUNDED = frozenset(
    {"kl", "kl_lower", "kl_median", "kl_per_token", "per_sequence", "by_confidence", "bins", "nll", "base_nll"}
)
"""Means of logarithms, which rounding may take below 0."""
_MOST: Mapping[str, float] = {
    **dict.fromkeys(("kv_usage", "held_share", "tail_mass", "top1_agreement", "engine_top1", "bf16_top1"), 1.0),
    **dict.fromkeys(("score", "spread_pts", "percentile"), 100.0),
    "PeakMemory.error": 0.5,  # half of a range over its upper end
}
"""Upper bounds of shares and of percentages."""
_SIGNED_FIGURES = ("server:", "waiting_growth")
"""How the names of figures of scenarios begin that may be negative."""
_POWER = ("board", "node", "cpu", "other")
_WORDS: Mapping[str, tuple[str, ...]] = {
    "ConfigRecord.role": ("baseline", "tuned", "other"),
    "ProbeOutcome.state": ("pass", "missing", "wrong"),
    "SloBound.metric": ("ttft", "tpot", "itl", "e2e"),
    "Percentile.metric": ("ttft", "tpot", "itl", "e2e"),
    "WindowResult.kind": ("search", "confirm", "fixed"),
    "GoodputRecord.bracket": ("closed", "open", "none", "fixed"),
    "WindowPower.kind": _POWER,
    "WindowPower.method": ("energy_counter", "trapezoid", "mixed"),
    "EnergyRecord.kind": _POWER,
    "PowerRecord.kind": _POWER,
    "SuiteRecord.api": ("completions", "chat"),
    "AuditRecord.status": ("audited", "invalid"),
    "PeakMemory.weights_source": ("log", "checkpoint"),
    "DriftRecord.route": ("prompt_logprobs", "fixed_ids"),
    "DriftRecord.decode_route": ("served_tokens", "trace_replay"),
}


def out_of_range(record: ConfigRecord) -> Iterator[Misfit]:
    """Every value of a record that is outside its range or none of its words."""
    for place, part in parts(record):
        if isinstance(part, Figure):
            yield from _of_figure(place, part)
            continue
        for field in dataclasses.fields(part):
            if field.name not in ASIDE:
                inner = joined(place, field.name)
                yield from _of_field(inner, type(part).__name__, field.name, getattr(part, field.name))


def _of_field(place: str, kind: str, name: str, value: Any) -> Iterator[Misfit]:
    words = _WORDS.get(f"{kind}.{name}")
    if words is not None and isinstance(value, str) and value and value not in words:
        yield Misfit(place, f"expected one of {', '.join(words)}, found {value!r:.60}")
    if name in _SIGNED or f"{kind}.{name}" in _SIGNED:
        return
    most = _MOST.get(f"{kind}.{name}", _MOST.get(name))
    least = -_ROUNDING if name in _ROUNDED else 0.0
    for inner, number in _numbers(place, value):
        if number < least or (most is not None and number > most + _ROUNDING):
            bounds = ">= 0" if most is None else f"from 0 to {most:g}"
            yield Misfit(inner, f"expected a number {bounds}, found {number:g}")


def _of_figure(place: str, figure: Figure) -> Iterator[Misfit]:
    """The name of a figure, the last key of its place, says whether it may be negative."""
    signed = any(f"figures.{name}" in place for name in _SIGNED_FIGURES)
    for name in ("error", "n") if signed else ("value", "error", "low", "high", "n"):
        yield from _of_field(joined(place, name), "Figure", name, getattr(figure, name))


def _numbers(place: str, value: Any) -> Iterator[tuple[str, float]]:
    """A number, or all of a mapping or list; what lies in dataclasses is looked at by itself."""
    if isinstance(value, int | float) and not isinstance(value, bool | Enum):
        yield place, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _numbers(joined(place, key), inner)
    elif isinstance(value, tuple):
        for number, inner in enumerate(value):
            yield from _numbers(f"{place}[{number}]", inner)

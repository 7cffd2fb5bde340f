"""Whether what a scenario came to agrees with its windows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pytest_tokenwatt.records import EnergyRecord, GoodputRecord, Percentile, WindowResult
from pytest_tokenwatt.store.misfit import Said, unless

_ROUNDING = 1e-6
_OF_TOKENS = "its tokens over its seconds"
_OF_WINDOWS = "that of the confirming windows"


def percentile(found: Percentile) -> Iterator[Said]:
    """What a percentile says against itself."""
    if found.infinite and found.value_ms is not None:
        yield "value_ms", "expected null, as the rank falls on a failed request"
    ends = [end for end in (found.low_ms, found.value_ms, found.high_ms) if end is not None]
    if ends != sorted(ends):
        yield "value_ms", f"{found.value_ms} lies outside its interval"


def window(window: WindowResult) -> Iterator[Said]:
    """What a window says against itself."""
    seconds = window.end_s - window.start_s
    if window.passes:
        yield from (("passes", f"true, {why}") for why in _broken(window))
    failed = sum(window.failures.values())
    if window.ok + failed > window.planned:
        yield "ok", f"{window.ok} and {failed} failed, but {window.planned} were planned"
    if window.good_tokens > window.output_tokens:
        yield "good_tokens", f"{window.good_tokens}, but output_tokens is {window.output_tokens}"
    if seconds <= 0:
        yield "end_s", f"{window.end_s:g} does not lie behind start_s"
        return
    yield from unless("output_tok_s", window.output_tok_s, window.output_tokens / seconds, _OF_TOKENS)
    yield from unless("goodput_tok_s", window.goodput_tok_s, window.good_tokens / seconds, _OF_TOKENS)


def _broken(window: WindowResult) -> Iterator[str]:
    """What a window that passes does not have."""
    if not window.ok:
        yield f"but none of {window.planned} planned requests was answered"
    if window.misses:
        yield "but it has misses"
    if not window.stable:
        yield "but stable is false"
    yield from (f"but {each.name} is beyond its bound" for each in window.percentiles if not each.met)


def scenario(record: GoodputRecord) -> Iterator[Said]:
    """What the windows of a scenario say against its figures."""
    passed = record.slo_pass_count or 0
    if passed > record.repeats:
        yield "slo_pass_count", f"{passed} of {record.repeats} repeats"
    good = sum(window.passes and not window.invalid for window in record.windows)
    if record.windows and passed > good:
        yield "slo_pass_count", f"{passed}, but {good} of the windows pass"
    if record.rate_rps is None:
        if record.goodput_tok_s is not None:
            yield "goodput_tok_s", "expected null, as no rate passed"
        return
    shown = [window for window in record.windows if math.isclose(window.rate_rps, record.rate_rps)][-record.repeats :]
    passing = [window for window in shown if window.passes and not window.invalid]
    if not record.repeats or len(passing) < record.repeats:
        told = f"{len(passing)} of {record.repeats} repeats at this rate pass"
        yield "rate_rps", f"{record.rate_rps:g} is said to pass, but {told}"
        return
    if passed != record.repeats:
        yield "slo_pass_count", f"{passed}, but all {record.repeats} repeats at the rate pass"
    yield from _confirmed(record, shown)


def _confirmed(record: GoodputRecord, shown: Sequence[WindowResult]) -> Iterator[Said]:
    """The figures of a rate that passed, by the windows that confirm it."""
    seconds = sum(window.end_s - window.start_s for window in shown)
    counted = seconds > 0 and all(window.output_tok_s is not None for window in shown)
    good, tokens = sum(window.good_tokens for window in shown), sum(window.output_tokens for window in shown)
    yield from unless("goodput_tok_s", record.goodput_tok_s, good / seconds if counted else None, _OF_WINDOWS)
    yield from unless("output_tok_s", record.output_tok_s, tokens / seconds if counted else None, _OF_WINDOWS)
    yield from unless("variance_band_pct", record.variance_band_pct, _spread_pct(shown), _OF_WINDOWS)
    yield from _pooled(record, shown)
    yield from _figures(record)
    if record.energy is not None:
        yield from _energy_of(record.energy, shown, good, tokens)


def _spread_pct(shown: Sequence[WindowResult]) -> float | None:
    known = [window.goodput_tok_s for window in shown if window.goodput_tok_s is not None]
    if len(known) < 2 or len(known) < len(shown) or not sum(known):
        return None
    return 100.0 * (max(known) - min(known)) * len(known) / sum(known)


def _pooled(record: GoodputRecord, shown: Sequence[WindowResult]) -> Iterator[Said]:
    """A percentile over all windows lies between the least and the largest one of a window."""
    for number, found in enumerate(record.percentiles):
        each = [one for window in shown for one in window.percentiles if one.name == found.name]
        values = [math.inf if one.infinite else one.value_ms for one in each]
        known = [value for value in values if value is not None]
        value = math.inf if found.infinite else found.value_ms
        if value is None or len(known) < len(shown):
            continue
        if not min(known) * (1 - _ROUNDING) <= value <= max(known) * (1 + _ROUNDING):
            yield f"percentiles[{number}].value_ms", f"{value:g} is outside of what the windows say"
    names = {found.name for found in record.percentiles}
    for bound in record.slo:
        if bound.name not in names:
            yield "percentiles", f"{bound.name} is missing"


def _figures(record: GoodputRecord) -> Iterator[Said]:
    """What a rule may name says the same as the block that it comes from."""
    same: dict[str, float | None] = {
        "rate_rps": record.rate_rps,
        "goodput_tok_s": record.goodput_tok_s,
        "output_tok_s": record.output_tok_s,
        **{each.name: each.value_ms for each in record.percentiles},
    }
    if record.energy is not None:
        names = ("tokens_per_joule", "output_tokens_per_joule", "energy_j", "node_power_kw")
        same |= {name: getattr(record.energy, name) for name in names}
    for name, value in same.items():
        if name in record.figures:
            yield from unless(f"figures.{name}.value", record.figures[name].value, value, "that of its own block")


def _energy_of(energy: EnergyRecord, shown: Sequence[WindowResult], good: int, tokens: int) -> Iterator[Said]:
    readings = [window.power[0].energy_j for window in shown if window.power]
    known = [reading for reading in readings if reading is not None]
    if energy.energy_j is None or len(known) < len(shown):
        if energy.energy_j is not None and readings:
            yield "energy.energy_j", "a figure, but the energy of a window is not known"
        return
    joules, seconds = sum(known), sum(window.end_s - window.start_s for window in shown)
    yield from unless("energy.energy_j", energy.energy_j, joules, _OF_WINDOWS)
    if joules > 0:
        yield from unless("energy.tokens_per_joule", energy.tokens_per_joule, good / joules, _OF_WINDOWS)
        yield from unless(
            "energy.output_tokens_per_joule", energy.output_tokens_per_joule, tokens / joules, _OF_WINDOWS
        )
        yield from unless("energy.node_power_kw", energy.node_power_kw, joules / seconds / 1000.0, _OF_WINDOWS)

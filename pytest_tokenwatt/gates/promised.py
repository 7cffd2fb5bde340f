"""A stored scenario under another SLO than it was measured under: what its windows still show, and what nobody knows.

The rate that passes belongs to the SLO that it was searched under, and so do the goodput, latencies and energy at it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pytest_tokenwatt.gates.comparable import SLO
from pytest_tokenwatt.gates.wording import latency, number
from pytest_tokenwatt.records import ConfigRecord, Figure, GoodputRecord, Percentile, Reason, SloBound, WindowResult

SLO_DIFFERS = f"{SLO}_differs"
"""Code of a scenario of which nothing is known under the SLO that is asked for."""
_CONFIRMING = ("confirm", "fixed")
Bounds = Mapping[str, float]
"""Largest latencies in ms by their names, such as ``ttft_p99_ms``."""


def known_under(config: ConfigRecord, asked: Mapping[str, Sequence[SloBound]]) -> ConfigRecord:
    """The record as far as it is known under the SLO of each scenario in ``asked``; what is under that one stays.

    A scenario of which it is not known what rate would pass is invalid with the code ``slo_differs``, and has neither
    rate nor goodput, energy or figures. Its windows are judged by the bounds asked for.
    """
    known = {name: _known(record, asked.get(name, ())) for name, record in config.scenarios.items()}
    return replace(config, scenarios=known) if known != config.scenarios else config


def under_another(record: GoodputRecord) -> str | None:
    """What is known of a scenario of which ``known_under`` left nothing; ``None`` of any other."""
    return next((reason.text for reason in record.invalid if reason.code == SLO_DIFFERS), None)


def asks_otherwise(record: GoodputRecord, asked: Bounds) -> bool:
    """Whether the bounds are not those that the record was measured under, where it has any."""
    return bool(asked and record.slo) and _measured(record) != dict(asked)


def no_looser(asked: Bounds, record: GoodputRecord) -> bool:
    """Whether all that failed the record's bounds fails the others, too."""
    return all(asked.get(name, math.inf) <= bound_ms for name, bound_ms in _measured(record).items())


def windows_at(record: GoodputRecord, rate_rps: float | None) -> tuple[WindowResult, ...]:
    """The windows that decide on a rate: of a probe that was taken again only the last ones count."""
    found = [each for each in record.windows if each.kind in _CONFIRMING and _same(each.rate_rps, rate_rps)]
    return tuple(found[-record.repeats :]) if record.repeats > 0 else ()


def judged_again(window: WindowResult, record: GoodputRecord, asked: Bounds) -> WindowResult:
    """A window of ``record`` under the bounds ``asked``: passing, with misses, or neither where it cannot be told.

    The latencies of a window that was decided early, or is invalid, tell nothing of other bounds than its own; under
    bounds that are no looser it fails as before.
    """
    percentiles = tuple(replace(each, bound_ms=asked.get(each.name)) for each in window.percentiles)
    again = replace(window, percentiles=percentiles, passes=False)
    if window.invalid or (no_looser(asked, record) and not window.passes and window.misses):
        return again
    if window.decided:
        return replace(again, misses=())
    misses = tuple(_misses(percentiles)) or (() if window.stable else window.misses or ("unstable",))
    return replace(again, passes=not misses and _all_known(percentiles, asked), misses=misses)


def lacking_for(record: GoodputRecord, asked: Bounds, rate_rps: float | None) -> str | None:
    """What is not known of the repeats at a rate under other bounds than the record's; ``None``: they decide."""
    if rate_rps is None:
        return None if no_looser(asked, record) else f"a rate under {_words(asked)}"
    windows = [judged_again(each, record, asked) for each in windows_at(record, rate_rps)]
    if not windows or any(each.misses and not each.invalid for each in windows):
        return None
    unknown = next((each for each in windows if not each.passes and not each.invalid), None)
    return None if unknown is None else f"{', '.join(_unknown(unknown, asked)) or 'the verdict'} of {unknown.label}"


def _known(record: GoodputRecord, bounds: Sequence[SloBound]) -> GoodputRecord:
    asked = {bound.name: bound.bound_ms for bound in bounds}
    if not bounds or record.invalid or not (asks_otherwise(record, asked) or _under_none(record)):
        return record
    windows = tuple(judged_again(each, record, asked) for each in record.windows)
    misses = _none_passes(record, asked, windows)
    promised = tuple(replace(each, bound_ms=asked.get(each.name)) for each in record.percentiles)
    told = "; ".join(misses) or _why(record, asked)
    return replace(
        record,
        slo=tuple(bounds),
        rate_rps=None,
        goodput_tok_s=None,
        output_tok_s=None,
        percentiles=promised,
        slo_pass_count=_passed(replace(record, windows=windows)),
        highest_passing_rps=None,
        lowest_failing_rps=None,
        bracket="none" if record.bracket != "fixed" else "fixed",
        error_pct=None,
        variance_band_pct=None,
        misses=misses,
        invalid=() if misses else (Reason(SLO_DIFFERS, told),),
        windows=windows,
        figures={name: Figure(None, each.unit, reason=told) for name, each in record.figures.items()},
        load_sha256=None,
        energy=None,
    )


def _passed(record: GoodputRecord) -> int | None:
    """How many repeats pass, where their windows are stored."""
    windows = windows_at(record, record.rate_rps)
    if not windows:
        return record.slo_pass_count if record.rate_rps is None and record.goodput_tok_s is None else None
    return sum(each.passes for each in windows)


def _under_none(record: GoodputRecord) -> bool:
    """Whether a goodput is stored without the SLO that it belongs to."""
    return not record.slo and record.goodput_tok_s is not None


def _none_passes(record: GoodputRecord, asked: Bounds, windows: Sequence[WindowResult]) -> tuple[str, ...]:
    """Why no rate would have passed, where that is shown: the same probes fail again, or all listed rates do now."""
    if record.rate_rps is None and record.goodput_tok_s is None:
        return record.misses if record.slo and no_looser(asked, record) else ()
    rates = {each.rate_rps for each in windows}
    failed = [each for each in windows if each.misses and not each.invalid]
    if record.mode != "fixed" or not rates or rates != {each.rate_rps for each in failed}:
        return ()
    return tuple(dict.fromkeys(f"at {each.rate_rps:g} req/s {miss}" for each in failed for miss in each.misses))


def _why(record: GoodputRecord, asked: Bounds) -> str:
    """ "measured under tpot_p99_ms <= 50, not <= 40 …", with what the stored figures are under looser bounds."""
    under = _words(_measured(record)) if record.slo else "an SLO that is not stored"
    told = f"measured under {under}, not under {_words(asked)}: which rate passes that is not known"
    if record.goodput_tok_s is None or not record.slo or not _no_tighter(asked, record):
        return told
    rate = "" if record.rate_rps is None else f" at {number(record.rate_rps)} req/s"
    return f"{told}; {number(record.goodput_tok_s)} tok/s{rate} is a lower bound"


def _measured(record: GoodputRecord) -> dict[str, float]:
    return {bound.name: bound.bound_ms for bound in record.slo}


def _words(bounds: Bounds) -> str:
    return ", ".join(f"{name} <= {bound_ms:g}" for name, bound_ms in bounds.items())


def _no_tighter(asked: Bounds, record: GoodputRecord) -> bool:
    measured = _measured(record)
    return all(measured.get(name, math.inf) <= bound_ms for name, bound_ms in asked.items())


def _same(rate_rps: float, other_rps: float | None) -> bool:
    return other_rps is not None and math.isclose(rate_rps, other_rps, rel_tol=1e-9)


def _misses(percentiles: Sequence[Percentile]) -> Iterator[str]:
    for each in percentiles:
        if not each.met and (each.value_ms is not None or each.infinite):
            yield f"{latency(each)} > {each.bound_ms:g} ms"


def _all_known(percentiles: Sequence[Percentile], asked: Bounds) -> bool:
    met = {each.name for each in percentiles if each.value_ms is not None and each.met}
    return bool(asked) and met.issuperset(asked)


def _unknown(window: WindowResult, asked: Bounds) -> list[str]:
    known = {each.name for each in window.percentiles if each.value_ms is not None}
    return [name for name in asked if name not in known]

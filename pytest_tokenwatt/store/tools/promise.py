"""Another tool's record under an SLO: the highest rate at which every promised percentile is known and met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_tokenwatt.records import ConfigRecord, Figure, GoodputRecord, Percentile, Reason, SloBound, WindowResult


def under_slo(config: ConfigRecord, bounds: Mapping[str, Sequence[SloBound]]) -> ConfigRecord:
    """A configuration with those of its scenarios under a spec's bounds that hold several rates of another tool.

    Anything else is judged as it stands. ``bounds`` are by scenario.
    """
    open_ = [name for name, each in config.scenarios.items() if not each.slo and each.windows and not each.repeats]
    if config.stored is None or not open_:
        return config
    judged = {name: judged_by(config.scenarios[name], bounds.get(name, ())) for name in open_}
    return replace(config, scenarios={**config.scenarios, **judged})


def judged_by(record: GoodputRecord, bounds: Sequence[SloBound]) -> GoodputRecord:
    """The record as it stands under ``bounds``; as it is without any.

    A window passes when each promised percentile is known and within its bound, and fails when one is known to be
    beyond it. Otherwise it is not decidable: its ``invalid`` says ``not_stored``. Without a passing window the record
    has neither rate nor goodput; ``repeats`` is then 1 if all windows failed, and 0 where one could not be decided
    (``slo_pass_count`` of which is never a pass). Every bound has its percentile, without a value where it is unknown.
    """
    if not bounds:
        return record
    windows = tuple(_judged(window, bounds) for window in record.windows)
    passing = [window for window in windows if window.passes and not window.invalid]
    failing = [window for window in windows if not window.passes and not window.invalid]
    unclear = [window for window in windows if window.invalid]
    best = max(passing, key=lambda window: window.rate_rps, default=None)
    shown = best or min([*unclear, *failing], key=lambda window: window.rate_rps, default=None)
    decided = best is not None or (bool(failing) and not unclear)
    return replace(
        record,
        slo=tuple(bounds),
        rate_rps=best.rate_rps if best else None,
        output_tok_s=best.output_tok_s if best else None,
        percentiles=shown.percentiles if shown else _promised((), bounds),
        slo_pass_count=int(best is not None),
        repeats=int(decided),
        highest_passing_rps=best.rate_rps if best else None,
        lowest_failing_rps=_above(failing, best),
        misses=() if best else _misses(failing, unclear) or record.misses,
        windows=windows,
        figures=dict(record.figures) | (_figures(best) if best and len(windows) > 1 else {}),
    )


def undecided(record: GoodputRecord) -> Reason | None:
    """Why a record cannot decide its SLO: which percentiles are not stored; ``None`` when it can."""
    if not record.slo or record.repeats:
        return None
    lacking = [each.name for each in record.percentiles if _unknown(each)]
    names = ", ".join(lacking) or "a rate at which the SLO could be met"
    why = "; ".join(dict.fromkeys(record.misses))
    return Reason("not_stored", f"{names}: {why}" if why else names)


def _judged(window: WindowResult, bounds: Sequence[SloBound]) -> WindowResult:
    percentiles = _promised(window.percentiles, bounds)
    asked = [each for each in percentiles if each.bound_ms is not None]
    broken = [each for each in asked if not each.met and not _unknown(each)]
    unknown = [each.name for each in asked if _unknown(each)]
    if broken:
        return replace(window, percentiles=percentiles, passes=False, misses=tuple(map(_miss, broken)))
    invalid = tuple(reason for reason in window.invalid if reason.code != "not_stored")
    if unknown:
        invalid = (*invalid, Reason("not_stored", f"{window.label}: {', '.join(unknown)} is not known"))
    return replace(window, percentiles=percentiles, passes=not invalid, misses=(), invalid=invalid)


def _promised(known: Sequence[Percentile], bounds: Sequence[SloBound]) -> tuple[Percentile, ...]:
    """All that is known, with the bounds; one that is promised and not known stands there without a value."""
    found = {each.name: replace(each, bound_ms=None) for each in known}
    for bound in bounds:
        lacking = Percentile(bound.metric, bound.percentile, None, False, 0, None, None)
        found[bound.name] = replace(found.get(bound.name, lacking), bound_ms=bound.bound_ms)
    return tuple(found.values())


def _unknown(percentile: Percentile) -> bool:
    return percentile.bound_ms is not None and percentile.value_ms is None and not percentile.infinite


def _miss(percentile: Percentile) -> str:
    value = "infinite" if percentile.value_ms is None else f"{percentile.value_ms:.4g} ms"
    return f"{percentile.name} is {value} > {percentile.bound_ms:g} ms"


def _above(failing: Sequence[WindowResult], best: WindowResult | None) -> float | None:
    """The lowest failing rate above the passing one."""
    rates = [window.rate_rps for window in failing if best is None or window.rate_rps > best.rate_rps]
    return min(rates, default=None)


def _misses(failing: Sequence[WindowResult], unclear: Sequence[WindowResult]) -> tuple[str, ...]:
    return (
        *(f"at {window.rate_rps:g} req/s {miss}" for window in failing for miss in window.misses),
        *(reason.text for window in unclear for reason in window.invalid),
    )


def _figures(window: WindowResult) -> dict[str, Figure]:
    """Figures of the window that counts, where the file has several."""
    latencies = {
        each.name: Figure(each.value_ms, "ms", n=each.n, reason=None if each.value_ms is not None else "not known")
        for each in window.percentiles
    }
    return {
        "rate_rps": Figure(window.rate_rps, "req/s"),
        "output_tok_s": Figure(window.output_tok_s, "tok/s", reason=None if window.output_tok_s else "not told"),
        "requests": Figure(float(window.planned), "requests"),
        "failed_requests": Figure(float(window.failures.get("failed", 0)), "requests"),
        **latencies,
    }

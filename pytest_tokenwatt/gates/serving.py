"""The rules of the gates of serving under an SLO: slo, goodput."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pytest_tokenwatt.gates.band import session_band_pct
from pytest_tokenwatt.gates.comparable import incomparable, other_machine, other_workload
from pytest_tokenwatt.gates.finding import Finding, baseline_fault, no_baseline, unusable, without_goodput
from pytest_tokenwatt.gates.promised import asks_otherwise, judged_again, no_looser, windows_at
from pytest_tokenwatt.gates.stated import COUNTED_AS_0, confirmed, lacks_error
from pytest_tokenwatt.gates.wording import apart, latency, number, ratio
from pytest_tokenwatt.metrics.goodput import goodput_ratio_error, is_measurable
from pytest_tokenwatt.records import (
    ConfigRecord,
    GateSpec,
    GoodputRecord,
    Percentile,
    Reason,
    Verdict,
    WindowResult,
)


def judge_slo(gate: GateSpec, candidate: ConfigRecord, record: GoodputRecord) -> Finding:
    """All repeats pass at the rate that was found, or at ``at_rps``; percentiles are within the bounds of the gate.

    The bounds only differ from those of the record when a stored one is judged by another spec: its windows are then
    judged again.
    """
    at_rps, asked = gate.limits.get("at_rps"), asked_bounds(gate)
    otherwise = asks_otherwise(record, asked)
    if otherwise:
        record = replace(record, windows=tuple(judged_again(each, record, asked) for each in record.windows))
    if at_rps is not None and not _same_rate(record.rate_rps, at_rps):
        return _judge_slo_at(gate, record, at_rps)
    if record.invalid:
        return unusable(record.invalid, _slo_rule(gate))
    if otherwise and record.rate_rps is not None and windows_at(record, record.rate_rps):
        return _judge_slo_at(gate, record, record.rate_rps)
    return _judge_slo_found(gate, candidate, record)


def _judge_slo_found(gate: GateSpec, candidate: ConfigRecord, record: GoodputRecord) -> Finding:
    """By how many repeats passed, and by the percentiles over all of them."""
    percentiles, passed = _bounded(gate, record), record.slo_pass_count
    if passed is None:
        return unusable((Reason("not_measured", "how many repeats passed is not known"),), _slo_rule(gate))
    counted = candidate.stored is not None and passed > 0 and not record.misses
    if not (confirmed(candidate, record) or counted):
        return _slo_finding(Verdict.FAIL, "no rate passes", percentiles, without_goodput(record))
    reasons = [] if passed >= record.repeats > 0 else [_repeats(passed, record.repeats)]
    if candidate.stored is not None or percentiles != record.percentiles:
        reasons += _beyond(percentiles)
    verdict = Verdict.FAIL if reasons else Verdict.PASS
    subject = f"{_rate(record)}{_only_counted(gate, record) if candidate.stored is not None else ''}"
    return _slo_finding(verdict, subject, percentiles, tuple(reasons))


def asked_bounds(gate: GateSpec) -> dict[str, float]:
    """The SLO of a gate: largest latencies in ms by name."""
    return {name: value for name, value in gate.limits.items() if name.endswith("_ms") and value is not None}


def shows_failure(gate: GateSpec, record: GoodputRecord) -> bool:
    """Whether what is known of a record breaks its SLO, whatever else is not known."""
    asked, passed = asked_bounds(gate), record.slo_pass_count
    missed = bool(record.misses) or (passed is not None and passed < record.repeats)
    tells = not asks_otherwise(record, asked) or no_looser(asked, record)
    return (missed and tells) or any(_beyond(_bounded(gate, record)))


def _rate(record: GoodputRecord) -> str:
    """The rate that was found; of other tools only how many repeats passed may be known."""
    if record.rate_rps is None:
        return f"{record.slo_pass_count} of {record.repeats} repeats"
    return f"{number(record.rate_rps)} req/s"


def _only_counted(gate: GateSpec, record: GoodputRecord) -> str:
    """Percentiles of which a record only says that so many repeats met them."""
    known = {each.name for each in record.percentiles}
    told = [name for name in asked_bounds(gate) if name not in known]
    if told:
        return f" by the stored count ({', '.join(told)} not stored)"
    return " over all repeats together" if asks_otherwise(record, asked_bounds(gate)) else ""


def _bounded(gate: GateSpec, record: GoodputRecord) -> tuple[Percentile, ...]:
    """The percentiles under the bounds of the gate."""
    asked = asked_bounds(gate)
    return tuple(replace(each, bound_ms=asked.get(each.name)) if asked else each for each in record.percentiles)


def _beyond(percentiles: Sequence[Percentile]) -> Iterator[Reason]:
    """Percentiles that are known and beyond their bounds."""
    for each in percentiles:
        if not each.met and (each.value_ms is not None or each.infinite):
            yield Reason("slo_missed", f"{latency(each)} > {each.bound_ms:g} ms")


def _same_rate(rate_rps: float | None, other_rps: float) -> bool:
    return rate_rps is not None and math.isclose(rate_rps, other_rps, rel_tol=1e-9)


def _judge_slo_at(gate: GateSpec, record: GoodputRecord, at_rps: float) -> Finding:
    """By the windows at that rate, whatever other listed rates did."""
    at_rate = [window for window in record.windows if _same_rate(window.rate_rps, at_rps)]
    # A probe that was taken again because it was invalid counts no more: its good windows are not half a pass.
    measured = at_rate[-record.repeats :]
    valid = [window for window in measured if not window.invalid]
    passed = sum(window.passes for window in valid)
    failed = [window for window in valid if not window.passes]
    if not failed and passed < record.repeats:
        reasons = tuple(dict.fromkeys(reason for window in measured for reason in window.invalid))
        missing = Reason("not_measured", f"{at_rps:g} req/s: {passed} of {record.repeats} repeats were measured")
        return unusable(reasons or record.invalid or (missing,), _slo_rule(gate))
    misses = tuple(dict.fromkeys(miss for window in failed for miss in window.misses))
    reasons = tuple(Reason("slo_missed", f"at {at_rps:g} req/s {miss}") for miss in misses)
    if failed and not reasons:
        reasons = (_repeats(passed, record.repeats),)
    verdict = Verdict.FAIL if failed else Verdict.PASS
    return _slo_finding(verdict, f"{number(at_rps)} req/s", _worst(failed or valid), reasons)


def _repeats(passed: int, repeats: int) -> Reason:
    return Reason("slo_missed", f"{passed} of {repeats} repeats pass")


def _worst(windows: Sequence[WindowResult]) -> tuple[Percentile, ...]:
    """Each SLO percentile of the window where it is highest."""
    highest: dict[str, Percentile] = {}
    for percentile in (percentile for window in windows for percentile in window.percentiles):
        known = highest.get(percentile.name)
        if known is None or _use(percentile) > _use(known):
            highest[percentile.name] = percentile
    return tuple(highest.values())


def _use(percentile: Percentile) -> float:
    """How much of its bound a percentile uses; infinite on a failed request."""
    if percentile.infinite:
        return math.inf
    if percentile.bound_ms is None or percentile.value_ms is None:
        return -1.0
    return percentile.value_ms / percentile.bound_ms


def _slo_finding(
    verdict: Verdict, subject: str, percentiles: Sequence[Percentile], reasons: tuple[Reason, ...]
) -> Finding:
    """Show the percentile that is closest to its bound, or furthest beyond it."""
    promised = [percentile for percentile in percentiles if percentile.bound_ms is not None]
    if not promised:
        return Finding(verdict, subject, "SLO", reasons=reasons)
    tightest = max(promised, key=_use)
    return Finding(
        verdict,
        f"{subject}, {latency(tightest)}",
        f"<= {tightest.bound_ms:g} ms",
        tightest.value_ms,
        "ms",
        tightest.bound_ms,
        reasons=reasons,
    )


def _slo_rule(gate: GateSpec) -> str:
    bounds = [f"{name} <= {value:g}" for name, value in gate.limits.items() if name.endswith("_ms")]
    return ", ".join(bounds)


def judge_goodput(
    gate: GateSpec,
    candidate: ConfigRecord,
    record: GoodputRecord,
    baseline: ConfigRecord | None,
    records: Sequence[ConfigRecord],
    baselines: Sequence[ConfigRecord] = (),
) -> Finding:
    """The ratio to the baseline, and the absolute minima.

    ``records`` are all of the session and ``baselines`` all runs of the baseline on record, for the variance band.
    """
    rule = _goodput_rule(gate)
    if record.invalid:
        return unusable(record.invalid, rule)
    if not confirmed(candidate, record):
        return Finding(Verdict.FAIL, "no rate passes", rule, unit="tok/s", reasons=without_goodput(record))
    if record.goodput_tok_s is None:
        return unusable((Reason("not_measured", "the tokens of the confirming windows are not known"),), rule)
    absolute = _judge_minima(gate, record, record.goodput_tok_s, rule)
    if gate.limits.get("min") is None or absolute.verdict is Verdict.FAIL:
        return absolute
    if baseline is None:
        on_missing = gate.limits.get("on_missing_baseline", "fail")
        return no_baseline(on_missing, absolute.text, rule, record.goodput_tok_s, "tok/s")
    fault = baseline_fault(baseline, record.scenario) or _without_ratio(candidate, record, baseline)
    if fault is not None:
        return unusable((fault,), rule)
    base, band_pct = baseline.scenarios[record.scenario], session_band_pct(records, record.scenario, baselines)
    error = goodput_ratio_error(record, base, band_pct)
    if lacks_error(candidate, error, "goodput_error_pct", "variance_band_pct"):
        judged = _judge_ratio(gate, record, base, 0.0, rule)
        return replace(judged, text=f"{judged.text} ({COUNTED_AS_0})")
    return _judge_ratio(gate, record, base, error, rule)


def _judge_minima(gate: GateSpec, record: GoodputRecord, tok_s: float, rule: str) -> Finding:
    rate = "" if record.rate_rps is None else f" at {number(record.rate_rps)} req/s"
    checks = (
        ("min_tok_s", tok_s, "tok/s", "goodput_below_minimum"),
        ("min_rps", record.rate_rps or 0.0, "req/s", "rate_below_minimum"),
    )
    asked = [(value, unit, gate.limits[name], code) for name, value, unit, code in checks if gate.limits.get(name)]
    text = f"{number(tok_s)} tok/s{rate}"
    for value, unit, limit, code in asked:
        if value < limit:
            reason = Reason(code, f"{' < '.join(apart(value, limit))} {unit}")
            return Finding(Verdict.FAIL, text, rule, value, unit, limit, reasons=(reason,))
    value, unit, limit = asked[0][:3] if asked else (tok_s, "tok/s", None)
    return Finding(Verdict.PASS, text, rule, value, unit, limit)


def _without_ratio(candidate: ConfigRecord, record: GoodputRecord, baseline: ConfigRecord) -> Reason | None:
    """Why there is no ratio to a baseline whose own record is valid."""
    base = baseline.scenarios[record.scenario]
    different = other_machine(candidate, baseline) or incomparable(record, base)
    different = different or other_workload(candidate, baseline, record.scenario)
    if different is not None:
        return different
    if not confirmed(baseline, base) or not base.goodput_tok_s:
        why = base.misses[0] if base.misses else "no rate passed"
        return Reason("baseline_invalid", f"the baseline has no goodput: {why}")
    return None


def _judge_ratio(gate: GateSpec, record: GoodputRecord, base: GoodputRecord, error: float | None, rule: str) -> Finding:
    minimum = float(gate.limits["min"])
    tok_s, value = record.goodput_tok_s or 0.0, (record.goodput_tok_s or 0.0) / (base.goodput_tok_s or 1.0)
    text = f"{number(tok_s)} tok/s, {ratio(value, error)}"
    if error is not None and not is_measurable(value, error):
        text += ", no measurable difference"
    if _never_failed(record) and _never_failed(base):
        text += ", every rate offered passed: lower bounds"
    verdict, reasons = _ratio_verdict(value, minimum, error)
    if verdict is Verdict.PASS and base.bracket == "open" and record.bracket != "open":
        verdict = Verdict.INCONCLUSIVE
        reasons = (Reason("bracket_open", "the baseline passed at max_rps, so that its goodput may be higher"),)
    return Finding(verdict, text, rule, value, "ratio", minimum, error, reasons)


def _never_failed(record: GoodputRecord) -> bool:
    """Whether fixed rates were all met, so that the load was the limit and not the engine."""
    return record.mode == "fixed" and bool(record.windows) and all(window.passes for window in record.windows)


def _ratio_verdict(value: float, minimum: float, error: float | None) -> tuple[Verdict, tuple[Reason, ...]]:
    """Pass from ``minimum`` on, fail below ``minimum`` − error, between them (or without an error) inconclusive."""
    if value >= minimum:
        return Verdict.PASS, ()
    if error is None:
        unknown = f"{value:.3f} < {minimum:g}, but the error of the ratio is not known; measure more repeats"
        return Verdict.INCONCLUSIVE, (Reason("error_unknown", unknown),)
    if value < minimum - error:
        return Verdict.FAIL, (Reason("goodput_regression", f"{value:.3f} < {minimum:g} by more than {error:.3f}"),)
    inside = f"{value:.3f} < {minimum:g}, but inside the error of {error:.3f}; narrow the search or repeat more"
    return Verdict.INCONCLUSIVE, (Reason("within_error", inside),)


def _goodput_rule(gate: GateSpec) -> str:
    parts = [
        f">= {gate.limits[name]:g}{unit}"
        for name, unit in (("min", ""), ("min_tok_s", " tok/s"), ("min_rps", " req/s"))
        if gate.limits.get(name) is not None
    ]
    return ", ".join(parts) or "informational"

"""The rules of the accuracy gates: a suite's drop against the baseline, its least score, and the mean drop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pytest_tokenwatt.gates.deltas import mean_of, nothing_read, stated_mean, suite_delta, suite_faults
from pytest_tokenwatt.gates.finding import Finding, no_baseline, unusable
from pytest_tokenwatt.gates.sample import can_resolve, could_be_within, difference, drop, flips, size
from pytest_tokenwatt.gates.stated import stated_delta
from pytest_tokenwatt.gates.wording import apart, points, points_apart, points_limit
from pytest_tokenwatt.metrics.resolution import LEAST_MARGIN_PTS, items_to_resolve
from pytest_tokenwatt.records import ConfigRecord, GateSpec, Reason, SuiteRecord, Verdict
from pytest_tokenwatt.records.accuracy import AccuracyDelta, SuiteDelta

NONINFERIORITY = "noninferiority"
_ROUNDING = 1e-9
"""Scores of records without items are decimals whose difference may be off by this much."""


def judge_accuracy(gate: GateSpec, candidate: ConfigRecord, baseline: ConfigRecord | None) -> Finding:
    """One suite, or their mean when the gate's limit is one of the mean drop.

    ``point`` passes from a difference of −``max_drop_pts`` on. ``noninferiority`` passes when the 90 % two-sided
    interval lies above it, fails when it lies below, and is inconclusive between. A score below ``min_score`` fails
    whatever the difference, and is all that a baseline can fail. Where no answer of the baseline can be read no drop
    could show, and the gate is invalid.
    """
    if "max_mean_drop_pts" in gate.limits:
        return _judge_mean(gate, candidate, baseline)
    rule, name = _rule(gate), gate.param or ""
    record = candidate.suites.get(name)
    if record is None and baseline is not None and gate.limits.get("min_score") is None:
        stated = stated_delta(name, candidate, baseline)
        if stated is not None and stated.delta_pts is not None:
            return _judge_difference(gate, stated, stated.delta_pts, rule)
    faults = suite_faults(candidate, name)
    if faults or record is None or record.score is None:
        return unusable(faults, rule)
    absolute = _judge_score(gate, record, record.score, rule)
    if gate.limits.get("max_drop_pts") is None:
        return absolute
    if baseline is None:
        missing = no_baseline(gate.limits.get("on_missing_baseline", "fail"), absolute.text, rule, record.score, "%")
        return absolute if absolute.verdict is Verdict.FAIL else missing
    delta = suite_delta(name, candidate, baseline, gate.limits.get("limit"))
    if delta.delta_pts is None:
        return absolute if absolute.verdict is Verdict.FAIL else unusable([delta.fault] if delta.fault else [], rule)
    relative = _judge_difference(gate, delta, delta.delta_pts, rule)
    unread = nothing_read(baseline.suites[name]) if name in baseline.suites else None
    if unread is not None:
        relative = replace(relative, verdict=Verdict.INVALID, reasons=(unread,))
    return relative if absolute.verdict is Verdict.PASS else _both_broken(absolute, relative)


def _judge_score(gate: GateSpec, record: SuiteRecord, score: float, rule: str) -> Finding:
    minimum = gate.limits.get("min_score")
    n = record.answered
    text = f"{score:.1f} %" if n is None else f"{score:.1f} % ({n} {'answer' if n == 1 else 'answers'})"
    if minimum is not None and score < minimum - _ROUNDING:
        reason = Reason("score_below_minimum", f"{' < '.join(apart(score, minimum))} %")
        return Finding(Verdict.FAIL, text, rule, score, "%", minimum, reasons=(reason,))
    return Finding(Verdict.PASS, text, rule, score, "%", minimum)


def _both_broken(absolute: Finding, relative: Finding) -> Finding:
    """The score is too low; a drop that is too large is said beside it."""
    also = relative.reasons if relative.verdict in (Verdict.FAIL, Verdict.INVALID) else ()
    return replace(absolute, text=f"{absolute.text}, {relative.text}", reasons=(*absolute.reasons, *also))


def _judge_difference(gate: GateSpec, delta: SuiteDelta, value: float, rule: str) -> Finding:
    limit = 0.0 - float(gate.limits["max_drop_pts"])
    by_interval = gate.limits.get("rule") == NONINFERIORITY
    verdict, reasons = _by_interval(delta, value, limit) if by_interval else _by_point(delta, value, limit)
    shown = points_apart(value, limit)
    text = f"{shown} pt{size(delta)}{difference(delta, 90 if by_interval else 95)}{can_resolve(delta)}"
    bounds = delta.interval_pts
    error = None if bounds is None else (bounds[1] - bounds[0]) / 2
    return Finding(verdict, text, rule, value, "pt", limit, error, reasons)


def _by_point(delta: SuiteDelta, value: float, limit: float) -> tuple[Verdict, tuple[Reason, ...]]:
    if value >= limit - _ROUNDING:
        return Verdict.PASS, ()
    text = f"{points_apart(value, limit)} pt < {points_limit(limit)} pt{flips(delta, 95)}"
    return Verdict.FAIL, (Reason("accuracy_drop", f"{text}{could_be_within(delta, limit)}"),)


def _by_interval(delta: SuiteDelta, value: float, limit: float) -> tuple[Verdict, tuple[Reason, ...]]:
    shown = points_limit(limit)
    if delta.interval_90_pts is None:
        text = f"{points(value)} pt has no interval without the results of single items{flips(delta, 90)}"
        return Verdict.INCONCLUSIVE, (Reason("interval_unknown", text),)
    low, high = delta.interval_90_pts
    if low > limit:
        return Verdict.PASS, ()
    if high < limit:
        text = f"all of the interval is below {shown} pt: {points(value)} pt{flips(delta, 90)}"
        return Verdict.FAIL, (Reason("accuracy_drop", text),)
    text = f"the interval is on both sides of {shown} pt: {points(value)} pt{flips(delta, 90)}{_needed(delta, limit)}"
    return Verdict.INCONCLUSIVE, (Reason("within_error", text),)


def _needed(delta: SuiteDelta, limit: float) -> str:
    """How many independent items would resolve the limit, when there are fewer."""
    if not (-limit >= LEAST_MARGIN_PTS and delta.flip_rate is not None and delta.independent):
        return ""
    needed = items_to_resolve(-limit, max(delta.flip_rate, min(1.0, 1.0 / delta.independent)))
    return f", {needed:,} would resolve {points_limit(-limit)} pt" if needed > delta.independent else ""


def _rule(gate: GateSpec) -> str:
    return ", ".join(_bounds(gate)) or "informational"


def _bounds(gate: GateSpec) -> Iterator[str]:
    largest, minimum = gate.limits.get("max_drop_pts"), gate.limits.get("min_score")
    if largest is not None:
        by_interval = gate.limits.get("rule") == NONINFERIORITY
        yield f"{'90 % interval >' if by_interval else '>='} {points_limit(0.0 - largest)} pt"
    if minimum is not None:
        yield f">= {minimum:g} %"


# --- several suites


def _judge_mean(gate: GateSpec, candidate: ConfigRecord, baseline: ConfigRecord | None) -> Finding:
    suites = gate.limits.get("suites") or dict.fromkeys(candidate.suites)
    limit, tiers = 0.0 - float(gate.limits["max_mean_drop_pts"]), gate.limits.get("tiers") or {}
    rule = f">= {points_limit(limit)} pt"
    if baseline is not None and not candidate.suites:
        stated = stated_mean(AccuracyDelta({}), candidate, baseline, tiers)
        if stated.mean_drop_pts is not None:
            return _mean_finding(stated, 0.0 - stated.mean_drop_pts, limit, rule)
    if baseline is not None and baseline.invalid:
        return unusable((Reason("baseline_invalid", f"baseline {baseline.key}: {baseline.invalid[0]}"),), rule)
    broken = [_named(name, reason) for name in suites for reason in suite_faults(candidate, name)]
    if broken or not suites:
        return unusable(broken or (Reason("not_measured", "no suite was asked"),), rule)
    if baseline is None:
        return no_baseline(gate.limits.get("on_missing_baseline", "fail"), f"{len(suites)} suites", rule)
    deltas = {name: suite_delta(name, candidate, baseline, asked) for name, asked in suites.items()}
    faults = [_named(name, delta.fault) for name, delta in deltas.items() if delta.fault is not None]
    faults += [unread for name in suites if name in baseline.suites and (unread := nothing_read(baseline.suites[name]))]
    found = mean_of(deltas, tiers)
    if faults or found.mean_drop_pts is None:
        return unusable(faults, rule)
    return _mean_finding(found, 0.0 - found.mean_drop_pts, limit, rule)


def _named(suite: str, reason: Reason) -> Reason:
    return Reason(reason.code, f"{suite}: {reason.text}")


def _mean_finding(found: AccuracyDelta, value: float, limit: float, rule: str) -> Finding:
    worst = f", worst {found.worst} {points(0.0 - (found.worst_drop_pts or 0.0))} pt" if found.worst else ", as stored"
    tier = f", tier {found.tier}" if found.tier is not None else ""
    shown, resolvable = points_apart(value, limit), _mean_resolvable_pts(found)
    told = "" if resolvable is None else f", can resolve {drop(resolvable)} pt"
    count = f"{found.valid_domains} suites" if found.valid_domains else ""
    text = f"{shown} pt{f' ({count})' if count else ''}{worst}{tier}{told}"
    if value >= limit - _ROUNDING:
        return Finding(Verdict.PASS, text, rule, value, "pt", limit)
    why = f"{shown} pt < {points_limit(limit)} pt{f' over {count}' if count else ''}{worst}{told}"
    return Finding(Verdict.FAIL, text, rule, value, "pt", limit, reasons=(Reason("accuracy_mean_drop", why),))


def _mean_resolvable_pts(found: AccuracyDelta) -> float | None:
    """Of the mean of k independent suites: sqrt(Σ drop²) / k."""
    drops = [suite.resolvable_pts for suite in found.suites.values()]
    known = [drop for drop in drops if drop is not None]
    return sum(drop**2 for drop in known) ** 0.5 / len(known) if len(known) == len(drops) and known else None

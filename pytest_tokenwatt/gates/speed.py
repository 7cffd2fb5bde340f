"""The rule of the speed gate: closed-loop output tokens per second against the baseline."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_tokenwatt.gates.finding import Finding, no_baseline, unusable
from pytest_tokenwatt.gates.speeds import config_profile_faults, online_profile, repeated_profiles, speed_delta
from pytest_tokenwatt.gates.stated import COUNTED_AS_0
from pytest_tokenwatt.gates.telling import said_once
from pytest_tokenwatt.gates.wording import apart, number, percent, ratio
from pytest_tokenwatt.records import ConfigRecord, GateSpec, Reason, Verdict
from pytest_tokenwatt.records.profiles import Ratio, SpeedDelta

_UNIT = "ratio"


def judge_speed(
    gate: GateSpec,
    candidate: ConfigRecord,
    baseline: ConfigRecord | None,
    records: Sequence[ConfigRecord],
    baselines: Sequence[ConfigRecord] = (),
) -> Finding:
    """Pass from ``min`` less the error on, if the error is within ``max_error`` or even the ratio less it reaches
    ``min``; fail below ``min`` less the error; inconclusive otherwise, and where the error is not known.

    The ratio is the geometric mean over the profiles. ``records`` are all of the session: one of them may be the
    baseline's repeat, and they make the band of ``online_slo``. ``baselines`` are all runs of the baseline on record.
    """
    rule = f">= {gate.limits['min']:g}"
    if baseline is None:
        return _alone(gate, candidate, rule)
    delta = gate_speed(gate, candidate, baseline, records, baselines)
    if delta.overall is None or delta.overall.value is None:
        return unusable(said_once(delta.faults) or (Reason("not_measured", "the spec has no profile"),), rule)
    minimum, value = float(gate.limits["min"]), delta.overall.value
    verdict, reasons = _judge(delta, value, minimum, float(gate.limits["max_error"]))
    return Finding(verdict, _text(delta, value), rule, value, _UNIT, minimum, delta.overall.error, reasons)


def gate_speed(
    gate: GateSpec,
    candidate: ConfigRecord,
    baseline: ConfigRecord,
    records: Sequence[ConfigRecord],
    baselines: Sequence[ConfigRecord] = (),
) -> SpeedDelta:
    """The speed by the profiles that a gate's limits name."""
    return speed_delta(
        candidate,
        baseline,
        repeated_profiles(baseline, records),
        names=gate.limits.get("profiles"),
        online=online_profile(gate.limits.get("online_slo"), records, baselines),
        baselines=baselines,
    )


def _alone(gate: GateSpec, candidate: ConfigRecord, rule: str) -> Finding:
    """Without a baseline there are only the candidate's own rates."""
    names = gate.limits.get("profiles") or []
    faults = [reason for name in names for reason in config_profile_faults(candidate, name)]
    if faults:
        return unusable(said_once(faults), rule)
    rates = [f"{name} {number(candidate.profiles[name].output_tok_s or 0.0)} tok/s" for name in names]
    text = ", ".join(rates) or "not compared"
    return no_baseline(gate.limits.get("on_missing_baseline", "fail"), text, rule)


def _judge(delta: SpeedDelta, value: float, minimum: float, max_error: float) -> tuple[Verdict, tuple[Reason, ...]]:
    error = delta.overall.error if delta.overall else None
    if error is None:
        unknown = f"{value:.3f}, but its error is not known: {_why_no_error(delta)}"
        return Verdict.INCONCLUSIVE, (Reason("error_unknown", unknown),)
    if value < minimum - error:
        text = f"{' < '.join(apart(value, minimum))} by more than {number(error)} ({_each(delta)})"
        return Verdict.FAIL, (Reason("speed_regression", text),)
    if error <= max_error or value - error >= minimum:
        return Verdict.PASS, ()
    text = f"{ratio(value, error)}: an error of {error:.3f} > {max_error:g} cannot tell it from less than {minimum:g}"
    return Verdict.INCONCLUSIVE, (Reason("error_too_large", f"{text}; measure more repeats or requests"),)


def _why_no_error(delta: SpeedDelta) -> str:
    overall = delta.overall.missing if delta.overall else None
    told = [f"{name}: {each.missing}" for name, each in delta.profiles.items() if each.error is None and each.missing]
    return "; ".join(told) or overall or "nothing was measured twice; raise the profiles' repeats"


def _text(delta: SpeedDelta, value: float) -> str:
    """ "1.351 [1.31, 1.39] over 3 profiles, sees changes from 2.9 %"."""
    overall = delta.overall or Ratio(value, None)
    count = len(delta.profiles)
    text = f"{ratio(value, overall.error)}{f' over {count} profiles' if count > 1 else ''}"
    if overall.missing == COUNTED_AS_0:
        return f"{text} ({COUNTED_AS_0})"
    return text if delta.smallest is None else f"{text}{_sees(delta.smallest)}"


def _sees(smallest: float) -> str:
    """The smallest change that would show, unless none would."""
    return f", sees changes from {percent(smallest)} %" if smallest < 1 else ""


def _each(delta: SpeedDelta) -> str:
    return ", ".join(f"{name} {_value(each)}" for name, each in delta.profiles.items())


def _value(each: Ratio) -> str:
    return "unknown" if each.value is None else f"{each.value:.3f}"

"""The rule of the memory gate: peak memory of the profiles against the baseline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from pytest_tokenwatt.gates.finding import Finding, no_baseline, unusable
from pytest_tokenwatt.gates.speeds import config_profile_faults, memory_delta, profile_faults
from pytest_tokenwatt.gates.stated import COUNTED_AS_0
from pytest_tokenwatt.gates.telling import said_once
from pytest_tokenwatt.gates.wording import apart, number
from pytest_tokenwatt.metrics.memory import SERVE
from pytest_tokenwatt.metrics.polling import polled_too_slowly
from pytest_tokenwatt.records import ConfigRecord, GateSpec, Reason, Verdict
from pytest_tokenwatt.records.profiles import MemoryDelta, ProfileRecord

LEAST_ERROR = 0.01
"""No peak of memory is known better than this: a gain less than this below its limit passes."""
_ROUNDING = 1e-9
_UNIT = "gain"


def judge_memory(
    gate: GateSpec,
    candidate: ConfigRecord,
    baseline: ConfigRecord | None,
    baselines: Sequence[ConfigRecord] = (),
) -> Finding:
    """Pass from a gain of ``min`` less its error on, or less 0.01 where that is more; else fail.

    Inconclusive when nothing but readings is lacking: metrics that came too seldom to see a peak.
    The gain is the geometric mean over the profiles of baseline peak / candidate peak. ``baselines`` are all runs of
    the baseline on record.
    """
    rule, minimum = f">= {gate.limits['min']:g}", float(gate.limits["min"])
    names: Sequence[str] | None = gate.limits.get("profiles")
    if baseline is None:
        return _alone(gate, candidate, rule)
    delta = memory_delta(candidate, baseline, names=names, baselines=baselines)
    if delta.overall is None or delta.overall.value is None:
        seldom = _seldom_read(names or [*baseline.profiles, *candidate.profiles], candidate, baseline)
        if seldom and len(seldom) == len(delta.faults):
            return Finding(Verdict.INCONCLUSIVE, "not measured", rule, reasons=tuple(seldom.values()))
        return unusable(said_once(delta.faults) or (Reason("not_measured", "the spec has no profile"),), rule)
    value, error = delta.overall.value, delta.overall.error
    allowed = max(error or 0.0, LEAST_ERROR)
    text = _text(delta, value, candidate, baseline)
    if value >= minimum - allowed - _ROUNDING:
        return Finding(Verdict.PASS, text, rule, value, _UNIT, minimum, error)
    why = f"{' < '.join(apart(value, minimum))} by more than {allowed:.3g}{_peaks(delta, candidate, baseline)}"
    return Finding(Verdict.FAIL, text, rule, value, _UNIT, minimum, error, (Reason("memory_regression", why),))


def _seldom_read(names: Iterable[str], *sides: ConfigRecord) -> dict[str, Reason]:
    """Profiles of which all is known but a peak, because the metrics came too seldom to see one."""
    found: dict[str, Reason] = {}
    for name, side in product(names, sides):
        profile = side.profiles.get(name)
        slow = _why_seldom(profile) if profile is not None else None
        if slow is not None:
            found.setdefault(name, Reason("metrics_too_slow", f"{name} of {side.key}: {slow}"))
    return found


def _why_seldom(profile: ProfileRecord) -> str | None:
    memory = profile.memory
    if profile_faults(profile) or memory.weights_gib is None or memory.other_gib is None:
        return None
    runs = [run for run in profile.runs if memory.peak_gib is None and run.peaks.kv_usage is not None]
    return next((slow for run in runs if (slow := polled_too_slowly(run.peaks))), None)


def _alone(gate: GateSpec, candidate: ConfigRecord, rule: str) -> Finding:
    """Without a baseline there are only the candidate's own peaks."""
    names = gate.limits.get("profiles") or list(candidate.profiles)
    faults = [reason for name in names for reason in config_profile_faults(candidate, name)]
    if faults:
        return unusable(said_once(faults), rule)
    peaks = [f"{name} {_gib(candidate.profiles[name].memory.peak_gib)}" for name in names]
    return no_baseline(gate.limits.get("on_missing_baseline", "fail"), ", ".join(peaks), rule)


def _text(delta: MemoryDelta, value: float, candidate: ConfigRecord, baseline: ConfigRecord) -> str:
    """ "1.784 over 3 profiles (serve 30.1 GiB against 55.6)"."""
    over = f" over {len(delta.profiles)} profiles" if len(delta.profiles) > 1 else ""
    name = SERVE if SERVE in delta.profiles else next(iter(delta.profiles))
    unsure = f", {COUNTED_AS_0}" if delta.overall and delta.overall.missing == COUNTED_AS_0 else ""
    return f"{value:.3f}{over} ({_pair(name, candidate, baseline)}{unsure})"


def _peaks(delta: MemoryDelta, candidate: ConfigRecord, baseline: ConfigRecord) -> str:
    return f" ({', '.join(_pair(name, candidate, baseline) for name in delta.profiles)})"


def _pair(name: str, candidate: ConfigRecord, baseline: ConfigRecord) -> str:
    ours, theirs = (record.profiles[name].memory.peak_gib for record in (candidate, baseline))
    return f"{name} {_gib(ours)} against {'unknown' if theirs is None else number(theirs)}"


def _gib(peak: float | None) -> str:
    return "unknown" if peak is None else f"{number(peak)} GiB"

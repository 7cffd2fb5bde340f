"""The rule of the length gate: answers come out about as long as the baseline's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pytest_tokenwatt.gates.deltas import suite_faults
from pytest_tokenwatt.gates.finding import Finding, no_baseline, unusable
from pytest_tokenwatt.gates.shifts import drift_answer_faults, drift_items, length_delta, no_counts
from pytest_tokenwatt.gates.stated import COUNTED_AS_0
from pytest_tokenwatt.gates.telling import said_once
from pytest_tokenwatt.gates.wording import number, points_apart
from pytest_tokenwatt.metrics.length import mean_tokens
from pytest_tokenwatt.records import ConfigRecord, GateSpec, Reason, Verdict
from pytest_tokenwatt.records.accuracy import LengthDelta

_UNIT = "share"
_ROUNDING = 1e-9


def judge_length(gate: GateSpec, candidate: ConfigRecord, baseline: ConfigRecord | None) -> Finding:
    """Pass when the 95 % interval of candidate / baseline − 1 is inside ± ``max_shift``, fail when it is outside.

    Inconclusive between, without an interval, and when most answers are cut at max_tokens on both sides.
    """
    limit = float(gate.limits["max_shift"])
    rule = f"within ± {100 * limit:g} %"
    drift = bool(gate.limits.get("drift"))
    names = list(gate.limits.get("suites") or (() if drift else candidate.suites))
    if not (names or drift):
        return unusable((Reason("not_measured", "no suite was asked"),), rule)
    if baseline is None:
        return _alone(gate, names, candidate, rule)
    delta = length_delta(names, candidate, baseline, drift=drift)
    if delta.shift is None:
        return unusable(said_once(delta.faults), rule)
    verdict, reasons = _judge(delta, delta.shift, limit)
    error = None if delta.interval is None else (delta.interval[1] - delta.interval[0]) / 2
    return Finding(verdict, _text(delta, delta.shift, limit), rule, delta.shift, _UNIT, limit, error, reasons)


def _alone(gate: GateSpec, names: Sequence[str], candidate: ConfigRecord, rule: str) -> Finding:
    """Without a baseline there are only the candidate's own lengths."""
    drift = bool(gate.limits.get("drift"))
    faults = [reason for name in names for reason in suite_faults(candidate, name)]
    faults += drift_answer_faults(candidate) if drift else ()
    if faults:
        return unusable(faults, rule)
    items = [item for name in names for item in candidate.suites[name].items]
    mean = mean_tokens([*items, *(drift_items(candidate) if drift else ())])
    if mean is None:
        return unusable((no_counts(),), rule)
    text = f"{number(mean[0])} tokens ({mean[1]} {_answers(mean[1])})"
    return no_baseline(gate.limits.get("on_missing_baseline", "fail"), text, rule, mean[0], "tokens")


def _judge(delta: LengthDelta, shift: float, limit: float) -> tuple[Verdict, tuple[Reason, ...]]:
    if delta.doubts or delta.interval is None:
        return Verdict.INCONCLUSIVE, delta.doubts
    low, high = delta.interval
    if -limit - _ROUNDING <= low and high <= limit + _ROUNDING:
        return Verdict.PASS, ()
    shown, bounds = _shown(delta, shift, limit), f"± {100 * limit:g} %"
    if low > limit or high < -limit:
        text = f"all of the interval is outside {bounds}: {shown}{_means(delta)}"
        return Verdict.FAIL, (Reason("length_shift", text),)
    return Verdict.INCONCLUSIVE, (Reason("within_error", f"the interval reaches across {bounds}: {shown}"),)


def _means(delta: LengthDelta) -> str:
    """Nothing of a shift that is stored without them."""
    if delta.tokens is None or delta.baseline_tokens is None:
        return ""
    return f", a mean of {number(delta.tokens)} tokens against {number(delta.baseline_tokens)}"


def _text(delta: LengthDelta, shift: float, limit: float) -> str:
    return f"{_shown(delta, shift, limit)} ({', '.join(_sample(delta)) or _stated(delta)})"


def _stated(delta: LengthDelta) -> str:
    """What stands for the sample of a shift that is stored without one."""
    exact = delta.interval is not None and delta.interval[0] == delta.interval[1]
    return COUNTED_AS_0 if exact else "as stored"


def _shown(delta: LengthDelta, shift: float, limit: float) -> str:
    """ "+1.8 % [+0.4, +3.1]", with the decimals that tell each number from the limit."""
    value = f"{_percent(shift, limit)} %"
    if delta.interval is None or (not delta.n and delta.interval[0] == delta.interval[1]):
        return value
    return f"{value} [{', '.join(_percent(bound, limit) for bound in delta.interval)}]"


def _percent(share: float, limit: float) -> str:
    return points_apart(100 * share, math.copysign(100 * limit, share))


def _sample(delta: LengthDelta) -> Iterator[str]:
    if delta.n:
        yield f"{delta.n} {_answers(delta.n)}"
    if delta.truncated:
        yield f"{delta.truncated} cut at max_tokens"
    if delta.left_out:
        yield f"{delta.left_out} left out"


def _answers(count: int) -> str:
    return "answer" if count == 1 else "answers"

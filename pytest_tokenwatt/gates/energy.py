"""The rule of the energy gate: tokens per joule against the baseline, and an absolute minimum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_tokenwatt.gates.band import session_energy_band_pct
from pytest_tokenwatt.gates.comparable import incomparable, other_machine, other_workload
from pytest_tokenwatt.gates.finding import Finding, baseline_fault, no_baseline, unusable
from pytest_tokenwatt.gates.stated import COUNTED_AS_0, confirmed, lacks_error
from pytest_tokenwatt.gates.wording import apart, number
from pytest_tokenwatt.metrics.goodput import is_measurable
from pytest_tokenwatt.records import ConfigRecord, EnergyRecord, GateSpec, GoodputRecord, Reason, Verdict

_UNIT = "tok/J"
_SIMULATED = "simulated"
_NULLS = ("intervals.tokens_per_joule", "energy.variance_band_pct", "energy_band_pct")
"""Under what names a report may have the band of tokens per joule as null."""


@dataclass(frozen=True, slots=True)
class _Ratio:
    """Tokens per joule over the baseline's; ``error`` is a share, ``None`` when nothing was measured twice."""

    value: float
    error: float | None
    remark: str = ""

    @property
    def text(self) -> str:
        """The change in per cent, and whether it is more than equal measurements differ."""
        change = f"{100 * (self.value - 1):+.1f} %"
        if self.error is None:
            return f"({change}, error not known)"
        unlike = is_measurable(self.value, self.error)
        return f"({change}{self.remark}){'' if unlike else ', no measurable difference'}"


def judge_energy(
    gate: GateSpec,
    candidate: ConfigRecord,
    record: GoodputRecord,
    baseline: ConfigRecord | None,
    records: Sequence[ConfigRecord],
    baselines: Sequence[ConfigRecord] = (),
) -> Finding:
    """Pass from the ratio ``min`` less its error and from ``min_tok_j`` tokens per joule on, else fail.

    Without limits it tells the figure and, for a candidate, its ratio. ``records`` are all of the session, and
    ``baselines`` all runs of the baseline on record: their widest band of tokens per joule is the ratio's error. A
    scenario of which no rate was confirmed has no energy, so that the gate is invalid.
    """
    rule = _rule(gate)
    tok_j = _tokens_per_joule(candidate, record)
    if not isinstance(tok_j, float):
        return unusable(tok_j, rule)
    absolute = _judge_minimum(gate, tok_j, rule)
    compared = gate.limits.get("min") is not None
    if absolute.verdict is Verdict.FAIL or candidate.role == "baseline" or (baseline is None and not compared):
        return absolute
    if baseline is None:
        return no_baseline(gate.limits.get("on_missing_baseline", "fail"), absolute.text, rule, tok_j, _UNIT)
    ratio = other_machine(candidate, baseline) or _ratio(candidate, record, baseline, records, baselines)
    if isinstance(ratio, Reason):
        return _without_ratio(absolute, ratio, compared)
    return _judge_ratio(gate, absolute, ratio)


def _tokens_per_joule(config: ConfigRecord, record: GoodputRecord) -> float | tuple[Reason, ...]:
    """The figure, or why there is none."""
    if record.invalid:
        return record.invalid
    if not confirmed(config, record):
        misses = "; ".join(record.misses) or "no rate passed"
        return (Reason("not_measured", f"no rate was confirmed, so that no energy belongs to one: {misses}"),)
    energy = record.energy
    if energy is None:
        reasons = tuple(reason for source in config.power[:1] for reason in source.invalid)
        return reasons or (Reason("no_power_source", f"no power was read while {config.key} was measured"),)
    if energy.tokens_per_joule is None:
        return energy.invalid or (Reason("not_measured", "the tokens per joule are not known"),)
    return float(energy.tokens_per_joule)


def _judge_minimum(gate: GateSpec, tok_j: float, rule: str) -> Finding:
    minimum = gate.limits.get("min_tok_j")
    text = f"{number(tok_j)} {_UNIT}"
    if minimum is not None and tok_j < minimum:
        reason = Reason("energy_below_minimum", f"{' < '.join(apart(tok_j, minimum))} {_UNIT}")
        return Finding(Verdict.FAIL, text, rule, tok_j, _UNIT, minimum, reasons=(reason,))
    return Finding(Verdict.PASS, text, rule, tok_j, _UNIT, minimum)


def _ratio(
    candidate: ConfigRecord,
    record: GoodputRecord,
    baseline: ConfigRecord,
    records: Sequence[ConfigRecord],
    baselines: Sequence[ConfigRecord],
) -> _Ratio | Reason:
    """The ratio of two comparable figures, or why there is none."""
    fault = baseline_fault(baseline, record.scenario)
    if fault is not None:
        return fault
    base = baseline.scenarios[record.scenario]
    base_tok_j = _tokens_per_joule(baseline, base)
    if not isinstance(base_tok_j, float):
        return Reason("baseline_invalid", f"baseline {baseline.key}: {base_tok_j[0]}")
    if base_tok_j <= 0:
        return Reason("baseline_invalid", f"baseline {baseline.key} delivered no token within its SLO")
    different = incomparable(record, base) or other_workload(candidate, baseline, record.scenario)
    different = different or _other_source(record.energy, base.energy)
    if different is not None:
        return different
    tok_j = record.energy.tokens_per_joule if record.energy else None
    value, band_pct = (tok_j or 0.0) / base_tok_j, session_energy_band_pct(records, record.scenario, baselines)
    if lacks_error(candidate, band_pct, *_NULLS):
        return _Ratio(value, 0.0, f", {COUNTED_AS_0}")
    return _Ratio(value, None if band_pct is None else band_pct / 100.0)


def _other_source(energy: EnergyRecord | None, base: EnergyRecord | None) -> Reason | None:
    """Boards, nodes and processors draw different power, and a simulated one none at all."""
    if energy is None or base is None or _measured(energy) == _measured(base):
        return None
    text = f"candidate: {' '.join(_measured(energy))}, baseline: {' '.join(_measured(base))}"
    return Reason("power_source_differs", f"power was measured of different things ({text})")


def _measured(energy: EnergyRecord) -> tuple[str, ...]:
    return (_SIMULATED, energy.kind) if energy.source == _SIMULATED else (energy.kind,)


def _without_ratio(absolute: Finding, reason: Reason, compared: bool) -> Finding:
    """Only a gate that was asked to compare is invalid without a ratio; others say it beside their own figure."""
    if compared:
        return unusable((reason,), absolute.rule)
    told = replace(absolute, text=f"{absolute.text} (not compared: {reason.code})")
    return told if absolute.limit is not None else replace(told, reasons=(reason,))


def _judge_ratio(gate: GateSpec, absolute: Finding, ratio: _Ratio) -> Finding:
    minimum, text = gate.limits.get("min"), f"{absolute.text} {ratio.text}"
    if minimum is None and absolute.limit is not None:
        return replace(absolute, text=text)
    reasons = () if minimum is None or ratio.value >= minimum - (ratio.error or 0.0) else (_regression(ratio, minimum),)
    verdict = Verdict.FAIL if reasons else Verdict.PASS
    return Finding(verdict, text, absolute.rule, ratio.value, "ratio", minimum, ratio.error, reasons)


def _regression(ratio: _Ratio, minimum: float) -> Reason:
    shown = " < ".join(apart(ratio.value, minimum))
    by = "; the error of the ratio is not known" if ratio.error is None else f" by more than {ratio.error:.3f}"
    return Reason("energy_regression", f"{shown}{by}")


def _rule(gate: GateSpec) -> str:
    bounds = (("min", ""), ("min_tok_j", f" {_UNIT}"))
    parts = [f">= {gate.limits[name]:g}{unit}" for name, unit in bounds if gate.limits.get(name) is not None]
    return ", ".join(parts) or "informational"

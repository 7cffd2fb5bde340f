"""The user's own rules: a bound on any figure that was measured, absolute or against the baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from pytest_tokenwatt.gates.comparable import incomparable, other_hardware, other_machine, other_workload
from pytest_tokenwatt.gates.figures import configuration_figure, is_timed, split_name, unlike_loads
from pytest_tokenwatt.gates.finding import Finding, baseline_fault, no_baseline, unusable
from pytest_tokenwatt.gates.wording import amount, apart, number
from pytest_tokenwatt.metrics.goodput import figure_names
from pytest_tokenwatt.records import ConfigRecord, Figure, GateSpec, GoodputRecord, Reason, Verdict

_ORDER = (Verdict.FAIL, Verdict.INVALID, Verdict.INCONCLUSIVE, Verdict.PASS)
_SIGNS = {"min": 1.0, "max": -1.0, "min_ratio": 1.0, "max_ratio": -1.0}


@dataclass(frozen=True, slots=True)
class _Limit:
    """One side of a rule: ``sign`` 1 for a minimum, −1 for a maximum."""

    bound: float
    sign: float

    def margin(self, value: float) -> float:
        """How far inside the bound the value is, relative to the bound; negative outside."""
        return self.sign * (value - self.bound) / (abs(self.bound) or 1.0)

    def broken(self, value: float) -> str:
        """The two numbers with the relation that should not be."""
        return f" {'<' if self.sign > 0 else '>'} ".join(apart(value, self.bound))


@dataclass(frozen=True, slots=True)
class _Judged:
    """A finding of one scenario and its margin, by which the worst scenario is found."""

    finding: Finding
    margin: float = 0.0


def judge_rule(gate: GateSpec, candidate: ConfigRecord, baseline: ConfigRecord | None) -> Finding:
    """The worst of the rule's scenarios: by verdict, then by the distance to the bound.

    A figure that was not measured makes the rule invalid and names the nearest one that was; zero is a value. Figures
    such as ``serve.peak_gib`` are of the configuration and not of a scenario.
    """
    if split_name(gate.limits["metric"]) is not None:
        return _judge_configuration(gate, candidate, baseline).finding
    names = [gate.scenario] if gate.scenario is not None else list(candidate.scenarios)
    if not names:
        return unusable((Reason("not_measured", "no scenario was measured"),), _wording(gate))
    judged = {name: _judge(gate, name, candidate, baseline) for name in names}
    worst = min(judged, key=lambda name: (_ORDER.index(judged[name].finding.verdict), judged[name].margin))
    finding = judged[worst].finding
    return replace(finding, text=f"{finding.text} ({worst})") if len(judged) > 1 else finding


def _judge(gate: GateSpec, scenario: str, candidate: ConfigRecord, baseline: ConfigRecord | None) -> _Judged:
    rule = _wording(gate)
    record = candidate.scenarios.get(scenario)
    if record is None:
        return _Judged(unusable((Reason("not_measured", f"scenario {scenario} was not measured"),), rule))
    if record.invalid:
        return _Judged(unusable(record.invalid, rule))
    metric = gate.limits["metric"]
    figure = record.figures.get(metric)
    if figure is None or figure.value is None:
        return _Judged(unusable((_not_measured(metric, record),), rule))
    return _judge_figure(
        gate, figure, figure.value, baseline, lambda base: _base_value(metric, record, candidate, base)
    )


def _judge_configuration(gate: GateSpec, candidate: ConfigRecord, baseline: ConfigRecord | None) -> _Judged:
    metric = gate.limits["metric"]
    figure = configuration_figure(candidate, metric)
    if figure.value is None:
        reason = Reason("not_measured", f"{metric}: {figure.reason or 'no value'}")
        return _Judged(unusable((reason,), _wording(gate)))
    return _judge_figure(gate, figure, figure.value, baseline, lambda base: _base_figure(metric, candidate, base))


def _base_figure(metric: str, candidate: ConfigRecord, baseline: ConfigRecord) -> float | Reason:
    figure = configuration_figure(baseline, metric)
    if figure.value is None:
        return Reason("baseline_invalid", f"the baseline has no {metric}: {figure.reason or 'not measured'}")
    elsewhere = other_machine if is_timed(metric) else other_hardware
    return elsewhere(candidate, baseline) or unlike_loads(metric, candidate, baseline) or figure.value


def _judge_figure(
    gate: GateSpec,
    figure: Figure,
    value: float,
    baseline: ConfigRecord | None,
    base_of: Callable[[ConfigRecord], float | Reason],
) -> _Judged:
    """A figure against the absolute bounds, and against those that are ratios to the baseline's (``base_of``)."""
    shown, rule = amount(value, figure.unit), _wording(gate)
    finding = Finding(Verdict.PASS, shown, rule, value, figure.unit, error=figure.error)
    absolute = _against(finding, value, _limits(gate, ("min", "max"), 1.0))
    if not _limits(gate, ("min_ratio", "max_ratio"), 1.0) or absolute.finding.verdict is Verdict.FAIL:
        return absolute
    if baseline is None:
        on_missing = gate.limits.get("on_missing_baseline", "fail")
        return _Judged(no_baseline(on_missing, finding.text, rule, value, finding.unit))
    base = base_of(baseline)
    return _Judged(unusable((base,), rule)) if isinstance(base, Reason) else _compare(gate, value, absolute, base)


def _compare(gate: GateSpec, value: float, absolute: _Judged, base: float) -> _Judged:
    """The ratios, as products with the baseline's figure, so that a baseline of zero is a value like any other."""
    finding = absolute.finding
    text = f"{finding.text}, {value / base:.3g}x" if base else f"{finding.text}, baseline {amount(base, finding.unit)}"
    relative = _against(replace(finding, text=text), value, _limits(gate, ("min_ratio", "max_ratio"), base))
    failing = relative.finding.verdict is Verdict.FAIL
    return relative if failing or relative.margin < absolute.margin else replace(absolute, finding=relative.finding)


def _limits(gate: GateSpec, names: Sequence[str], scale: float) -> list[_Limit]:
    asked = [(name, gate.limits.get(name)) for name in names]
    return [_Limit(float(bound) * scale, _SIGNS[name]) for name, bound in asked if bound is not None]


def _against(finding: Finding, value: float, limits: Sequence[_Limit]) -> _Judged:
    """The value against the limit that it is closest to breaking."""
    if not limits:
        return _Judged(finding, float("inf"))
    nearest = min(limits, key=lambda limit: limit.margin(value))
    margin = nearest.margin(value)
    if margin < 0:
        reason = Reason("rule_broken", nearest.broken(value))
        return _Judged(replace(finding, verdict=Verdict.FAIL, limit=nearest.bound, reasons=(reason,)), margin)
    return _Judged(replace(finding, limit=nearest.bound), margin)


def _base_value(metric: str, record: GoodputRecord, candidate: ConfigRecord, baseline: ConfigRecord) -> float | Reason:
    fault = baseline_fault(baseline, record.scenario) or incomparable(record, baseline.scenarios[record.scenario])
    fault = fault or other_machine(candidate, baseline) or other_workload(candidate, baseline, record.scenario)
    if fault is not None:
        return fault
    figure = baseline.scenarios[record.scenario].figures.get(metric)
    if figure is None or figure.value is None:
        why = figure.reason if figure is not None else None
        return Reason("baseline_invalid", f"the baseline has no {metric}: {why or 'not measured'}")
    return figure.value


def _not_measured(metric: str, record: GoodputRecord) -> Reason:
    known = record.figures.get(metric)
    if known is not None:
        return Reason("not_measured", f"{metric}: {known.reason or 'no value'}")
    if record.rate_rps is None:
        missed = f": {record.misses[0]}" if record.misses else ""
        return Reason("not_measured", f"{metric}: no rate passed{missed}")
    if metric in figure_names(record.slo):
        return Reason("not_measured", f"{metric}: nothing in this run could read it")
    measured = [name for name, figure in record.figures.items() if figure.value is not None]
    nearest = get_close_matches(metric, measured, 1, 0.4)
    return Reason(
        "not_measured", f"{metric} is not among the measured figures" + (f"; nearest: {nearest[0]}" if nearest else "")
    )


def _wording(gate: GateSpec) -> str:
    """The bounds as a reader wants them: "<= 1.1x baseline"."""
    forms = {"min": ">= {}", "max": "<= {}", "min_ratio": ">= {}x baseline", "max_ratio": "<= {}x baseline"}
    parts = [
        form.format(number(gate.limits[name])) for name, form in forms.items() if gate.limits.get(name) is not None
    ]
    return ", ".join(parts)

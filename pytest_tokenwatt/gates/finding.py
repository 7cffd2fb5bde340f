"""What a rule finds out before it becomes the result of a gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_tokenwatt.records import ConfigRecord, GoodputRecord, Reason, Verdict

TIME_BUDGET = "time_budget"
NOT_STORED = "not_stored"
"""Code of a figure that a replay would need and that its files do not hold."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict with its figures: ``text`` is the readable value, ``rule`` the readable bound.

    ``skips`` turns an inconclusive verdict into a skipped test, whatever the gate says.
    """

    verdict: Verdict
    text: str
    rule: str = ""
    value: float | None = None
    unit: str | None = None
    limit: float | None = None
    error: float | None = None
    reasons: tuple[Reason, ...] = ()
    skips: bool = False


def unusable(reasons: Sequence[Reason], rule: str = "") -> Finding:
    """A measurement that is not to be believed; one that the time budget cut off is only inconclusive."""
    out_of_time = any(reason.code == TIME_BUDGET for reason in reasons)
    verdict = Verdict.INCONCLUSIVE if out_of_time else Verdict.INVALID
    return Finding(verdict, "not measured" if out_of_time else "invalid", rule, reasons=tuple(reasons))


def no_baseline(on_missing: str, text: str, rule: str, value: float | None = None, unit: str | None = None) -> Finding:
    """A relative gate without any baseline: fails, or under ``record`` is skipped with its own figure."""
    records = on_missing == "record"
    reason = Reason("no_baseline", "there is no baseline to compare with; measure one, or name its record")
    verdict = Verdict.INCONCLUSIVE if records else Verdict.FAIL
    return Finding(verdict, text, rule, value, unit, reasons=(reason,), skips=records)


def baseline_fault(baseline: ConfigRecord, scenario: str) -> Reason | None:
    """Why the baseline's figures of a scenario cannot be compared with; ``None`` when they can."""
    if baseline.invalid:
        return Reason("baseline_invalid", f"baseline {baseline.key}: {baseline.invalid[0]}")
    record = baseline.scenarios.get(scenario)
    if record is None:
        return Reason("baseline_invalid", f"baseline {baseline.key} has no scenario {scenario}")
    if record.invalid:
        return Reason("baseline_invalid", f"baseline {baseline.key}: {record.invalid[0]}")
    return None


def without_goodput(record: GoodputRecord) -> tuple[Reason, ...]:
    """Why there is no passing rate, one reason per miss."""
    misses = record.misses or ("no rate passed",)
    return tuple(Reason("slo_missed", miss) for miss in misses)

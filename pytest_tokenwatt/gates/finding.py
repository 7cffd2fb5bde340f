"""What a rule finds out before it becomes the result of a gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_tokenwatt.records import ConfigRecord, GoodputRecord, Reason, Verdict

TIME_BUDGET = "time_budget"


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
    reason = Reason("no_baseline", "there is no baseline to compare with; measure one or name its record")
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


def incomparable(record: GoodputRecord, base: GoodputRecord) -> Reason | None:
    """Why two records of one scenario cannot be compared: they were offered different loads."""
    if base.slo != record.slo:
        return Reason("slo_differs", "candidate and baseline were measured under different SLOs")
    hashes = {record.load_sha256, base.load_sha256} - {None}
    if len(hashes) > 1:
        return Reason("workload_differs", "candidate and baseline were offered different workloads")
    return None


def other_hardware(candidate: ConfigRecord, baseline: ConfigRecord) -> Reason | None:
    """Why two configurations cannot be compared: they ran on different accelerators. Unknown ones are not judged."""
    names = [sorted({gpu.name or "?" for gpu in record.gpus}) for record in (candidate, baseline)]
    if not all(names) or names[0] == names[1]:
        return None
    ours, theirs = (" and ".join(each) for each in names)
    return Reason("hardware_differs", f"the candidate ran on {ours}, the baseline on {theirs}")


def other_limit(candidate: ConfigRecord, baseline: ConfigRecord) -> str:
    """A remark on power limits that differ, for a reader of a ratio; empty when they are equal or unknown."""
    limits = [sorted({gpu.limit_w for gpu in record.gpus if gpu.limit_w}) for record in (candidate, baseline)]
    if not all(limits) or limits[0] == limits[1]:
        return ""
    ours, theirs = ("/".join(f"{limit:g}" for limit in each) for each in limits)
    return f", power limit {ours} W against {theirs} W"


def without_goodput(record: GoodputRecord) -> tuple[Reason, ...]:
    """Why there is no passing rate, one reason per miss."""
    misses = record.misses or ("no rate passed",)
    return tuple(Reason("slo_missed", miss) for miss in misses)

"""A rule that a user's own test states: a value, a comparison, a limit."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records import GateResult, Reason, Verdict

COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def judge_user_rule(
    config: str, name: str, value: float | None, comparison: str, limit: float, unit: str | None
) -> GateResult:
    """Judge ``value comparison limit`` as a gate of the report.

    No value, or one that is not finite, is invalid. Raises ``UsageError`` for an unknown comparison or a limit that is
    not finite.
    """
    holds = COMPARISONS.get(comparison)
    if holds is None:
        known = " ".join(COMPARISONS)
        raise UsageError(
            f"{comparison!r} is no comparison", where=f"tokenwatt.gate({name!r})", remedy=f"use one of {known}"
        )
    if not math.isfinite(limit):
        raise UsageError(f"the limit {limit} is not finite", where=f"tokenwatt.gate({name!r})", remedy="give a number")
    measured = value if value is not None and math.isfinite(value) else None
    verdict, reasons = _verdict(name, value, measured, holds, limit)
    shown = f" {unit}" if unit else ""
    return GateResult(
        id=f"{config}::{name}",
        config=config,
        gate=name,
        value=measured,
        unit=unit,
        limit=limit,
        error=None,
        verdict=verdict,
        mode="enforce",
        reasons=reasons,
        text="not measured" if measured is None else f"{measured:.5g}{shown}",
        rule=f"{comparison} {limit:.5g}{shown}",
    )


def _verdict(
    name: str, value: float | None, measured: float | None, holds: Callable[[float, float], bool], limit: float
) -> tuple[Verdict, tuple[Reason, ...]]:
    if measured is None:
        return Verdict.INVALID, (Reason("not_measured", f"{name} has no finite value ({value})"),)
    if holds(measured, limit):
        return Verdict.PASS, ()
    return Verdict.FAIL, (Reason("rule_broken", f"{name} is {measured:.6g} where the limit is {limit:.6g}"),)

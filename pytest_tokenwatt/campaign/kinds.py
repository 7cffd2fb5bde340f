"""What can be measured of a configuration, and what one thing needs of the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pytest_tokenwatt.records import GateSpec

GOODPUT, PROFILES, ACCURACY, DRIFT = "goodput", "profiles", "accuracy", "drift"
AUDIT, BUDGET, SCORE, AGAIN = "audit", "budget", "score", "again"
EVERYTHING = frozenset({GOODPUT, PROFILES, ACCURACY, DRIFT, AUDIT, BUDGET, SCORE, AGAIN})
"""By ``GateSpec.needs``, and the repeat of the baseline that speed wants; the contract is always checked."""
LENGTH = "length"
"""How long answers are: those to suites, and to drift prompts where a spec asks some that are no suite's."""
TIMED = frozenset({GOODPUT, PROFILES})
BEHIND_ALL = frozenset({PROFILES, AUDIT, BUDGET, SCORE, AGAIN})
"""What may need engine starts behind the last configuration's phase."""
AFTER = "A'"
"""What stands for the place behind all phases where a configuration's key stands else; no key has an apostrophe."""

_IMPLIED = {
    AUDIT: (GOODPUT, PROFILES, AGAIN),
    BUDGET: (PROFILES,),
    SCORE: (PROFILES, ACCURACY, DRIFT, AGAIN),
}


def of_gates(gates: Iterable[GateSpec]) -> Iterator[str]:
    """What gates need beside what their own ``needs`` says."""
    for gate in gates:
        yield gate.needs
        if gate.kind == "speed":
            yield AGAIN
        if gate.limits.get("online_slo"):
            yield GOODPUT
        if gate.limits.get("drift"):
            yield DRIFT


def with_implied(kinds: Iterable[str]) -> frozenset[str]:
    """``kinds`` and all that they are made of; names that are no kind are left out."""
    asked = frozenset(kinds)
    return EVERYTHING & (asked | {part for kind in asked for part in _IMPLIED.get(kind, ())})

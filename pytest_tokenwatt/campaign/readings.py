"""From records to the values that tests read: whatever is not to be believed raises instead."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from pytest_tokenwatt.campaign.suites import compared
from pytest_tokenwatt.errors import GateFailed, NotMeasured, UsageError
from pytest_tokenwatt.gates.finding import unusable
from pytest_tokenwatt.records import ConfigRecord, Reason, Verdict
from pytest_tokenwatt.spec.model import Spec
from pytest_tokenwatt.values import Accuracy, Energy, Goodput, Power

_NO_POWER = "the spec asks for no power (power:)"


def goodput_of(record: ConfigRecord, scenario: str) -> Goodput:
    """Goodput of a scenario.

    Raises ``GateFailed`` when the measurement is invalid or ran out of time, ``NotMeasured`` for a scenario that was
    not measured.
    """
    found = record.scenarios.get(scenario)
    invalid = record.invalid or (found.invalid if found else ())
    if invalid:
        _refuse(f"{record.key} goodput", invalid)
    if found is None:
        why = f"scenario {scenario} has no slo, so there is no rate to find, or nothing that was selected needs it"
        raise NotMeasured(f"{record.key} goodput", why)
    return Goodput(record.key, found)


def energy_of(record: ConfigRecord, scenario: str) -> Energy:
    """Energy over the confirming windows. Raises like ``goodput_of``, and ``NotMeasured`` without a power source."""
    energy = goodput_of(record, scenario).record.energy
    if energy is None:
        raise NotMeasured(f"{record.key} energy", "no rate passed" if record.power else _NO_POWER)
    if energy.invalid:
        why = "; ".join(str(reason) for reason in energy.invalid)
        raise GateFailed(f"{record.key} energy is invalid: {why}", Verdict.INVALID.value)
    return Energy(record.key, energy)


def power_of(record: ConfigRecord, run_dir: Path) -> Power:
    """The power sources. Raises ``GateFailed`` when none can be read, ``NotMeasured`` when the spec has none."""
    if not record.power:
        raise NotMeasured(f"{record.key} power", "; ".join(map(str, record.invalid)) or _NO_POWER)
    if all(source.invalid for source in record.power):
        broken = "; ".join(str(reason) for source in record.power for reason in source.invalid)
        raise GateFailed(f"{record.key} power is invalid: {broken}", Verdict.INVALID.value)
    return Power(record.key, record, run_dir)


def accuracy_of(record: ConfigRecord, baseline: ConfigRecord | None, suite: str) -> Accuracy:
    """A suite's score, and its difference to the baseline's.

    Raises ``GateFailed`` when the suite is invalid or ran out of time, ``NotMeasured`` when it was not asked.
    """
    found = record.suites.get(suite)
    invalid = record.invalid or (found.invalid if found else ())
    if invalid:
        _refuse(f"{record.key} accuracy of {suite}", invalid)
    if found is None:
        why = f"suite {suite} was not asked: nothing that was selected needs it"
        raise NotMeasured(f"{record.key} accuracy", why)
    return compared(record.key, found, baseline.suites.get(suite) if baseline else None)


def suite_name(spec: Spec, suite: str | None) -> str:
    """The suite that is meant; ``None`` means the only one.

    Raises ``NotMeasured`` without suites, ``UsageError`` for one that there is not.
    """
    known = [each.title for each in spec.accuracy]
    if not known:
        raise NotMeasured("accuracy", "the spec has no accuracy block")
    if suite is None and len(known) == 1:
        return known[0]
    if suite not in known:
        what = "there are several suites" if suite is None else f"there is no suite {suite!r}"
        raise UsageError(what, remedy=f"use tokenwatt.accuracy(suite) with one of {', '.join(known)}")
    return suite


def _refuse(what: str, invalid: Sequence[Reason]) -> NoReturn:
    verdict, why = unusable(invalid).verdict, "; ".join(str(reason) for reason in invalid)
    raise GateFailed(f"{what} is {verdict.value}: {why}", verdict)

"""The length of answers as a value for tests."""

from __future__ import annotations

from pytest_tokenwatt.errors import GateFailed, NotMeasured
from pytest_tokenwatt.gates.asked import counts_drift_answers
from pytest_tokenwatt.gates.finding import unusable
from pytest_tokenwatt.gates.shifts import length_delta, suite_names
from pytest_tokenwatt.records import ConfigRecord
from pytest_tokenwatt.spec.model import Spec
from pytest_tokenwatt.values import LengthShift


def length_value(spec: Spec, candidate: ConfigRecord, baseline: ConfigRecord) -> LengthShift:
    """The answers to all suites and drift prompts of the spec against the baseline's.

    Raises ``GateFailed`` when those of either are invalid or cannot be compared, ``NotMeasured`` when none was asked.
    """
    asked = [record for record in (candidate, baseline) if record.suites or record.drift or record.invalid]
    if len(asked) < 2:
        raise NotMeasured(f"{candidate.key} length_shift", "nothing was asked: nothing that was selected needs it")
    delta = length_delta(suite_names(spec), candidate, baseline, drift=counts_drift_answers(spec))
    if delta.shift is None:
        verdict, why = unusable(delta.faults).verdict, "; ".join(map(str, delta.faults))
        raise GateFailed(f"{candidate.key} length_shift is {verdict.value}: {why}", verdict)
    return LengthShift(candidate.key, delta)

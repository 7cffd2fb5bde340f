"""Whether a configuration's record is admitted to a comparison of records: contract met, every measurement valid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_tokenwatt.gates.speeds import profile_faults
from pytest_tokenwatt.records import ConfigRecord, GateResult, GoodputRecord, Reason, Verdict
from pytest_tokenwatt.records.drift import DriftRecord

AUDIT_FAILED = "audit_failed"
_TELLING = frozenset({"accuracy", "kl", "perplexity", "length", "speed", "memory", "audit", "budget", "precision"})
"""Kinds of gates of which an invalid one says that a measurement is; of serving the records themselves do.

Where no rate was confirmed, gates of energy and goodput are invalid for want of a figure: that is no fault of a
measurement. A user's own rule says nothing of one either.
"""


def admission_faults(record: ConfigRecord, results: Sequence[GateResult]) -> Iterator[Reason]:
    """Why the record is not admitted; nothing when it is. ``results`` are those of its own gates.

    Outputs that the audit did not find to be the model's were not measured as what they are said to be.
    """
    yield from record.invalid
    if record.contract is None:
        yield Reason("not_measured", f"the contract of {record.key} was not checked")
    elif not record.contract.passed:
        yield Reason("contract_failed", f"{record.key} did not answer every required probe")
    yield from dict.fromkeys(_measurements(record))
    for result in results:
        kind, found = result.gate.partition("[")[0], result.found or result.verdict
        why = result.reasons[0] if result.reasons else Reason(found.value, "no reason was given")
        if kind in _TELLING and found is Verdict.INVALID:
            yield Reason(why.code, f"{result.gate}: {why.text}")
        if kind == "audit" and found is Verdict.FAIL:
            yield Reason(AUDIT_FAILED, why.text)


def _measurements(record: ConfigRecord) -> Iterator[Reason]:
    """Of each measurement, why it is not to be believed, with its name."""
    named: list[tuple[str, tuple[Reason, ...]]] = []
    named += [(f"goodput of {name}", _goodput(each)) for name, each in record.scenarios.items()]
    named += [(f"accuracy of {name}", each.invalid) for name, each in record.suites.items()]
    named += [("drift", _drift(record.drift))] if record.drift is not None else []
    named += [(f"profile {name}", profile_faults(each)) for name, each in record.profiles.items()]
    named += [(f"budget of {name}", each.invalid) for name, each in record.budgets.items()]
    named += [(f"audit of {name}", each.invalid) for name, each in record.audits.items()]
    for name, reasons in named:
        yield from (Reason(reason.code, f"{name}: {reason.text}") for reason in reasons)


def _goodput(record: GoodputRecord) -> tuple[Reason, ...]:
    return (*record.invalid, *(record.energy.invalid if record.energy is not None else ()))


def _drift(record: DriftRecord) -> tuple[Reason, ...]:
    against = record.against.invalid if record.against is not None else ()
    return (*record.invalid, *against, *(reason for each in record.perplexity.values() for reason in each.invalid))

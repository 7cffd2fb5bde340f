"""Whether a configuration's record is admitted to a comparison of records: contract met, every measurement valid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_tokenwatt.gates.audit import MISSING
from pytest_tokenwatt.gates.speeds import profile_faults
from pytest_tokenwatt.gates.stated import states
from pytest_tokenwatt.gates.telling import gates_once
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

    Outputs that the audit did not find to be the model's were not measured as what they are said to be. Of what a gate
    says, the first reason stands here with its name.
    """
    yield from record.invalid
    yield from _contract(record)
    invalid = [result for result in results if _telling(result, Verdict.INVALID)]
    said = {reason.text for result in invalid for reason in result.reasons}
    for name, reason in dict.fromkeys(_measurements(record)):
        if not any(text.endswith(reason.text) for text in said):
            yield Reason(reason.code, f"{name}: {reason.text}")
    yield from gates_once({result.gate: _first(result) for result in invalid})
    for result in results:
        if result.gate == "audit" and _telling(result, Verdict.FAIL):
            yield Reason(AUDIT_FAILED, _first(result).text)


def _telling(result: GateResult, verdict: Verdict) -> bool:
    return result.gate.partition("[")[0] in _TELLING and (result.found or result.verdict) is verdict


def _first(result: GateResult) -> Reason:
    return result.reasons[0] if result.reasons else Reason(result.verdict.value, "no reason was given")


def _contract(record: ConfigRecord) -> Iterator[Reason]:
    """By the probes, or by what another tool's record says of them."""
    stated = states(record).verdicts.get("contract")
    passed = record.contract.passed if record.contract is not None else stated == Verdict.PASS
    if record.contract is None and stated is None:
        yield Reason("not_measured", f"the contract of {record.key} was not checked")
    elif not passed:
        yield Reason("contract_failed", f"{record.key} did not answer every required probe")


def _measurements(record: ConfigRecord) -> Iterator[tuple[str, Reason]]:
    """Of each measurement its name, and why it is not to be believed."""
    named: list[tuple[str, tuple[Reason, ...]]] = []
    named += [(f"goodput of {name}", _goodput(each)) for name, each in record.scenarios.items()]
    named += [(f"accuracy of {name}", each.invalid) for name, each in record.suites.items()]
    named += [("drift", _drift(record.drift))] if record.drift is not None else []
    named += [(f"profile {name}", profile_faults(each)) for name, each in record.profiles.items()]
    named += [(f"budget of {name}", each.invalid) for name, each in record.budgets.items()]
    named += [(f"audit of {name}", each.invalid) for name, each in record.audits.items() if each.status != MISSING]
    for name, reasons in named:
        yield from ((name, reason) for reason in reasons)


def _goodput(record: GoodputRecord) -> tuple[Reason, ...]:
    return (*record.invalid, *(record.energy.invalid if record.energy is not None else ()))


def _drift(record: DriftRecord) -> tuple[Reason, ...]:
    against = record.against.invalid if record.against is not None else ()
    return (*record.invalid, *against, *(reason for each in record.perplexity.values() for reason in each.invalid))

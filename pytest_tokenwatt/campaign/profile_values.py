"""Speed, memory and the audit as values for tests."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_tokenwatt.errors import GateFailed, NotMeasured
from pytest_tokenwatt.gates.finding import unusable
from pytest_tokenwatt.gates.speeds import memory_deltas, speed_deltas
from pytest_tokenwatt.records import ConfigRecord, Reason
from pytest_tokenwatt.spec.model import Spec
from pytest_tokenwatt.values import Audit, Memory, Speed

_UNASKED = "no profile was run: nothing that was selected needs it"


def memory_value(spec: Spec, record: ConfigRecord, baseline: ConfigRecord | None) -> Memory:
    """Memory at the peaks of the profiles; without a ``baseline`` by itself.

    Raises ``GateFailed`` when the configuration is invalid, ``NotMeasured`` when no profile was run.
    """
    _check_run(f"{record.key} memory", record)
    delta = memory_deltas(spec, [record], baseline).get(record.key) if baseline is not None else None
    return Memory(record.key, record.profiles, record.startup, delta)


def speed_value(spec: Spec, record: ConfigRecord, baseline: ConfigRecord, records: Sequence[ConfigRecord]) -> Speed:
    """Closed-loop throughput against the baseline's; ``records`` are all of the run.

    Raises ``GateFailed`` when it cannot be compared, ``NotMeasured`` when no profile was run.
    """
    if not spec.online_slo:
        _check_run(f"{record.key} speed", record)
    delta = speed_deltas(spec, records, baseline)[record.key]
    if delta.overall is None or delta.overall.value is None:
        raise _failed(f"{record.key} speed", delta.faults)
    return Speed(record.key, delta, record.profiles)


def audit_value(record: ConfigRecord) -> Audit:
    """The audit of the timed runs. Raises ``GateFailed`` when one is invalid, ``NotMeasured`` when there was none."""
    if record.invalid:
        raise _failed(f"{record.key} audit", record.invalid)
    if not record.audits:
        raise NotMeasured(f"{record.key} audit", "no timed run was audited: nothing that was selected needs it")
    faults = [reason for audit in record.audits.values() for reason in audit.invalid]
    if faults:
        raise _failed(f"{record.key} audit", faults)
    return Audit(record.key, record.audits)


def _check_run(what: str, record: ConfigRecord) -> None:
    if record.invalid:
        raise _failed(what, record.invalid)
    if not record.profiles:
        raise NotMeasured(what, _UNASKED)


def _failed(what: str, faults: Sequence[Reason]) -> GateFailed:
    verdict = unusable(faults).verdict
    return GateFailed(f"{what} is {verdict.value}: {'; '.join(map(str, faults))}", verdict)

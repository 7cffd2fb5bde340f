"""What an interrupted run had finished behind its phases, of measurements that are themselves kept from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pytest_tokenwatt.campaign.outputs import run_name
from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.metrics.audit import AUDITED
from pytest_tokenwatt.records import DEFAULT_SCENARIO, ConfigRecord
from pytest_tokenwatt.records.audit import AuditRecord
from pytest_tokenwatt.records.profiles import BudgetRun, ProfileRecord


def kept_budgets(record: ConfigRecord, session: Session) -> dict[str, BudgetRun]:
    """Reruns within a budget whose verdict is known, of profiles that are kept."""
    earlier = _earlier(record, session)
    found = {} if earlier is None else earlier.budgets
    return {
        name: run
        for name, run in found.items()
        if not run.invalid and run.healthy is not None and _keeps_profile(record, name, session)
    }


def kept_again(baseline: ConfigRecord, others: Iterable[ConfigRecord], session: Session) -> Mapping[str, ProfileRecord]:
    """Profiles of the baseline's second start: they bound the drift of what was all measured between the two."""
    earlier, records = _earlier(baseline, session), (baseline, *others)
    found = {} if earlier is None else earlier.again
    return {
        name: again
        for name, again in found.items()
        if not again.invalid and all(_keeps_profile(record, name, session) for record in records)
    }


def kept_audits(record: ConfigRecord, session: Session) -> dict[str, AuditRecord]:
    """Audits of timed runs that are kept."""
    earlier = _earlier(record, session)
    found = {} if earlier is None else earlier.audits
    return {run: audit for run, audit in found.items() if audit.status == AUDITED and _keeps_run(record, run, session)}


def earlier_minutes(record: ConfigRecord, name: str, session: Session) -> float:
    """What an interrupted run spent on ``name``; 0 where it did not."""
    earlier = _earlier(record, session)
    return 0.0 if earlier is None else earlier.minutes.get(name, 0.0)


def _earlier(record: ConfigRecord, session: Session) -> ConfigRecord | None:
    return (session.earlier or {}).get(record.key)


def _keeps_profile(record: ConfigRecord, name: str, session: Session) -> bool:
    earlier = _earlier(record, session)
    return earlier is not None and name in record.profiles and record.profiles[name] == earlier.profiles.get(name)


def _keeps_run(record: ConfigRecord, run: str, session: Session) -> bool:
    earlier = _earlier(record, session)
    for name, scenario in record.scenarios.items():
        if run == run_name(None if name == DEFAULT_SCENARIO else name):
            return earlier is not None and scenario == earlier.scenarios.get(name)
    return _keeps_profile(record, run, session)

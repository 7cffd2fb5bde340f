"""The audit of one or more configurations' timed outputs on a running engine of the baseline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import replace

from pytest_tokenwatt.campaign.kept_later import kept_audits
from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.engine.start import RunningEngine
from pytest_tokenwatt.errors import EngineError, LoadError
from pytest_tokenwatt.quality.audit import audit_run, unaudited
from pytest_tokenwatt.records import ConfigRecord, Reason
from pytest_tokenwatt.records.audit import AuditRecord, Served
from pytest_tokenwatt.store.journal import Event


def audited(record: ConfigRecord, engine: RunningEngine, session: Session) -> ConfigRecord:
    """The record with the audit of every timed run of it whose outputs were kept.

    What cannot be audited is in the record with its reason; an engine that dies costs the runs that are left. Audits
    that an interrupted run finished are kept.
    """
    known = kept_audits(record, session)
    audits = {
        run: known[run] if run in known else _one(record.key, run, served, engine, session)
        for run, served in _kept(record, session)
    }
    return replace(record, audits=audits)


def left_to_audit(record: ConfigRecord, session: Session) -> bool:
    """Whether an output waits for a baseline."""
    return not kept_audits(record, session).keys() >= session.outputs.of(record.key).keys()


def without_audit(record: ConfigRecord, session: Session, reason: Reason) -> ConfigRecord:
    """The record when nothing could be audited, for ``reason``."""
    audits = {run: unaudited(run, reason) for run, _ in _kept(record, session)}
    return replace(record, audits={**audits, **kept_audits(record, session)})


def _kept(record: ConfigRecord, session: Session) -> Iterable[tuple[str, tuple[Served, ...] | Reason]]:
    return session.outputs.of(record.key).items()


def _one(
    key: str, run: str, served: tuple[Served, ...] | Reason, engine: RunningEngine, session: Session
) -> AuditRecord:
    found = unaudited(run, served) if isinstance(served, Reason) else _rescored(key, run, served, engine, session)
    session.journal.write(
        Event.AUDIT_FINISHED, config=key, run=run, status=found.status, invalid=[str(each) for each in found.invalid]
    )
    session.say(f"{key} audit of {run}: {_told(found)}")
    return found


def _rescored(key: str, run: str, served: tuple[Served, ...], engine: RunningEngine, session: Session) -> AuditRecord:
    session.say(f"{key} audit of {run}: the baseline scores {len(served)} outputs and its own to the same prompts")
    try:
        session.deadline.check()
        return engine.call(_in_time(key, run, served, engine, session))
    except (EngineError, LoadError) as error:
        return unaudited(run, Reason(error.reason, str(error)))


async def _in_time(
    key: str, run: str, served: tuple[Served, ...], engine: RunningEngine, session: Session
) -> AuditRecord:
    deadline = session.deadline
    # A little later, so that whoever looks at the clock then agrees.
    left_s = None if deadline.at_s is None else max(0.0, deadline.at_s - time.monotonic()) + 0.01
    try:
        async with asyncio.timeout(left_s):
            return await audit_run(
                run,
                served,
                engine.client,
                max_model_len=engine.identity.max_model_len,
                extra_body=session.spec.configuration(key).engine.extra_body,
                death=engine.death,
            )
    except TimeoutError:
        deadline.check()
        raise


def _told(found: AuditRecord) -> str:
    if found.gap_median is None:
        return "; ".join(map(str, found.invalid)) or "no figure"
    return f"median gap {found.gap_median:.3g} nats a token ({found.samples} outputs)"

"""Drift on one running engine: the baseline is captured, candidates score the same token ids.

It comes behind everything timed: scoring fills the engine's caches and batches.
"""

from __future__ import annotations

import asyncio
import time

from pytest_tokenwatt.campaign.capture import capture_from, drift_file
from pytest_tokenwatt.campaign.drift_scoring import Scoring, unmeasured_drift
from pytest_tokenwatt.campaign.observe import Deadline
from pytest_tokenwatt.campaign.resume import differs, is_of, is_whole
from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.engine.start import RunningEngine
from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records import Reason, drift
from pytest_tokenwatt.spec.model import Configuration
from pytest_tokenwatt.store.journal import Event

__all__ = ["measure_drift", "unmeasured_drift"]


def measure_drift(configuration: Configuration, engine: RunningEngine, session: Session) -> drift.DriftRecord:
    """Capture the baseline, or score a candidate on what the baseline was captured on; keep what was scored already.

    Raises ``EngineError`` when the engine cannot be scored or dies of it, ``LoadError`` (``time_budget``) when the
    time budget runs out meanwhile, ``UsageError`` for prompts that cannot be read.
    """
    kept = _kept(configuration, engine, session)
    if kept is not None:
        session.say(f"{configuration.key} drift: kept from the interrupted run")
        return kept
    session.journal.write(Event.DRIFT_STARTED, config=configuration.key)
    scoring = Scoring(configuration, engine, session)
    record = engine.call(_in_time(scoring, session.deadline))
    session.journal.write(
        Event.DRIFT_FINISHED, config=configuration.key, invalid=[str(reason) for reason in _faults(record)]
    )
    session.say(f"{configuration.key} drift: {_told(record)}")
    return record


def _kept(configuration: Configuration, engine: RunningEngine, session: Session) -> drift.DriftRecord | None:
    """What an interrupted run scored on the same engine; a baseline's also becomes the capture of this one."""
    earlier = (session.earlier or {}).get(configuration.key)
    if earlier is None or earlier.drift is None or differs(earlier, engine) is not None:
        return None
    found = earlier.drift
    if configuration.role == "baseline" and is_whole(found):
        try:
            path = drift_file(session.run_dir.create(), configuration.key)
            session.captures.held = capture_from(path, configuration.key, found, engine.fingerprint or "")
        except UsageError as error:
            session.say(f"{configuration.key} drift: measured again: {error}")
    held = session.captures.held
    return found if held is not None and is_of(found, held) else None


async def _in_time(scoring: Scoring, deadline: Deadline) -> drift.DriftRecord:
    """Score until the time budget is used up."""
    # A little later, so that whoever looks at the clock then agrees.
    left_s = None if deadline.at_s is None else max(0.0, deadline.at_s - time.monotonic()) + 0.01
    try:
        async with asyncio.timeout(left_s):
            return await (scoring.capture() if scoring.configuration.role == "baseline" else scoring.compare())
    except TimeoutError:
        deadline.check()
        raise


def _faults(record: drift.DriftRecord) -> tuple[Reason, ...]:
    """What is wrong with the scoring and with the divergence."""
    return (*record.invalid, *(record.against.invalid if record.against else ()))


def _told(record: drift.DriftRecord) -> str:
    faults = _faults(record)
    if faults:
        return "; ".join(map(str, faults))
    found = record.against or record.control
    name = "control" if record.against is None else "KL"
    size = f"{record.sequences} sequences, {record.tokens} tokens"
    if found is None or found.kl is None:
        return f"{size} scored"
    return f"{name} {found.kl:.3g} nats a token ({size})"

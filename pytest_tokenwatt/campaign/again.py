"""A': the baseline once more. Its profiles bound the machine's drift, and it scores what candidates were timed on."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_tokenwatt.campaign.audit import audited, left_to_audit, without_audit
from pytest_tokenwatt.campaign.extra import running
from pytest_tokenwatt.campaign.kept_later import earlier_minutes, kept_again, kept_audits
from pytest_tokenwatt.campaign.machine import look_at
from pytest_tokenwatt.campaign.profiles import Site, measure_profile, unmeasured_profile
from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.engine.start import RunningEngine
from pytest_tokenwatt.errors import EngineError, LoadError, UsageError
from pytest_tokenwatt.records import ConfigRecord, Reason
from pytest_tokenwatt.records.profiles import ProfileRecord
from pytest_tokenwatt.spec.model import Configuration, Profile
from pytest_tokenwatt.store.journal import Event

START = "again"


def measure_again(
    configuration: Configuration,
    baseline: ConfigRecord,
    candidates: Sequence[ConfigRecord],
    session: Session,
    *,
    profiles: bool,
    others: Sequence[ConfigRecord] = (),
) -> list[ConfigRecord]:
    """Start the baseline again: the records of it and of the candidates with what that gave.

    ``profiles`` says whether they are repeated, ``others`` are all records that they bound. A start that fails is a
    reason in every figure that it costs. What an interrupted run had finished is kept, and nothing is started where
    nothing is left to do.
    """
    wanted = _repeated(baseline, session) if profiles else {}
    kept = {name: each for name, each in kept_again(baseline, others, session).items() if name in wanted}
    minutes = {**baseline.minutes, START: earlier_minutes(baseline, START, session)}
    if wanted.keys() == kept.keys() and not any(left_to_audit(each, session) for each in candidates):
        if kept:
            session.say(f"{configuration.key} again (phase A'): kept from the interrupted run")
        scored = [replace(each, audits=kept_audits(each, session)) for each in candidates]
        return [replace(baseline, again=kept, minutes=minutes), *scored]
    began_s = time.monotonic()
    session.journal.write(Event.PHASE_STARTED, config=configuration.key, start=START)
    session.say(f"{configuration.key} is started again (phase A')")
    wanted = {name: profile for name, profile in wanted.items() if name not in kept}
    try:
        with running(configuration, session) as engine:
            again = _profiles(wanted, configuration, engine, baseline, session)
            scored = [audited(each, engine, session) for each in candidates]
    except (EngineError, LoadError) as error:
        reason = Reason(error.reason, str(error))
        session.say(f"{configuration.key} again: {reason}")
        again = {name: unmeasured_profile(name, profile, reason) for name, profile in wanted.items()}
        scored = [without_audit(each, session, reason) for each in candidates]
    session.journal.write(Event.PHASE_FINISHED, config=configuration.key, start=START)
    minutes[START] += (time.monotonic() - began_s) / 60.0
    return [replace(baseline, again={**kept, **again}, minutes=minutes), *scored]


def _repeated(baseline: ConfigRecord, session: Session) -> dict[str, Profile]:
    """Those that the baseline was measured with on its own engine as it is."""
    asked = session.spec.profiles
    return {name: asked[name] for name in baseline.profiles if name in asked and asked[name].kv_gib is None}


def _profiles(
    wanted: Mapping[str, Profile],
    configuration: Configuration,
    engine: RunningEngine,
    baseline: ConfigRecord,
    session: Session,
) -> dict[str, ProfileRecord]:
    machine = look_at(configuration, engine, session).on(baseline.gpus)
    site = Site(configuration, engine, machine, START)
    found: dict[str, ProfileRecord] = {}
    for name, profile in wanted.items():
        try:
            found[name] = measure_profile(name, profile, site, session, cold=not found)
        except UsageError as error:
            found[name] = unmeasured_profile(name, profile, Reason("workload_unusable", str(error)))
    return found

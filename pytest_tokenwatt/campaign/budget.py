"""Profiles on engines whose KV cache is cut to a size: the rerun within a budget, and profiles that ask for a cap."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

from pytest_tokenwatt.campaign.extra import running
from pytest_tokenwatt.campaign.machine import look_at
from pytest_tokenwatt.campaign.profiles import CAPPED, Site, measure_profile, unmeasured_profile
from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.errors import EngineError, LoadError, UsageError
from pytest_tokenwatt.metrics.budget import budget_run, plan_budget
from pytest_tokenwatt.records import ConfigRecord, Reason
from pytest_tokenwatt.records.profiles import BudgetRun, ProfileRecord
from pytest_tokenwatt.spec.model import Configuration, Profile
from pytest_tokenwatt.store.journal import Event

_GIB = 2**30
_CPU_POOL = "VLLM_CPU_KVCACHE_SPACE"


def measure_budgets(configuration: Configuration, record: ConfigRecord, session: Session) -> ConfigRecord:
    """The record with every profile of it run again within its budget, each on an engine start of its own."""
    settings = session.spec.budget
    if settings is None:
        return record
    began_s = time.monotonic()
    budgets = dict(_budgets(configuration, record, session, settings.factor))
    return replace(record, budgets=budgets, minutes=_with_minutes(record, "budget", began_s))


def measure_capped(configuration: Configuration, record: ConfigRecord, session: Session) -> ConfigRecord:
    """The record with the profiles that ask for a KV cache of their own, each on an engine start of its own."""
    began_s = time.monotonic()
    capped = {name: each for name, each in session.spec.profiles.items() if each.kv_gib is not None}
    found = {
        name: _with_pool(name, profile, profile.kv_gib or 0.0, configuration, record, session, CAPPED)
        for name, profile in capped.items()
    }
    profiles = {**record.profiles, **found}
    return replace(record, profiles=profiles, minutes=_with_minutes(record, CAPPED, began_s))


def _with_minutes(record: ConfigRecord, name: str, began_s: float) -> dict[str, float]:
    return {**record.minutes, name: (time.monotonic() - began_s) / 60.0}


def needs_starts(profiles: Mapping[str, Profile]) -> bool:
    """Whether a profile asks for an engine start of its own."""
    return any(profile.kv_gib is not None for profile in profiles.values())


def _budgets(
    configuration: Configuration, record: ConfigRecord, session: Session, factor: float
) -> Iterator[tuple[str, BudgetRun]]:
    for name, full in record.profiles.items():
        profile = session.spec.profiles[name]
        if profile.kv_gib is None:
            found = _budget(name, profile, full, factor, configuration, record, session)
            told = "; ".join(map(str, found.invalid)) or ("healthy" if found.healthy else "not healthy")
            session.journal.write(Event.BUDGET_FINISHED, config=record.key, profile=name, healthy=found.healthy)
            session.say(f"{record.key} budget of {name}: {told}")
            yield name, found


def _budget(
    name: str,
    profile: Profile,
    full: ProfileRecord,
    factor: float,
    configuration: Configuration,
    record: ConfigRecord,
    session: Session,
) -> BudgetRun:
    budget = plan_budget(full.memory, factor)
    if budget.kv_gib is None:
        return budget_run(budget, full, None)
    once = profile.model_copy(update={"repeats": 1})
    cut = _with_pool(name, once, budget.kv_gib, configuration, record, session, "budget")
    if not cut.runs:
        return replace(budget_run(budget, full, None), invalid=cut.invalid)
    return budget_run(budget, full, cut.runs[0])


def _with_pool(
    name: str,
    profile: Profile,
    pool_gib: float,
    configuration: Configuration,
    record: ConfigRecord,
    session: Session,
    start: str,
) -> ProfileRecord:
    """The profile on an engine with a KV cache of ``pool_gib``; a start that fails is the reason of the record."""
    smaller = _smaller(configuration, profile, pool_gib)
    if isinstance(smaller, Reason):
        return unmeasured_profile(name, profile, smaller)
    session.say(f"{record.key} is started with a KV cache of {pool_gib:.4g} GiB for {name}")
    try:
        with running(smaller, session) as engine:
            machine = look_at(smaller, engine, session).on(record.gpus)
            return measure_profile(name, profile, Site(smaller, engine, machine, start), session, cold=True)
    except (EngineError, LoadError) as error:
        return unmeasured_profile(name, profile, Reason(error.reason, str(error)))
    except UsageError as error:
        return unmeasured_profile(name, profile, Reason("workload_unusable", str(error)))


def _smaller(configuration: Configuration, profile: Profile, pool_gib: float) -> Configuration | Reason:
    """The configuration with its pool cut by the engine's own flag."""
    engine = configuration.engine
    if engine.method != "command":
        text = f"{configuration.key} is not started by engine.command, so that its KV cache cannot be cut"
        return Reason("not_started_here", text)
    longest, pool = profile.input_tokens + profile.output_tokens, int(pool_gib * _GIB)
    args = (*engine.args, "--max-model-len", str(longest), "--kv-cache-memory-bytes", str(pool))
    # The CPU build's own variable would win over the flag, and knows whole GiB only.
    env = {**engine.env, _CPU_POOL: None}
    return configuration.model_copy(update={"engine": engine.model_copy(update={"args": args, "env": env})})

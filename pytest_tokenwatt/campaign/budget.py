"""Profiles on engines whose KV cache is cut to a size: the rerun within a budget, and profiles that ask for a cap."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

from pytest_tokenwatt.campaign.extra import running
from pytest_tokenwatt.campaign.kept_later import earlier_minutes, kept_budgets
from pytest_tokenwatt.campaign.machine import look_at
from pytest_tokenwatt.campaign.profiles import CAPPED, Site, measure_profile, unmeasured_profile
from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.errors import EngineError, LoadError, UsageError
from pytest_tokenwatt.metrics.budget import budget_run, plan_budget
from pytest_tokenwatt.records import ConfigRecord, Reason
from pytest_tokenwatt.records.profiles import BudgetRun, ProfileRecord, Startup
from pytest_tokenwatt.spec.model import Budget, Configuration, Profile
from pytest_tokenwatt.store.journal import Event

_GIB = 2**30
_CPU_POOL = "VLLM_CPU_KVCACHE_SPACE"
_LEAST_CONTEXT = 128
"""Tokens that the contract's own requests take, where a profile needs fewer."""
_PROFILED = ("activation_gib", "non_torch_gib")
_POOL_TOLERANCE = 0.01
_LOGGED_DIGITS_GIB = 0.005
"""Half of the last digit of a pool that only the log tells, of each worker."""


def measure_budgets(
    configuration: Configuration, record: ConfigRecord, session: Session, drifts: Mapping[str, float]
) -> Iterator[ConfigRecord]:
    """The record with one profile more run again within its budget, each on an engine start of its own.

    ``drifts`` are by profile |A′ − A| / A of the baseline's rate, where it was measured twice. Reruns that an
    interrupted run finished are kept.
    """
    began_s = time.monotonic()
    for name, found in _budgets(configuration, record, session, drifts):
        record = replace(record, budgets={**record.budgets, name: found})
        spent = (time.monotonic() - began_s) / 60.0
        yield replace(record, minutes={**record.minutes, "budget": earlier_minutes(record, "budget", session) + spent})


def measure_capped(configuration: Configuration, record: ConfigRecord, session: Session) -> ConfigRecord:
    """The record with the profiles that ask for a KV cache of their own, each on an engine start of its own."""
    began_s = time.monotonic()
    capped = {name: each for name, each in session.spec.profiles.items() if each.kv_gib is not None}
    found = {
        name: _with_pool(name, profile, profile.kv_gib or 0.0, configuration, record, session, CAPPED)
        for name, profile in capped.items()
    }
    profiles = {**record.profiles, **found}
    minutes = {**record.minutes, CAPPED: (time.monotonic() - began_s) / 60.0}
    return replace(record, profiles=profiles, minutes=minutes)


def needs_starts(profiles: Mapping[str, Profile]) -> bool:
    """Whether a profile asks for an engine start of its own."""
    return any(profile.kv_gib is not None for profile in profiles.values())


def _budgets(
    configuration: Configuration, record: ConfigRecord, session: Session, drifts: Mapping[str, float]
) -> Iterator[tuple[str, BudgetRun]]:
    kept = kept_budgets(record, session)
    for name, full in record.profiles.items():
        if name in kept:
            session.say(f"{record.key} budget of {name}: kept from the interrupted run")
            yield name, kept[name]
        elif session.spec.profiles[name].kv_gib is None:
            found = _budget(full, configuration, record, session, drifts.get(name))
            session.journal.write(Event.BUDGET_FINISHED, config=record.key, profile=name, healthy=found.healthy)
            session.say(f"{record.key} budget of {name}: {_told(found)}")
            yield name, found


def _told(found: BudgetRun) -> str:
    if found.invalid:
        return "; ".join(map(str, found.invalid))
    if found.healthy is None:
        return f"not known whether healthy ({'; '.join(found.notes)})"
    return "healthy" if found.healthy else f"not healthy ({'; '.join(found.notes)})"


def _budget(
    full: ProfileRecord, configuration: Configuration, record: ConfigRecord, session: Session, drift: float | None
) -> BudgetRun:
    settings = session.spec.budget or Budget()
    budget = plan_budget(full.memory, settings.factor)
    if full.invalid:
        return replace(budget_run(budget, full, None), invalid=full.invalid)
    if budget.kv_gib is None:
        return budget_run(budget, full, None)
    once = session.spec.profiles[full.name].model_copy(update={"repeats": 1})
    cut = _with_pool(full.name, once, budget.kv_gib, configuration, record, session, "budget")
    if not cut.runs:
        return replace(budget_run(budget, full, None), invalid=cut.invalid)
    return budget_run(budget, full, cut.runs[0], drift=drift)


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
    smaller = _smaller(configuration, profile, pool_gib, record)
    if isinstance(smaller, Reason):
        return unmeasured_profile(name, profile, smaller)
    session.say(f"{record.key} is started with a KV cache of {pool_gib:.4g} GiB for {name}")
    try:
        with running(smaller, session) as engine:
            machine = look_at(smaller, engine, session).on(record.gpus)
            uncut = _uncut(machine.startup, pool_gib, _workers(smaller))
            if uncut is not None:
                return unmeasured_profile(name, profile, uncut)
            known, taken = _with_profiled(machine.startup, record.startup)
            site = Site(smaller, engine, replace(machine, startup=known), start)
            found = measure_profile(name, profile, site, session, cold=True)
            return replace(found, notes=(*found.notes, *taken))
    except (EngineError, LoadError) as error:
        return unmeasured_profile(name, profile, Reason(error.reason, str(error)))
    except UsageError as error:
        return unmeasured_profile(name, profile, Reason("workload_unusable", str(error)))


def _smaller(
    configuration: Configuration, profile: Profile, pool_gib: float, record: ConfigRecord
) -> Configuration | Reason:
    """The configuration with its pool cut by the engine's own flag, which is of one worker's part."""
    engine = configuration.engine
    if engine.method != "command":
        text = f"{configuration.key} is not started by engine.command, so that its KV cache cannot be cut"
        return Reason("not_started_here", text)
    longest, pool = _longest(profile, record), int(pool_gib / _workers(configuration) * _GIB)
    args = (*engine.args, "--max-model-len", str(longest), "--kv-cache-memory-bytes", str(pool))
    # The CPU build's own variable would win over the flag, and knows whole GiB only.
    env = {**engine.env, _CPU_POOL: None}
    return configuration.model_copy(update={"engine": engine.model_copy(update={"args": args, "env": env})})


def _with_profiled(capped: Startup, own: Startup | None) -> tuple[Startup, tuple[str, ...]]:
    """The start-up with what vLLM does not measure when the pool is given, from the configuration's own start.

    It does not depend on the pool. Then also a note that says so.
    """
    asked = [name for name in _PROFILED if getattr(capped, name) is None]
    taken = {name: value for name in asked if own is not None and (value := getattr(own, name)) is not None}
    if not taken:
        return capped, ()
    missing = {name: why for name, why in capped.missing.items() if name not in taken}
    return replace(capped, **taken, missing=missing), (f"{', '.join(taken)}: as in the start without a given KV cache",)


def _workers(configuration: Configuration) -> int:
    """Workers that share the pool: each has its part."""
    model = configuration.model
    return model.tensor_parallel * model.pipeline_parallel * model.data_parallel


def _longest(profile: Profile, record: ConfigRecord) -> int:
    """The context length that the profile needs, and the contract before it; no longer than the engine's own."""
    needed = profile.input_tokens + profile.output_tokens
    own = record.identity.max_model_len if record.identity is not None else None
    return max(needed, _LEAST_CONTEXT if own is None else min(_LEAST_CONTEXT, own))


def _uncut(startup: Startup, pool_gib: float, workers: int) -> Reason | None:
    """Why nothing that such an engine does is of a KV cache of ``pool_gib``; ``None`` when it has no larger one."""
    found = startup.kv_cache_gib
    if found is None:
        why = startup.missing.get("kv_cache_gib", "the start-up log does not tell it")
        return Reason("pool_unknown", f"it cannot be seen whether the KV cache was cut: {why}")
    if found <= pool_gib * (1.0 + _POOL_TOLERANCE) + _LOGGED_DIGITS_GIB * workers:
        return None
    text = f"the engine has a KV cache of {found:.4g} GiB, and {pool_gib:.4g} was asked for"
    return Reason("pool_not_cut", f"{text} by --kv-cache-memory-bytes; let the command pass on arguments behind it")

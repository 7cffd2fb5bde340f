"""What a run will do before it does it: phases, commands, minutes, and what each gate will be able to tell."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_tokenwatt.campaign import drift_plan, power, profiles_plan, suites
from pytest_tokenwatt.campaign.after import Aftermath
from pytest_tokenwatt.campaign.kinds import ACCURACY, AUDIT, DRIFT, GOODPUT, PROFILES, TIMED
from pytest_tokenwatt.campaign.order import phase_name
from pytest_tokenwatt.metrics.estimate import estimate_s, resolution_pct
from pytest_tokenwatt.metrics.search import MAX_LENGTHENING
from pytest_tokenwatt.records import GateSpec
from pytest_tokenwatt.report.plan_text import PhaseView, PlanView
from pytest_tokenwatt.spec.model import Configuration, Profile, Scenario, Spec

START_S = 60.0
"""Assumed for an engine start: nothing says beforehand how long a model loads."""


def plan_view(
    title: str,
    configurations: Sequence[Configuration],
    gates: Sequence[GateSpec],
    problems: Sequence[str],
    max_minutes: float | None,
    work: Work,
) -> PlanView:
    """The plan of the given configurations, in this order, and of the engine starts behind them."""
    phases = [_phase(configuration, work) for configuration in configurations]
    return PlanView(
        title=title,
        phases=(*phases, *_later_phases(configurations, work)),
        resolution=tuple(_resolution(configurations, gates, work.tells)),
        problems=tuple(problems),
        max_minutes=max_minutes,
    )


@dataclass(frozen=True, slots=True)
class Work:
    """What is going to be measured: the spec's suites with what each can tell, and which kinds of measurements."""

    spec: Spec
    kinds: frozenset[str]
    tells: Mapping[str | None, str] = field(default_factory=dict)


def minutes(configuration: Configuration, work: Work) -> float:
    """Estimated minutes of one configuration's phase, its engine start included."""
    seconds = 0.0 if configuration.engine.method == "attach" else START_S
    if GOODPUT in work.kinds:
        seconds += power.estimated_s(configuration)
        seconds += sum(_scenario_s(configuration, scenario) for scenario in configuration.scenarios)
    if ACCURACY in work.kinds:
        seconds += suites.estimated_s(work.spec, control=configuration.role == "baseline")
    if DRIFT in work.kinds and work.spec.drift is not None:
        seconds += drift_plan.estimated_s(work.spec.drift, baseline=configuration.role == "baseline")
    seconds += sum(profiles_plan.estimated_s(each) for each in _own_profiles(work).values())
    return seconds / 60.0


def later_minutes(configurations: Sequence[Configuration], work: Work) -> float:
    """Estimated minutes of the engine starts behind all phases."""
    return sum(phase.minutes for phase in _later_phases(configurations, work))


def _own_profiles(work: Work) -> dict[str, Profile]:
    """Profiles that the engine of a configuration's own phase is measured with."""
    profiles = work.spec.profiles if PROFILES in work.kinds else {}
    return {name: profile for name, profile in profiles.items() if profile.kv_gib is None}


def _later_phases(configurations: Sequence[Configuration], work: Work) -> Iterator[PhaseView]:
    """Engines with a KV cache of a given size, the baseline again, and candidates within their budget."""
    after = Aftermath(work.spec, work.kinds, tuple(each.key for each in configurations))
    for configuration in configurations:
        if after.capped:
            capped = {name: each for name, each in work.spec.profiles.items() if each.kv_gib is not None}
            for name, profile in capped.items():
                yield _cut_phase("capped", configuration, name, profile)
    base = work.spec.baseline
    if after.second_start and base is not None:
        yield _again_phase(base, len(after.scored_later()), work)
    for configuration in configurations:
        if after.budgets and configuration.role != "baseline":
            for name, profile in _own_profiles(work).items():
                yield _cut_phase("budget", configuration, name, profile.model_copy(update={"repeats": 1}))


def _cut_phase(kind: str, configuration: Configuration, name: str, profile: Profile) -> PhaseView:
    seconds = START_S + profiles_plan.estimated_s(profile)
    measured = tuple(profiles_plan.described({name: profile}))
    return _extra(kind, configuration, "with a cut KV cache", measured, seconds)


def _again_phase(base: Configuration, candidates: int, work: Work) -> PhaseView:
    profiles, audit = _own_profiles(work), work.spec.audit if AUDIT in work.kinds else None
    seconds = START_S + sum(profiles_plan.estimated_s(each) for each in profiles.values())
    measured = list(profiles_plan.described(profiles))
    if audit is not None:
        seconds += candidates * profiles_plan.audit_s(audit, work.spec)
        measured.append(f"audit: {audit.picked} outputs of every timed run of {candidates} configurations")
    return _extra("A'", base, "once more", tuple(measured), seconds)


def _extra(name: str, configuration: Configuration, how: str, measured: tuple[str, ...], seconds: float) -> PhaseView:
    return PhaseView(
        name=name,
        config=configuration.key,
        start=f"started {how} (start assumed to take {START_S / 60.0:g} min)",
        commands=(),
        measurements=("contract", *measured),
        minutes=seconds / 60.0,
    )


def _scenario_s(configuration: Configuration, scenario: Scenario) -> float:
    if not scenario.bounds:
        return 0.0
    return estimate_s(scenario.sweep, scenario.measurement, configuration.gates.slo.at_rps, bounds=scenario.bounds)


def _phase(configuration: Configuration, work: Work) -> PhaseView:
    engine = configuration.engine
    start = (
        "started by command" if engine.command else "started by up" if engine.up else f"attached at {engine.endpoint}"
    )
    if engine.command or engine.up:
        start += f" (start assumed to take {START_S / 60.0:g} min)"
    return PhaseView(
        name=phase_name(configuration),
        config=configuration.key,
        start=start,
        commands=tuple(_commands(configuration.raw.get("engine") or {})),
        measurements=("contract", *_measurements(configuration, work)),
        minutes=minutes(configuration, work),
    )


def _commands(engine: dict[str, Any]) -> Iterator[str]:
    """The commands as the spec writes them, variables unexpanded: a plan is shown in public logs, too."""
    for key in ("prepare", "up", "command", "down", "cleanup"):
        listed = engine.get(key) or []
        several = listed if listed and isinstance(listed[0], list) else [listed] if listed else []
        for words in several:
            extra = engine.get("args") or [] if key == "command" else []
            yield shlex.join(map(str, [*words, *extra]))


def _sensing(configuration: Configuration) -> Iterator[str]:
    sources = [f"{each.source} at {each.sampling_hz:g} Hz" for each in configuration.power if each.source != "none"]
    if sources:
        yield f"power by {', '.join(sources)}; idle power for {power.estimated_s(configuration):g} s"


def _measurements(configuration: Configuration, work: Work) -> Iterator[str]:
    if work.kinds & TIMED:
        yield from _sensing(configuration)
    if GOODPUT in work.kinds:
        yield from (_measurement(configuration, scenario) for scenario in configuration.scenarios)
    yield from profiles_plan.described(_own_profiles(work))
    if ACCURACY in work.kinds:
        yield from suites.described(work.spec, control=configuration.role == "baseline")
    if DRIFT in work.kinds and work.spec.drift is not None:
        yield from drift_plan.described(work.spec.drift, baseline=configuration.role == "baseline")


def _measurement(configuration: Configuration, scenario: Scenario) -> str:
    sweep, measurement = scenario.sweep, scenario.measurement
    slo = ", ".join(f"{bound.name} <= {bound.bound_ms:g}" for bound in scenario.bounds) or "no SLO: nothing is measured"
    repeats = f"{measurement.repeats} x {measurement.window_s:g} s"
    at_rps = configuration.gates.slo.at_rps
    rates = sweep.rates or ((at_rps,) if at_rps else None)
    if rates:
        how = f"fixed at {', '.join(f'{rate:g}' for rate in rates)} req/s, {repeats} each"
    else:
        how = (
            f"search from {sweep.start_rps:g} req/s, x{sweep.growth:g}, probes of {measurement.search_window_s:g} s, "
            f"then {repeats}"
        )
    return f"goodput of {scenario.name}: {how}; {slo}"


def _resolution(
    configurations: Sequence[Configuration], gates: Sequence[GateSpec], loaded: Mapping[str | None, str]
) -> Iterator[str]:
    by_key = {configuration.key: configuration for configuration in configurations}
    for gate in gates:
        configuration = by_key.get(gate.config)
        if configuration is None:
            continue
        if gate.kind == "accuracy" and gate.param in loaded:
            yield f"{gate.config} {gate.gate}: {loaded[gate.param]}"
        elif gate.kind in ("slo", "goodput"):
            scenario = configuration.scenario(gate.scenario or configuration.scenarios[0].name)
            yield f"{gate.config} {gate.gate}: {_tells(gate.kind, configuration, scenario)}"


def _tells(kind: str, configuration: Configuration, scenario: Scenario) -> str:
    if kind == "slo":
        needed_rps = scenario.requests_needed / (MAX_LENGTHENING * scenario.measurement.window_s)
        return f"valid from {needed_rps:.3g} req/s on (a window must hold {scenario.requests_needed} requests)"
    if scenario.sweep.rates or configuration.gates.slo.at_rps:
        return "fixed rates: tells apart what the repeats' spread allows"
    return f"cannot tell changes below about {resolution_pct(scenario.sweep):.1f} % (bracket of the search)"

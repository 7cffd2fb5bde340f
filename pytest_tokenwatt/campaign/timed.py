"""The timed measurements of one engine start: goodput of every scenario, then the closed-loop profiles."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pytest_tokenwatt.campaign.extra import running
from pytest_tokenwatt.campaign.kinds import GOODPUT, PROFILES
from pytest_tokenwatt.campaign.ledger import Ledger
from pytest_tokenwatt.campaign.machine import Machine, look_at
from pytest_tokenwatt.campaign.order import partner_of
from pytest_tokenwatt.campaign.outputs import file_name, recall, run_name
from pytest_tokenwatt.campaign.profiles import Site, measure_profile, unmeasured_profile
from pytest_tokenwatt.campaign.resume import kept_profiles, kept_scenarios
from pytest_tokenwatt.campaign.scenario import measure_scenario, unmeasured
from pytest_tokenwatt.campaign.senses import Senses
from pytest_tokenwatt.engine.start import RunningEngine
from pytest_tokenwatt.errors import EngineError, LoadError, UsageError
from pytest_tokenwatt.records import DEFAULT_SCENARIO, ConfigRecord, GoodputRecord, Reason
from pytest_tokenwatt.records.profiles import ProfileRecord
from pytest_tokenwatt.spec.model import Configuration, Profile, Scenario, Spec


class TimedWork:
    """Everything timed on one running engine; what an interrupted run (``earlier``) measured to its end is kept."""

    def __init__(
        self, ledger: Ledger, engine: RunningEngine, kinds: frozenset[str], earlier: ConfigRecord | None
    ) -> None:
        self._ledger = ledger
        self._session = ledger.session
        self._configuration = ledger.configuration
        self._engine = engine
        self._earlier = earlier
        self._promised = promised(ledger.configuration, kinds)
        self._profiles = own_profiles(ledger.session.spec, kinds)

    def measure(self, machine: Machine) -> Machine:
        """Measure; the machine with the accelerators that were found under test."""
        if not self._promised and not self._profiles:
            return machine
        senses = Senses(self._configuration, self._engine, self._session)
        untouched = None
        try:
            senses.identify()
            machine = machine.on(senses.gpus)
            self._ledger.note(precision=machine.precision)
            self._ledger.note(scenarios=self._kept_scenarios(machine), profiles=self._kept_profiles(machine))
            record = self._ledger.record
            scenarios = [each for each in self._promised if each.name not in record.scenarios]
            profiles = {name: each for name, each in self._profiles.items() if name not in record.profiles}
            untouched = None if scenarios or profiles else self._earlier
            if scenarios:
                senses.start()
            for scenario in scenarios:
                self._measure_scenario(scenario, senses)
            self._measure_profiles(profiles, machine)
        finally:
            self._ledger.take(senses.finish(self._ledger.record, untouched))
        return machine

    # --- what is kept

    def _kept_scenarios(self, machine: Machine) -> dict[str, GoodputRecord]:
        if self._earlier is None:
            return {}
        digest = self._session.spec.digest
        digests = {each.name: digest(self._configuration, each) for each in self._configuration.scenarios}
        kept = {each.scenario: each for each in kept_scenarios(self._earlier, machine.gpus, digests)}
        for name in kept:
            run = run_name(None if name == DEFAULT_SCENARIO else name)
            self._keep(f"goodput of {name}", run, name, self._earlier)
        return kept

    def _kept_profiles(self, machine: Machine) -> dict[str, ProfileRecord]:
        if self._earlier is None:
            return {}
        digest = self._session.spec.profile_digest
        digests = {name: digest(self._configuration, each) for name, each in self._profiles.items()}
        kept = {each.name: each for each in kept_profiles(self._earlier, machine.gpus, digests)}
        for name in kept:
            self._keep(f"profile {name}", name, name, self._earlier)
        return kept

    def _keep(self, what: str, run: str, name: str, earlier: ConfigRecord) -> None:
        session, key = self._session, self._configuration.key
        session.say(f"{key}: {what} is kept from the interrupted run")
        if session.outputs.picked:
            recall(session.outputs, session.run_dir.file(file_name(key, run)), key, run)
        self._ledger.took_earlier(earlier, name)

    # --- what is measured

    def _measure_scenario(self, scenario: Scenario, senses: Senses) -> None:
        began_s = time.monotonic()
        record = self._measured(scenario, senses)
        self._ledger.note(scenarios={**self._ledger.record.scenarios, scenario.name: record})
        self._ledger.took(scenario.name, began_s)
        self._ledger.store()

    def _measured(self, scenario: Scenario, senses: Senses) -> GoodputRecord:
        try:
            return measure_scenario(self._configuration, scenario, self._engine, self._session, senses)
        except (LoadError, EngineError) as error:
            reason = Reason(error.reason, str(error))
        except UsageError as error:
            reason = Reason("workload_unusable", str(error))
        self._session.say(f"{self._configuration.key}: {reason}")
        return unmeasured(scenario, reason)

    def _measure_profiles(self, profiles: Mapping[str, Profile], machine: Machine) -> None:
        if not profiles:
            return
        site = Site(self._configuration, self._engine, machine)
        cold = not self._ledger.record.scenarios
        with self._partner(machine) as partner:
            for name, profile in profiles.items():
                self._measure_profile(name, profile, site, partner, cold=cold)
                cold = False

    def _measure_profile(self, name: str, profile: Profile, site: Site, partner: Site | None, *, cold: bool) -> None:
        began_s = time.monotonic()
        try:
            record = measure_profile(name, profile, site, self._session, beside=partner, cold=cold)
        except (LoadError, EngineError) as error:
            record = unmeasured_profile(name, profile, Reason(error.reason, str(error)))
        except UsageError as error:
            record = unmeasured_profile(name, profile, Reason("workload_unusable", str(error)))
        self._ledger.note(profiles={**self._ledger.record.profiles, name: record})
        self._ledger.took(name, began_s)
        self._ledger.store()

    @contextmanager
    def _partner(self, machine: Machine) -> Iterator[Site | None]:
        """The baseline's engine, where it is up beside this one."""
        baseline = partner_of(self._configuration, self._session.spec)
        if baseline is None:
            yield None
            return
        with running(baseline, self._session) as engine:
            yield Site(baseline, engine, look_at(baseline, engine, self._session).on(machine.gpus))


def promised(configuration: Configuration, kinds: frozenset[str]) -> list[Scenario]:
    """The scenarios whose goodput is measured."""
    return [each for each in configuration.scenarios if each.bounds] if GOODPUT in kinds else []


def own_profiles(spec: Spec, kinds: frozenset[str]) -> dict[str, Profile]:
    """The profiles that a configuration's engine is measured with as it is; others have a start of their own."""
    profiles = spec.profiles if PROFILES in kinds else {}
    return {name: profile for name, profile in profiles.items() if profile.kv_gib is None}


def unmeasured_timed(
    record: ConfigRecord, spec: Spec, kinds: frozenset[str], configuration: Configuration, reason: Reason
) -> dict[str, Any]:
    """The record's scenarios and profiles with ``reason`` for each that is not there."""
    scenarios = {each.name: unmeasured(each, reason) for each in promised(configuration, kinds)}
    profiles = {name: unmeasured_profile(name, each, reason) for name, each in own_profiles(spec, kinds).items()}
    return {"scenarios": {**scenarios, **record.scenarios}, "profiles": {**profiles, **record.profiles}}

"""One configuration's phase: start the engine, check it, measure every scenario, stop it, keep the record."""

from __future__ import annotations

import time
from dataclasses import replace

from pytest_tokenwatt.campaign.accuracy import measure_suite
from pytest_tokenwatt.campaign.drift import measure_drift, unmeasured_drift
from pytest_tokenwatt.campaign.resume import differs, kept_scenarios, kept_suites
from pytest_tokenwatt.campaign.scenario import measure_scenario, unmeasured
from pytest_tokenwatt.campaign.senses import Senses
from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.engine.start import EnginePlace, RunningEngine, start_engine
from pytest_tokenwatt.errors import EngineError, LoadError, TokenwattError, UsageError
from pytest_tokenwatt.quality.accuracy import unmeasured_suite
from pytest_tokenwatt.records import ConfigRecord, Contract, GoodputRecord, Reason, SuiteRecord
from pytest_tokenwatt.spec.model import Configuration, Scenario, Suite
from pytest_tokenwatt.store.journal import Event
from pytest_tokenwatt.store.records_json import write_record

GOODPUT, ACCURACY, DRIFT = "goodput", "accuracy", "drift"
EVERYTHING = frozenset({GOODPUT, ACCURACY, DRIFT})
"""What can be measured of a configuration, by ``GateSpec.needs``; its contract always is."""


class Phase:
    """The measurements of one configuration, taken during one engine start: timed ones first, then answers."""

    def __init__(self, configuration: Configuration, session: Session, kinds: frozenset[str] = EVERYTHING) -> None:
        """``kinds`` says what is to be measured: any of ``EVERYTHING``."""
        self.configuration = configuration
        self._kinds = kinds
        self.engine: RunningEngine | None = None
        self.record = replace(self.blank(configuration), spec=session.spec.raw)
        self._session = session

    @staticmethod
    def blank(configuration: Configuration) -> ConfigRecord:
        """A record without any measurement."""
        return ConfigRecord(
            key=configuration.key,
            role=configuration.role,
            label=configuration.label or configuration.key,
            like=configuration.like,
            identity=None,
            fingerprint=None,
            contract=None,
            scenarios={},
            invalid=(),
            not_covered=(),
            launch={},
            minutes={},
        )

    def measure(self) -> ConfigRecord:
        """Start the engine and take all measurements; failures end up in the record, which is stored in any case.

        The engine stays up until ``stop``. ``KeyboardInterrupt`` passes through once the record is stored.
        """
        key = self.configuration.key
        self._session.journal.write(Event.PHASE_STARTED, config=key)
        try:
            self._start()
            if self.engine is not None:
                self._measure(self.engine)
        except KeyboardInterrupt:
            self._interrupt()
            self.stop()
            raise
        finally:
            self._store()
        self._session.journal.write(Event.PHASE_FINISHED, config=key)
        return self.record

    def stop(self) -> None:
        """Stop the engine if it runs; safe to call again."""
        if self.engine is not None:
            limit_s = self.configuration.engine.stop_timeout_s
            self._session.say(f"{self.configuration.key}: stopping the engine (it has {limit_s:g} s)")
            self.engine.stop()
            self.engine = None

    def _start(self) -> None:
        began_s = time.monotonic()
        try:
            self._session.deadline.check()
            engine = start_engine(self.configuration, self._place())
        except (EngineError, LoadError) as error:
            self._mark(Reason(error.reason, str(error)))
            return
        self.engine = engine
        # Known from here on, also to the report of a run that is interrupted while the contract is checked.
        self.record = replace(
            self.record, identity=engine.identity, fingerprint=engine.fingerprint, launch=dict(engine.launch)
        )
        contract = engine.check_contract()
        self.record = replace(
            self.record,
            contract=contract,
            minutes={"start": (time.monotonic() - began_s) / 60.0},
            not_covered=(*engine.notes, *_costs(contract)),
        )
        self._session.journal.write(
            Event.ENGINE_READY, config=self.configuration.key, seconds=round(time.monotonic() - began_s, 3)
        )

    def _place(self) -> EnginePlace:
        session = self._session
        return EnginePlace(
            run_dir=session.run_dir.create(),
            run_id=session.run_id,
            spec_dir=session.spec.path.parent,
            environ=session.environ,
            progress=session.say,
        )

    def _measure(self, engine: RunningEngine) -> None:
        contract = self.record.contract
        if contract is not None and not contract.passed:
            self._mark(Reason("contract_failed", _broken(contract)))
            return
        earlier = self._earlier(engine)
        if GOODPUT in self._kinds:
            self._measure_scenarios(engine, earlier)
        if ACCURACY in self._kinds:
            self._measure_suites(engine, earlier)
        if DRIFT in self._kinds and self._session.spec.drift is not None:
            self._measure_drift(engine)

    def _earlier(self, engine: RunningEngine) -> ConfigRecord | None:
        """What an interrupted run knows of the same engine."""
        earlier = (self._session.earlier or {}).get(self.configuration.key)
        if earlier is None:
            return None
        why = differs(earlier, engine)
        if why is not None:
            self._session.say(f"{self.configuration.key}: the interrupted run does not count: {why}")
        return earlier if why is None else None

    def _measure_scenarios(self, engine: RunningEngine, earlier: ConfigRecord | None) -> None:
        promised = [scenario for scenario in self.configuration.scenarios if scenario.bounds]
        if not promised:
            return
        senses = Senses(self.configuration, engine, self._session)
        untouched = None
        try:
            senses.identify()
            kept = self._kept_scenarios(earlier, senses)
            self.record = replace(self.record, scenarios=kept)
            left = [scenario for scenario in promised if scenario.name not in kept]
            untouched = None if left else earlier
            if left:
                senses.start()
            for scenario in left:
                self._measure_scenario(engine, scenario, senses)
        finally:
            self.record = senses.finish(self.record, untouched)

    def _kept_scenarios(self, earlier: ConfigRecord | None, senses: Senses) -> dict[str, GoodputRecord]:
        if earlier is None:
            return {}
        digests = {each.name: self._digest(each) for each in self.configuration.scenarios}
        kept = {each.scenario: each for each in kept_scenarios(earlier, senses.gpus, digests)}
        for name in kept:
            self._session.say(f"{self.configuration.key}: goodput of {name} is kept from the interrupted run")
        return kept

    def _digest(self, scenario: Scenario) -> str:
        return self._session.spec.digest(self.configuration, scenario)

    def _measure_suites(self, engine: RunningEngine, earlier: ConfigRecord | None) -> None:
        suites = self._session.spec.accuracy
        kept = {each.name: each for each in kept_suites(earlier, suites)} if earlier else {}
        for suite in suites:
            record = self._answered(engine, suite, kept.get(suite.title))
            self.record = replace(self.record, suites={**self.record.suites, suite.title: record})
            self._store()

    def _measure_drift(self, engine: RunningEngine) -> None:
        began_s = time.monotonic()
        try:
            self._session.deadline.check()
            found = measure_drift(self.configuration, engine, self._session)
        except (EngineError, LoadError) as error:
            found = unmeasured_drift(Reason(error.reason, str(error)))
        except UsageError as error:
            found = unmeasured_drift(Reason("drift_unusable", str(error)))
        if self.configuration.role == "baseline" and found.invalid:
            self._session.captures.why_none = "; ".join(map(str, found.invalid))
        minutes = {**self.record.minutes, "drift": (time.monotonic() - began_s) / 60.0}
        self.record = replace(self.record, drift=found, minutes=minutes)
        self._store()

    def _answered(self, engine: RunningEngine, suite: Suite, earlier: SuiteRecord | None) -> SuiteRecord:
        began_s = time.monotonic()
        try:
            sha256 = self._session.shelf.open(suite).sha256
            if earlier is not None and earlier.sha256 == sha256:
                self._session.say(f"{self.configuration.key}: {suite.title} is kept from the interrupted run")
                return earlier
            record = measure_suite(self.configuration, suite, engine, self._session)
        except LoadError as error:
            record = unmeasured_suite(suite, "", Reason(error.reason, str(error)))
        except TokenwattError as error:
            record = unmeasured_suite(suite, "", Reason("suite_unusable", str(error)))
        minutes = {**self.record.minutes, suite.title: (time.monotonic() - began_s) / 60.0}
        self.record = replace(self.record, minutes=minutes)
        return record

    def _measure_scenario(self, engine: RunningEngine, scenario: Scenario, senses: Senses) -> None:
        began_s = time.monotonic()
        record = self._measured(engine, scenario, senses)
        scenarios = {**self.record.scenarios, scenario.name: record}
        minutes = {**self.record.minutes, scenario.name: (time.monotonic() - began_s) / 60.0}
        self.record = replace(self.record, scenarios=scenarios, minutes=minutes)
        self._store()

    def _measured(self, engine: RunningEngine, scenario: Scenario, senses: Senses) -> GoodputRecord:
        try:
            return measure_scenario(self.configuration, scenario, engine, self._session, senses)
        except (LoadError, EngineError) as error:
            reason = Reason(error.reason, str(error))
        except UsageError as error:
            reason = Reason("workload_unusable", str(error))
        self._session.say(f"{self.configuration.key}: {reason}")
        return unmeasured(scenario, reason)

    def _interrupt(self) -> None:
        """What was not measured stays so; scenarios that were are as good as before."""
        reason = Reason("interrupted", "the run was interrupted before this was measured")
        if self.record.contract is None:
            self._mark(reason)
        done = self.record.scenarios
        promised = self.configuration.scenarios if GOODPUT in self._kinds else ()
        left = [each for each in promised if each.bounds and each.name not in done]
        self.record = replace(self.record, scenarios={**done, **{each.name: unmeasured(each, reason) for each in left}})
        suites = self._session.spec.accuracy if ACCURACY in self._kinds else ()
        asked = {each.title: unmeasured_suite(each, "", reason) for each in suites}
        self.record = replace(self.record, suites={**asked, **self.record.suites})
        if DRIFT in self._kinds and self._session.spec.drift is not None and self.record.drift is None:
            self.record = replace(self.record, drift=unmeasured_drift(reason))

    def _mark(self, reason: Reason) -> None:
        self.record = replace(self.record, invalid=(*self.record.invalid, reason))

    def _store(self) -> None:
        key, run_dir = self.configuration.key, self._session.run_dir
        logs = (f"{name}-{key}.log" for name in ("engine", "load"))
        self.record = replace(self.record, files=tuple(log for log in logs if run_dir.file(log).exists()))
        name = f"record-{key}.json"
        write_record(self._session.run_dir.file(name), self.record)


def _broken(contract: Contract) -> str:
    broken = [probe for probe in contract.probes if probe.required and probe.state != "pass"]
    return "; ".join(f"{probe.name} is {probe.state}: {probe.detail}" for probe in broken)


def _costs(contract: Contract) -> tuple[str, ...]:
    """What the report loses by optional parts of the contract that the engine lacks."""
    lost = [probe for probe in contract.probes if not probe.required and probe.state != "pass" and probe.cost]
    return tuple(f"Contract probe {probe.name} is {probe.state}: {probe.cost}" for probe in lost)

"""One configuration's phase: start the engine, check it, measure every scenario, stop it, keep the record."""

from __future__ import annotations

import time
from dataclasses import replace

from pytest_tokenwatt.campaign.scenario import measure_scenario, unmeasured
from pytest_tokenwatt.campaign.senses import Senses
from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.engine.start import EnginePlace, RunningEngine, start_engine
from pytest_tokenwatt.errors import EngineError, LoadError, UsageError
from pytest_tokenwatt.records import ConfigRecord, Contract, GoodputRecord, Reason
from pytest_tokenwatt.spec.model import Configuration, Scenario
from pytest_tokenwatt.store.journal import Event
from pytest_tokenwatt.store.records_json import write_record


class Phase:
    """The measurements of one configuration, taken during one engine start."""

    def __init__(self, configuration: Configuration, session: Session) -> None:
        self.configuration = configuration
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
        """Start the engine and measure all scenarios; failures end up in the record, which is stored in any case.

        The engine stays up until ``stop``. ``KeyboardInterrupt`` passes through once the record is stored.
        """
        key = self.configuration.key
        self._session.journal.write(Event.PHASE_STARTED, config=key)
        try:
            self._start()
            if self.engine is not None:
                self._measure_scenarios(self.engine)
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

    def _measure_scenarios(self, engine: RunningEngine) -> None:
        contract = self.record.contract
        if contract is not None and not contract.passed:
            self._mark(Reason("contract_failed", _broken(contract)))
            return
        senses = Senses(self.configuration, engine, self._session)
        try:
            senses.start()
            for scenario in self.configuration.scenarios:
                if scenario.bounds:
                    self._measure_scenario(engine, scenario, senses)
        finally:
            self.record = senses.finish(self.record)

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
        left = [each for each in self.configuration.scenarios if each.bounds and each.name not in done]
        self.record = replace(self.record, scenarios={**done, **{each.name: unmeasured(each, reason) for each in left}})

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

"""One configuration's phase: start the engine, check it, measure every scenario, stop it, keep the record."""

from __future__ import annotations

import time

from pytest_tokenwatt.campaign.accuracy import measure_suite
from pytest_tokenwatt.campaign.audit import audited, without_audit
from pytest_tokenwatt.campaign.drift import measure_drift, unmeasured_drift
from pytest_tokenwatt.campaign.extra import broken_probes, engine_place, running
from pytest_tokenwatt.campaign.kinds import ACCURACY, AUDIT, DRIFT, EVERYTHING, TIMED
from pytest_tokenwatt.campaign.ledger import Ledger
from pytest_tokenwatt.campaign.machine import Machine, look_at
from pytest_tokenwatt.campaign.order import partner_of
from pytest_tokenwatt.campaign.resume import differs, kept_suites
from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.campaign.timed import TimedWork, unmeasured_timed
from pytest_tokenwatt.engine.start import RunningEngine, start_engine
from pytest_tokenwatt.errors import EngineError, LoadError, TokenwattError, UsageError
from pytest_tokenwatt.quality.accuracy import unmeasured_suite
from pytest_tokenwatt.records import ConfigRecord, Contract, Reason, SuiteRecord
from pytest_tokenwatt.spec.model import Configuration, Suite
from pytest_tokenwatt.store.journal import Event


class Phase:
    """The measurements of one configuration, taken during one engine start: timed ones first, then answers."""

    def __init__(self, configuration: Configuration, session: Session, kinds: frozenset[str] = EVERYTHING) -> None:
        """``kinds`` says what is to be measured: any of ``EVERYTHING``."""
        self.configuration = configuration
        self._kinds = kinds
        self.engine: RunningEngine | None = None
        self._machine = Machine()
        self._session = session
        self._ledger = Ledger(configuration, session)

    @property
    def record(self) -> ConfigRecord:
        """What is known so far."""
        return self._ledger.record

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
            self._ledger.store()
        self._session.journal.write(Event.PHASE_FINISHED, config=key)
        return self.record

    def amend(self, record: ConfigRecord) -> None:
        """Take over what was found out behind the phase's end, and store it."""
        self._ledger.take(record)

    def stop(self) -> None:
        """Stop the engine if it runs; safe to call again."""
        if self.engine is not None:
            settings = self.configuration.engine
            stopping = f"stopping the engine (it has {settings.stop_timeout_s:g} s)"
            said = "leaving the engine as it is" if settings.method == "attach" else stopping
            self._session.say(f"{self.configuration.key}: {said}")
            self.engine.stop()
            self.engine = None

    def _start(self) -> None:
        began_s = time.monotonic()
        try:
            self._session.deadline.check()
            engine = start_engine(self.configuration, engine_place(self._session))
        except (EngineError, LoadError) as error:
            self._mark(Reason(error.reason, str(error)))
            return
        self.engine = engine
        # Known from here on, also to the report of a run that is interrupted while the contract is checked.
        self._ledger.note(identity=engine.identity, fingerprint=engine.fingerprint, launch=dict(engine.launch))
        contract = engine.check_contract()
        self._machine = look_at(self.configuration, engine, self._session)
        self._ledger.note(
            contract=contract,
            startup=self._machine.startup,
            precision=self._machine.precision,
            not_covered=(*engine.notes, *_costs(contract)),
        )
        self._ledger.took("start", began_s)
        self._session.journal.write(
            Event.ENGINE_READY, config=self.configuration.key, seconds=round(time.monotonic() - began_s, 3)
        )

    def _measure(self, engine: RunningEngine) -> None:
        contract = self.record.contract
        if contract is not None and not contract.passed:
            self._mark(Reason("contract_failed", broken_probes(contract)))
            return
        earlier = self._earlier(engine)
        if self._kinds & TIMED:
            work = TimedWork(self._ledger, engine, self._kinds, earlier)
            self._machine = work.measure(self._machine)
        if ACCURACY in self._kinds:
            self._measure_suites(engine, earlier)
        if DRIFT in self._kinds and self._session.spec.drift is not None:
            self._measure_drift(engine, earlier)
        if AUDIT in self._kinds:
            self._audit()

    def _audit(self) -> None:
        """Where the baseline is up beside this engine, it scores the outputs now; else in its second start."""
        partner = partner_of(self.configuration, self._session.spec)
        if partner is None:
            return
        try:
            with running(partner, self._session) as engine:
                self._ledger.take(audited(self.record, engine, self._session))
        except (EngineError, LoadError) as error:
            self._ledger.take(without_audit(self.record, self._session, Reason(error.reason, str(error))))

    def _earlier(self, engine: RunningEngine) -> ConfigRecord | None:
        """What an interrupted run knows of the same engine."""
        earlier = (self._session.earlier or {}).get(self.configuration.key)
        if earlier is None:
            return None
        why = differs(earlier, engine)
        if why is not None:
            self._session.say(f"{self.configuration.key}: the interrupted run does not count: {why}")
        return earlier if why is None else None

    def _measure_suites(self, engine: RunningEngine, earlier: ConfigRecord | None) -> None:
        suites = self._session.spec.accuracy
        kept = {each.name: each for each in kept_suites(earlier, suites)} if earlier else {}
        for suite in suites:
            record = self._answered(engine, suite, kept.get(suite.title))
            self._ledger.note(suites={**self.record.suites, suite.title: record})
            if earlier is not None and record is kept.get(suite.title):
                self._ledger.took_earlier(earlier, suite.title)
            self._ledger.store()

    def _measure_drift(self, engine: RunningEngine, earlier: ConfigRecord | None) -> None:
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
        self._ledger.note(drift=found)
        self._ledger.took("drift", began_s)
        if earlier is not None and found == earlier.drift:
            self._ledger.took_earlier(earlier, "drift")
        self._ledger.store()

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
        self._ledger.took(suite.title, began_s)
        return record

    def _interrupt(self) -> None:
        """What was not measured stays so; scenarios that were are as good as before."""
        reason = Reason("interrupted", "the run was interrupted before this was measured")
        if self.record.contract is None:
            self._mark(reason)
        self._ledger.note(**unmeasured_timed(self.record, self._session.spec, self._kinds, self.configuration, reason))
        suites = self._session.spec.accuracy if ACCURACY in self._kinds else ()
        asked = {each.title: unmeasured_suite(each, "", reason) for each in suites}
        self._ledger.note(suites={**asked, **self.record.suites})
        if DRIFT in self._kinds and self._session.spec.drift is not None and self.record.drift is None:
            self._ledger.note(drift=unmeasured_drift(reason))

    def _mark(self, reason: Reason) -> None:
        self._ledger.note(invalid=(*self.record.invalid, reason))


def _costs(contract: Contract) -> tuple[str, ...]:
    """What the report loses by optional parts of the contract that the engine lacks."""
    lost = [probe for probe in contract.probes if not probe.required and probe.state != "pass" and probe.cost]
    return tuple(f"Contract probe {probe.name} is {probe.state}: {probe.cost}" for probe in lost)

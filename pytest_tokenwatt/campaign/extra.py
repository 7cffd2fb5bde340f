"""Engine starts beside the phases' own: the baseline again, and candidates with a smaller KV cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.engine.start import EnginePlace, RunningEngine, start_engine
from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.records import Contract
from pytest_tokenwatt.spec.model import Configuration


@contextmanager
def running(configuration: Configuration, session: Session) -> Iterator[RunningEngine]:
    """An engine that has met the contract, for as long as the block lasts.

    Raises ``EngineError`` when it does not start or fails the contract, ``LoadError`` when the time is used up.
    """
    session.deadline.check()
    engine = start_engine(configuration, engine_place(session))
    try:
        contract = engine.check_contract()
        if not contract.passed:
            raise EngineError("contract_failed", broken_probes(contract))
        yield engine
    finally:
        engine.stop()


def engine_place(session: Session) -> EnginePlace:
    """Where engines of this run are started."""
    return EnginePlace(
        run_dir=session.run_dir.create(),
        run_id=session.run_id,
        spec_dir=session.spec.path.parent,
        environ=session.environ,
        progress=session.say,
    )


def broken_probes(contract: Contract) -> str:
    """What required probes saw instead of what they should."""
    broken = [probe for probe in contract.probes if probe.required and probe.state != "pass"]
    return "; ".join(f"{probe.name} is {probe.state}: {probe.detail}" for probe in broken)

"""What the fixture ``tokenwatt`` gives: the lab as a test of one configuration sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from pytest_tokenwatt.errors import EngineError, GateFailed, NothingRuns, NotMeasured, TokenwattError, UsageError
from pytest_tokenwatt.plugin.bench import Bench
from pytest_tokenwatt.plugin.verdicts import PASSING, MeasurementFailed, failure, file_properties
from pytest_tokenwatt.records import GateResult, Verdict

if TYPE_CHECKING:
    from pytest_tokenwatt.engine.start import RunningEngine
    from pytest_tokenwatt.spec.model import Configuration, Spec
    from pytest_tokenwatt.values import (
        Accuracy,
        Audit,
        Energy,
        Goodput,
        KlDrift,
        LengthShift,
        Memory,
        PerplexityChange,
        Power,
        Speed,
    )

T = TypeVar("T")


@dataclass(slots=True)
class Running:
    """The test that runs now, whether it measured anything, and a rule of its own that did not hold."""

    item: pytest.Item | None = None
    measured: bool = False
    broken: GateResult | None = None


class LabHandle:
    """One configuration of the active spec: what was asked of it, and what was measured.

    Measurements are taken once a session; asking again costs nothing.
    """

    def __init__(self, bench: Bench, config: Configuration, running: Running) -> None:
        self.bench = bench
        self._config = config
        self._running = running

    def __repr__(self) -> str:
        return f"<tokenwatt {self.bench.place} {self._config.key}>"

    @property
    def spec(self) -> Spec:
        """The active spec."""
        return self.bench.spec

    @property
    def config(self) -> Configuration:
        """The configuration that this test runs for, with its merged blocks."""
        return self._config

    @property
    def run_dir(self) -> Path:
        """Where this run writes its files; made when the first one is written."""
        return self.bench.lab.run_dir

    @property
    def baseline(self) -> Baseline:
        """The baseline of the spec. Raises ``NotMeasured`` when it has none."""
        config = self.bench.lab.baseline_configuration()
        if config is None:
            raise NotMeasured("baseline", f"{self.bench.place} has no configuration with role baseline")
        return Baseline(LabHandle(self.bench, config, self._running))

    def gate(self, name: str, value: float | None, op: str, limit: float, unit: str | None = None) -> GateResult:
        """Record a rule of your own as a gate of the report: ``value op limit`` with op one of < <= > >= == !=.

        Raises ``GateFailed`` when it does not hold, or when there is no value.
        """
        __tracebackhide__ = True
        self._measuring()
        result = self.bench.lab.record_gate(self._config.key, name, value, op, limit, unit)
        if self._running.item is not None:
            file_properties(self._running.item, result)
        if result.verdict not in PASSING:
            self._running.broken = result
            raise failure(result)
        return result

    def goodput(self, scenario: str | None = None) -> Goodput:
        """Goodput of a scenario, which need not be named if it is the only one.

        Fails the test with the reasons when the measurement is invalid.
        """
        return self._taken(lambda: self.bench.lab.goodput(self._config.key, self._scenario(scenario)))

    def energy(self, scenario: str | None = None) -> Energy:
        """Energy of a scenario's confirming windows; fails the test with the reasons when it is invalid."""
        return self._taken(lambda: self.bench.lab.energy(self._config.key, self._scenario(scenario)))

    def power(self) -> Power:
        """The power sources of the configuration; fails the test when the spec asks for none, or none can be read."""
        return self._taken(lambda: self.bench.lab.power(self._config.key))

    def accuracy(self, suite: str | None = None) -> Accuracy:
        """A suite, which need not be named if it is the only one; fails the test with the reasons if it is invalid."""
        return self._taken(lambda: self.bench.lab.accuracy(self._config.key, suite))

    def length_shift(self) -> LengthShift:
        """The answers' length against the baseline's; fails the test with the reasons if it cannot be compared."""
        return self._taken(lambda: self.bench.lab.length_shift(self._config.key))

    def kl_drift(self) -> KlDrift:
        """KL divergence from the baseline; fails the test with the reasons if it is invalid."""
        return self._taken(lambda: self.bench.lab.kl_drift(self._config.key))

    def perplexity(self, corpus: str | None = None) -> PerplexityChange:
        """A corpus, which need not be named if it is the only one; fails the test with the reasons if it is invalid."""
        return self._taken(lambda: self.bench.lab.perplexity(self._config.key, corpus))

    def memory(self) -> Memory:
        """Memory at the peaks of the profiles; fails the test with the reasons if none was measured."""
        return self._taken(lambda: self.bench.lab.memory(self._config.key))

    def speed(self) -> Speed:
        """Closed-loop throughput against the baseline's; fails the test with the reasons if it cannot be compared."""
        return self._taken(lambda: self.bench.lab.speed(self._config.key))

    def audit(self) -> Audit:
        """The audit of timed output; fails the test with the reasons if it is invalid."""
        return self._taken(lambda: self.bench.lab.audit(self._config.key))

    def _taken(self, measure: Callable[[], T]) -> T:
        """A measurement, taken if need be; the test fails with the reasons when it is not to be had."""
        self._measuring()
        try:
            return measure()
        except GateFailed as error:
            raise MeasurementFailed(error, Verdict(error.verdict)) from None
        except EngineError as error:
            raise MeasurementFailed(error, Verdict.INVALID) from None
        except TokenwattError as error:
            raise MeasurementFailed(error, Verdict.FAIL) from None

    def engine(self) -> RunningEngine:
        """The running engine, started if need be; fails the test when it does not start."""
        self._measuring()
        try:
            return self.bench.lab.engine(self._config.key)
        except NothingRuns as error:
            pytest.skip(str(error))
        except EngineError as error:
            raise MeasurementFailed(error, Verdict.INVALID) from None

    def compared(self) -> Baseline:
        """The baseline; fails the test when the spec has none."""
        try:
            return self.baseline
        except NotMeasured as error:
            raise MeasurementFailed(error, Verdict.FAIL) from None

    def _scenario(self, name: str | None) -> str:
        known = [scenario.name for scenario in self._config.scenarios]
        if name is None and len(known) == 1:
            return known[0]
        if name not in known:
            what = "there are several scenarios" if name is None else f"there is no scenario {name!r}"
            raise UsageError(what, remedy=f"use tokenwatt.goodput(scenario) with one of {', '.join(known)}")
        return name

    def _measuring(self) -> None:
        self._running.measured = True
        self.bench.ran = True


class Baseline:
    """The baseline, measured beside the configuration on the same machine."""

    def __init__(self, handle: LabHandle) -> None:
        self._handle = handle

    @property
    def config(self) -> Configuration:
        """The baseline's configuration."""
        return self._handle.config

    @property
    def goodput(self) -> Goodput:
        """The baseline's goodput; fails the test with the reasons when the measurement is invalid."""
        return self._handle.goodput()

    @property
    def energy(self) -> Energy:
        """The baseline's energy; fails the test with the reasons when the measurement is invalid."""
        return self._handle.energy()

    @property
    def power(self) -> Power:
        """The baseline's power sources."""
        return self._handle.power()

    @property
    def accuracy(self) -> Accuracy:
        """The baseline's only suite; fails the test with the reasons when it is invalid."""
        return self._handle.accuracy()

    @property
    def perplexity(self) -> PerplexityChange:
        """The baseline's only corpus; fails the test with the reasons when it is invalid."""
        return self._handle.perplexity()

    @property
    def memory(self) -> Memory:
        """Memory at the peaks of the baseline's profiles."""
        return self._handle.memory()

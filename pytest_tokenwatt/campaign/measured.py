"""The values that tests read: each is measured when it is first asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from pytest_tokenwatt.campaign.budget import needs_starts
from pytest_tokenwatt.campaign.drift_values import corpus_name, kl_value, perplexity_value
from pytest_tokenwatt.campaign.lengths import length_value
from pytest_tokenwatt.campaign.profile_values import audit_value, memory_value, speed_value
from pytest_tokenwatt.campaign.readings import accuracy_of, energy_of, goodput_of, power_of, suite_name
from pytest_tokenwatt.errors import NotMeasured
from pytest_tokenwatt.gates.asked import counts_drift_answers
from pytest_tokenwatt.records import DEFAULT_SCENARIO, ConfigRecord
from pytest_tokenwatt.spec.model import Spec
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

_NO_BASELINE = "there is no baseline to compare with"


class Measured(ABC):
    """Figures of a run's configurations, out of records that whoever derives from it can get."""

    spec: Spec

    @property
    @abstractmethod
    def run_dir(self) -> Path:
        """Where the run writes."""

    @abstractmethod
    def _record(self, key: str) -> ConfigRecord:
        """A configuration's record; measures it if need be."""

    @abstractmethod
    def _stored_baseline(self) -> ConfigRecord | None:
        """The record of another run that stands for the baseline; ``None`` when it is measured in this one."""

    @abstractmethod
    def _records(self) -> tuple[ConfigRecord, ...]:
        """All records so far."""

    @abstractmethod
    def _measure_all(self) -> None:
        """Measure every configuration that is needed."""

    @abstractmethod
    def _run_after(self) -> None:
        """What needs engine starts behind all phases, once."""

    def goodput(self, config: str, scenario: str = DEFAULT_SCENARIO) -> Goodput:
        """Measured goodput. Raises like ``readings.goodput_of``."""
        return goodput_of(self._record(config), scenario)

    def energy(self, config: str, scenario: str = DEFAULT_SCENARIO) -> Energy:
        """Energy over the confirming windows. Raises like ``readings.energy_of``."""
        return energy_of(self._record(config), scenario)

    def power(self, config: str) -> Power:
        """The power sources. Raises like ``readings.power_of``."""
        return power_of(self._record(config), self.run_dir)

    def accuracy(self, config: str, suite: str | None = None) -> Accuracy:
        """A suite's score, and its difference to the baseline, which is measured for it; ``None``: the only suite.

        Raises like ``readings.accuracy_of``, and ``UsageError`` for a suite that there is not.
        """
        name = suite_name(self.spec, suite)
        return accuracy_of(self._record(config), self._other_baseline(config), name)

    def length_shift(self, config: str) -> LengthShift:
        """How long the answers are against the baseline's, which is measured for it.

        Raises ``GateFailed`` when they are invalid, ``NotMeasured`` when the spec asks for none, without a baseline,
        or of it.
        """
        if not (self.spec.accuracy or counts_drift_answers(self.spec)):
            raise NotMeasured("length_shift", "the spec has neither an accuracy nor a drift block")
        return length_value(self.spec, self._record(config), self._needed_baseline(config, "length_shift"))

    def kl_drift(self, config: str) -> KlDrift:
        """The divergence from the baseline, which is measured for it.

        Raises ``GateFailed`` when it is invalid, ``NotMeasured`` without a drift block, without a baseline, or of it.
        """
        if self.spec.drift is None:
            raise NotMeasured("kl_drift", "the spec has no drift block")
        base = self._needed_baseline(config, "kl_drift")
        return kl_value(self._record(config), base, control=self.spec.drift.control)

    def perplexity(self, config: str, corpus: str | None = None) -> PerplexityChange:
        """Perplexity on a corpus, and its difference to the baseline, which is measured for it; ``None``: the only one.

        Raises like ``perplexity_value``, and ``UsageError`` for a corpus that there is not.
        """
        name = corpus_name(self.spec, corpus)
        return perplexity_value(name, self._record(config), self._other_baseline(config))

    def memory(self, config: str) -> Memory:
        """Memory at the peaks of the profiles, against the baseline's, which is measured for it.

        Raises like ``memory_value``, and ``NotMeasured`` without a profiles block.
        """
        self._ask_for("profiles", "memory")
        if needs_starts(self.spec.profiles):
            self._measure_all()
            self._run_after()
        return memory_value(self.spec, self._record(config), self._other_baseline(config))

    def speed(self, config: str) -> Speed:
        """Closed-loop throughput against the baseline's, behind its repeat.

        Raises like ``speed_value``, and ``NotMeasured`` without a profiles block, without a baseline, or of it.
        """
        self._ask_for("profiles", "speed")
        base = self._needed_baseline(config, "speed")
        self._measure_all()
        self._run_after()
        base = self._needed_baseline(config, "speed")
        return speed_value(self.spec, self._record(config), base, self._records())

    def audit(self, config: str) -> Audit:
        """What the baseline says of timed outputs.

        Raises like ``audit_value``, and ``NotMeasured`` without an audit block, without a baseline, or of it.
        """
        self._ask_for("audit", "audit")
        if self.spec.baseline is not None and self.spec.baseline.key == config:
            raise NotMeasured(f"{config} audit", _NO_BASELINE)
        self._measure_all()
        self._run_after()
        return audit_value(self._record(config))

    def _ask_for(self, block: str, figure: str) -> None:
        if not self.spec.present(block):
            raise NotMeasured(figure, f"the spec has no {block} block")

    def _needed_baseline(self, config: str, figure: str) -> ConfigRecord:
        found = self._other_baseline(config)
        if found is None:
            raise NotMeasured(f"{config} {figure}", _NO_BASELINE)
        return found

    def _other_baseline(self, config: str) -> ConfigRecord | None:
        base = self.spec.baseline
        if base is not None and base.key == config:
            return None
        stored = self._stored_baseline()
        return stored if stored is not None or base is None else self._record(base.key)

"""Power and energy as a test reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_tokenwatt.errors import NotMeasured

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_tokenwatt.records import ConfigRecord, EnergyRecord, PowerRecord, Reason


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of one configuration over the confirming windows of a scenario, from the first power source of the spec.

    Raises ``NotMeasured`` with the reason for a figure without a value.
    """

    config: str
    record: EnergyRecord = field(repr=False)

    @property
    def tokens_per_joule(self) -> float:
        """Tokens of requests that met the SLO, per joule."""
        return self._known("tokens_per_joule", self.record.tokens_per_joule)

    @property
    def output_tokens_per_joule(self) -> float:
        """All delivered output tokens, per joule."""
        return self._known("output_tokens_per_joule", self.record.output_tokens_per_joule)

    @property
    def energy_j(self) -> float:
        """Joules over all confirming windows."""
        return self._known("energy_j", self.record.energy_j)

    @property
    def node_power_kw(self) -> float:
        """Energy over the windows' length, in kW; ``kind`` says what it covers (``board``: the GPUs alone)."""
        return self._known("node_power_kw", self.record.node_power_kw)

    @property
    def variance_band_pct(self) -> float:
        """Spread of tokens per joule over the repeats: 100 · (max − min) / mean."""
        return self._known("variance_band_pct", self.record.variance_band_pct)

    @property
    def throttle_counts(self) -> dict[str, int]:
        """Samples with each throttle reason set; reasons that were never set are not in it."""
        if self.record.throttle_counts is None:
            raise NotMeasured(f"{self.config} throttle_counts", f"{self.record.source} tells no throttle reasons")
        return dict(self.record.throttle_counts)

    @property
    def kind(self) -> str:
        """What was measured: ``board``, ``node``, ``cpu`` or ``other``."""
        return self.record.kind

    @property
    def validity(self) -> tuple[Reason, ...]:
        """Reasons not to believe the measurement; empty when it is valid."""
        return self.record.invalid

    def _known(self, name: str, value: float | None) -> float:
        if value is None:
            why = "; ".join(str(reason) for reason in self.record.invalid)
            raise NotMeasured(f"{self.config} {name}", why or "no rate passed, or it was measured only once")
        return value


@dataclass(frozen=True, slots=True)
class Power:
    """The power sources of one configuration."""

    config: str
    record: ConfigRecord = field(repr=False)
    run_dir: Path

    @property
    def sources(self) -> tuple[PowerRecord, ...]:
        """What each source reads, its pace and its idle power, in the order of the spec."""
        return self.record.power

    @property
    def idle_w(self) -> float:
        """Watts of the first source with the model loaded and nothing asked."""
        idle = self.sources[0].idle_w
        if idle.value is None:
            raise NotMeasured(f"{self.config} idle_w", idle.reason or "no sample")
        return idle.value

    @property
    def trace(self) -> Path | None:
        """The samples of all sources as CSV."""
        file = self.sources[0].file
        return self.run_dir / file if file else None

    @property
    def validity(self) -> tuple[Reason, ...]:
        """Reasons why sources could not be read; empty when all were."""
        return tuple(reason for source in self.sources for reason in source.invalid)

"""Drift as a test reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_tokenwatt.errors import NotMeasured

if TYPE_CHECKING:
    from pytest_tokenwatt.records import Reason
    from pytest_tokenwatt.records.drift import Divergence, KlDelta, PerplexityDelta, PerplexityRecord


@dataclass(frozen=True, slots=True)
class KlDrift:
    """KL divergence of one configuration's next-token distributions from the baseline's, in nats per token.

    Raises ``NotMeasured`` with the reason for a figure without a value.
    """

    config: str
    record: Divergence = field(repr=False)
    change: KlDelta

    @property
    def nats_per_token(self) -> float:
        """Divergence, the mean over sequences of their means over positions, extrapolated beyond the top K."""
        return self._known("nats_per_token", self.record.kl)

    @property
    def se(self) -> float:
        """Standard error of ``nats_per_token``, by sequence."""
        return self._known("se", self.record.kl_se)

    @property
    def lower(self) -> float:
        """The bound that assumes nothing of the tokens outside the top K."""
        return self._known("lower", self.record.kl_lower)

    @property
    def sampled(self) -> float:
        """The estimate from the tokens that were drawn, without a model of the tail."""
        return self._known("sampled", self.record.kl_sampled)

    @property
    def control(self) -> float:
        """The baseline's divergence from itself in another order and concurrency."""
        return self._known("control", self.change.control)

    @property
    def over_control(self) -> float:
        """``nats_per_token`` − ``control``: what the gate judges."""
        if self.change.control is None:
            raise NotMeasured(f"{self.config} kl_drift over_control", self._why())
        return self._known("over_control", self.change.value)

    @property
    def median(self) -> float:
        """Median over sequences."""
        return self._known("median", self.record.kl_median)

    @property
    def top1_agreement(self) -> float:
        """Share of positions whose likeliest token is the baseline's; ties count as agreement."""
        return self._known("top1_agreement", self.record.top1_agreement)

    @property
    def tail_mass(self) -> float:
        """The baseline's probability outside both top K."""
        return self._known("tail_mass", self.record.tail_mass)

    @property
    def sequences(self) -> int:
        """How many sequences were scored."""
        return self.record.sequences

    @property
    def tokens(self) -> int:
        """How many positions were scored."""
        return self.record.tokens

    @property
    def bit_identical(self) -> bool:
        """Whether two engine starts gave the same log-probabilities to the last bit."""
        return self.change.bit_identical

    @property
    def validity(self) -> tuple[Reason, ...]:
        """Reasons why the figure decides nothing; empty when it does."""
        return self.change.doubts

    def _known(self, name: str, value: float | None) -> float:
        if value is None:
            raise NotMeasured(f"{self.config} kl_drift {name}", self._why())
        return value

    def _why(self) -> str:
        return "; ".join(map(str, self.change.doubts)) or "the spec does not ask for it (drift:)"


@dataclass(frozen=True, slots=True)
class PerplexityChange:
    """Perplexity of one configuration on a corpus. ``change`` is ``None`` for the baseline itself."""

    config: str
    record: PerplexityRecord = field(repr=False)
    change: PerplexityDelta | None = None

    @property
    def corpus(self) -> str:
        """Name of the corpus."""
        return self.record.name

    @property
    def ppl(self) -> float:
        """exp of the mean over windows of the negative log-likelihood per token."""
        return self._known("ppl", self.record.ppl)

    @property
    def baseline_ppl(self) -> float:
        """The baseline's perplexity on the same windows."""
        return self._known("baseline_ppl", self.change.ppl_bf16 if self.change else None)

    @property
    def dnll(self) -> float:
        """Mean over windows of candidate − baseline, in nats per token; positive is worse."""
        return self._known("dnll", self.change.dnll if self.change else None)

    @property
    def dnll_se(self) -> float:
        """Standard error of ``dnll`` over windows."""
        return self._known("dnll_se", self.change.dnll_se if self.change else None)

    @property
    def windows(self) -> int:
        """How many windows were scored."""
        return self.record.windows

    @property
    def tokens(self) -> int:
        """How many tokens were scored."""
        return self.record.tokens

    @property
    def validity(self) -> tuple[Reason, ...]:
        """Reasons not to believe the measurement; empty when it is valid."""
        return (*self.record.invalid, *(self.change.invalid if self.change else ()))

    def _known(self, name: str, value: float | None) -> float:
        if value is None:
            why = "; ".join(map(str, self.validity))
            alone = "one window has no error" if self.change else "the baseline is compared with nothing"
            raise NotMeasured(f"{self.config} perplexity of {self.corpus} {name}", why or alone)
        return value

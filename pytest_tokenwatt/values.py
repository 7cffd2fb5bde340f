"""What the fixtures hand to tests: measured values that refuse to be read when they were not measured."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_tokenwatt.errors import NotMeasured

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_tokenwatt.records import (
        ConfigRecord,
        EnergyRecord,
        Figure,
        GoodputRecord,
        Percentile,
        PowerRecord,
        Reason,
        SuiteRecord,
        WindowResult,
    )
    from pytest_tokenwatt.records.accuracy import LengthDelta
    from pytest_tokenwatt.records.drift import Divergence, KlDelta, PerplexityDelta, PerplexityRecord


@dataclass(frozen=True, slots=True)
class Goodput:
    """Goodput of one configuration at the highest rate that meets its SLO.

    Any recorded figure can be read by its name: ``goodput.ttft_p99_ms``, ``goodput.tpot_p50_ms``,
    ``goodput.output_tok_s``. Raises ``NotMeasured`` for a figure without a value, ``AttributeError`` for a name that
    is no figure.
    """

    config: str
    record: GoodputRecord

    @property
    def scenario(self) -> str:
        """Name of the scenario (``default`` without ``scenarios:``)."""
        return self.record.scenario

    @property
    def tok_s(self) -> float:
        """Tokens per second that belong to requests meeting every SLO metric, over the confirm windows."""
        return self._known("goodput_tok_s", self.record.goodput_tok_s)

    @property
    def rate_rps(self) -> float:
        """The offered rate, in requests per second, at which all repeats passed."""
        return self._known("rate_rps", self.record.rate_rps)

    @property
    def output_tok_s(self) -> float:
        """All output tokens delivered per second over the confirm windows."""
        return self._known("output_tok_s", self.record.output_tok_s)

    @property
    def error_pct(self) -> float:
        """Width of [highest passing, lowest failing] rate over the rate, in per cent."""
        return self._known("error_pct", self.record.error_pct)

    @property
    def percentiles(self) -> tuple[Percentile, ...]:
        """Pooled latency percentiles with their intervals."""
        return self.record.percentiles

    @property
    def windows(self) -> tuple[WindowResult, ...]:
        """Every judged window, probes included, in the order of measurement."""
        return self.record.windows

    @property
    def validity(self) -> tuple[Reason, ...]:
        """Reasons not to believe the measurement; empty when it is valid."""
        return self.record.invalid

    def figure(self, name: str) -> Figure:
        """The figure of that name with its error and interval. Raises like attribute access."""
        figure = self.record.figures.get(name)
        if figure is None:
            raise AttributeError(self._unknown(name))
        return figure

    def __getattr__(self, name: str) -> float:
        if name.startswith("_"):
            raise AttributeError(name)
        figure = self.figure(name)
        if figure.value is None:
            raise NotMeasured(name, figure.reason or self._why())
        return figure.value

    def _known(self, name: str, value: float | None) -> float:
        if value is None:
            raise NotMeasured(f"{self.config} {name}", self._why())
        return value

    def _why(self) -> str:
        reasons = [str(reason) for reason in self.record.invalid] or list(self.record.misses)
        return "; ".join(reasons) or "no rate passed"

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self.record.figures, n=3)
        return f"no figure {name!r}; nearest: {', '.join(near) or 'none'}"


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of one configuration over the confirming windows of a scenario, from the first power source of the spec.

    Raises ``NotMeasured`` with the reason for a figure without a value.
    """

    config: str
    record: EnergyRecord

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
    record: ConfigRecord
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


@dataclass(frozen=True, slots=True)
class AccuracyChange:
    """A suite on one configuration against the same items on the baseline, in points; negative is worse.

    ``low_pts`` and ``high_pts`` are the 95 % interval; ``resolvable_drop_pts`` is the drop that so many items show
    with 80 % power at one-sided 5 %. ``mid_p`` (McNemar) is ``None`` where items share templates or seeds.
    """

    delta_pts: float
    low_pts: float
    high_pts: float
    items: int
    right_to_wrong: int
    wrong_to_right: int
    mid_p: float | None
    resolvable_drop_pts: float


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A suite on one configuration. ``change`` is ``None`` for the baseline, and when it cannot be compared."""

    config: str
    record: SuiteRecord
    change: AccuracyChange | None = None
    why: str = "the baseline is compared with nothing"

    @property
    def suite(self) -> str:
        """Name of the suite."""
        return self.record.name

    @property
    def score(self) -> float:
        """Right answers in per cent of the answered items, over all seeds."""
        if self.record.score is None:
            raise NotMeasured(f"{self.config} {self.suite} score", "; ".join(map(str, self.record.invalid)))
        return self.record.score

    @property
    def spread_pts(self) -> float:
        """Max − min of the score over seeds, in points."""
        if self.record.spread_pts is None:
            raise NotMeasured(f"{self.config} {self.suite} spread_pts", "one seed has no spread")
        return self.record.spread_pts

    @property
    def delta_pts(self) -> float:
        """Candidate − baseline on the same items, in points."""
        return self._known().delta_pts

    @property
    def interval_pts(self) -> tuple[float, float]:
        """The 95 % interval of ``delta_pts``."""
        return self._known().low_pts, self._known().high_pts

    @property
    def flips(self) -> tuple[int, int]:
        """Items that were right on the baseline and are wrong now, and the other way round."""
        return self._known().right_to_wrong, self._known().wrong_to_right

    @property
    def counts(self) -> dict[str, int]:
        """Items by outcome: correct, wrong, unparseable, truncated, failed."""
        return dict(self.record.counts)

    @property
    def validity(self) -> tuple[Reason, ...]:
        """Reasons not to believe the measurement; empty when it is valid."""
        return self.record.invalid

    def _known(self) -> AccuracyChange:
        if self.change is None:
            raise NotMeasured(f"{self.config} {self.suite} delta_pts", self.why)
        return self.change


@dataclass(frozen=True, slots=True)
class LengthShift:
    """How long the answers to the accuracy suites are against the baseline's to the same items."""

    config: str
    record: LengthDelta

    @property
    def share(self) -> float:
        """Mean generated tokens, candidate / baseline − 1: 0.018 is 1.8 % longer."""
        return self._known("share", self.record.shift)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of ``share``."""
        if self.record.interval is None:
            raise NotMeasured(f"{self.config} length_shift interval", self._why())
        return self.record.interval

    @property
    def tokens(self) -> float:
        """Mean generated tokens of an answer."""
        return self._known("tokens", self.record.tokens)

    @property
    def baseline_tokens(self) -> float:
        """Mean generated tokens of the baseline's answers to the same items."""
        return self._known("baseline_tokens", self.record.baseline_tokens)

    @property
    def answers(self) -> int:
        """How many answers are compared, over all suites and seeds."""
        return self.record.n

    @property
    def truncated(self) -> int:
        """Of these, how many ended at max_tokens on either side: their own ends are not known."""
        return self.record.truncated

    @property
    def validity(self) -> tuple[Reason, ...]:
        """Reasons why the figure decides nothing; empty when it does."""
        return (*self.record.faults, *self.record.doubts)

    def _known(self, name: str, value: float | None) -> float:
        if value is None:
            raise NotMeasured(f"{self.config} length_shift {name}", self._why())
        return value

    def _why(self) -> str:
        return "; ".join(map(str, self.validity)) or "not measured"


@dataclass(frozen=True, slots=True)
class KlDrift:
    """KL divergence of one configuration's next-token distributions from the baseline's, in nats per token.

    Raises ``NotMeasured`` with the reason for a figure without a value.
    """

    config: str
    record: Divergence
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
    record: PerplexityRecord
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

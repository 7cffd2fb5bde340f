"""The gates of a spec: limits, what enforces them, and the user's own rules."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pytest_tokenwatt.spec.scalars import Block, Filled, Name, NonNegative, Number, Positive, wrong

Mode = Literal["enforce", "info", "off"]
OnInconclusive = Literal["fail", "xfail", "skip"]


class GateBlock(Block):
    """What every gate takes."""

    mode: Mode = "enforce"
    """enforce; info: shown and never failing; off: no item."""
    on_inconclusive: OnInconclusive | None = None
    """What an inconclusive verdict does to the test; null: gates.on_inconclusive."""


class SloGate(GateBlock):
    """The latency promises hold."""

    at_rps: Positive | None = None
    """This rate must pass; no search is needed."""


class GoodputGate(GateBlock):
    """Tokens per second within the SLO, against the baseline."""

    min: NonNegative | None = 0.95
    """Least ratio to the baseline."""
    min_tok_s: Positive | None = None
    """Least tokens per second."""
    min_rps: Positive | None = None
    """Least requests per second."""


class SpeedGate(GateBlock):
    """Closed-loop throughput against the baseline."""

    min: NonNegative = 0.95
    """Least ratio to the baseline."""
    max_error: Positive = 0.05
    """Largest error of a conclusive ratio."""


class MemoryGate(GateBlock):
    """Peak memory against the baseline."""

    min: NonNegative = 1.0
    """Least gain: baseline peak / candidate peak."""


class EnergyGate(GateBlock):
    """Tokens per joule; informational without a limit."""

    min: Positive | None = None
    """Least ratio to the baseline."""
    min_tok_j: Positive | None = None
    """Least tokens per joule."""


class AccuracyGate(GateBlock):
    """How the accuracy suites are judged."""

    rule: Literal["point", "noninferiority"] = "point"
    """point: the difference itself; noninferiority: its confidence interval."""
    max_mean_drop_pts: NonNegative = 1.0
    """Largest mean drop over several suites, in points."""


class LengthGate(GateBlock):
    """Length of the answers against the baseline."""

    max_shift: Positive = 0.10
    """Largest relative change."""


class Rule(GateBlock):
    """A bound on any figure that was measured, or on any server metric."""

    name: Name
    """Name in test ids."""
    metric: Filled
    """A figure such as ttft_p50_ms, or server:<metric of the engine>."""
    min: Number | None = None
    """Least value."""
    max: Number | None = None
    """Largest value."""
    min_ratio: NonNegative | None = None
    """Least ratio to the baseline."""
    max_ratio: NonNegative | None = None
    """Largest ratio to the baseline."""
    configs: Annotated[tuple[Filled, ...], Field(min_length=1)] | None = None
    """Configurations it holds for; null: all."""
    scenario: Filled | None = None
    """Scenario it holds for; null: all."""

    @property
    def relative(self) -> bool:
        """Whether the rule needs a baseline."""
        return self.min_ratio is not None or self.max_ratio is not None

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        bounds = (self.min, self.max, self.min_ratio, self.max_ratio)
        if all(bound is None for bound in bounds):
            raise wrong("has no bound", "give min, max, min_ratio or max_ratio")
        _ordered("min", self.min, "max", self.max)
        _ordered("min_ratio", self.min_ratio, "max_ratio", self.max_ratio)
        return self


def _ordered(low_name: str, low: float | None, high_name: str, high: float | None) -> None:
    if low is not None and high is not None and low > high:
        raise wrong(f"{low_name} ({low:g}) is above {high_name} ({high:g})")


class Gates(Block):
    """Limits of every gate; absent: these defaults."""

    contract: GateBlock = GateBlock()
    """The engine answers what the measurements need."""
    slo: SloGate = SloGate()
    """The latency promises hold."""
    goodput: GoodputGate = GoodputGate()
    """Tokens per second within the SLO."""
    speed: SpeedGate = SpeedGate()
    """Closed-loop throughput."""
    memory: MemoryGate = MemoryGate()
    """Peak memory."""
    energy: EnergyGate = EnergyGate()
    """Tokens per joule."""
    accuracy: AccuracyGate = AccuracyGate()
    """Right answers."""
    length: LengthGate = LengthGate()
    """Length of the answers."""
    kl: GateBlock = GateBlock()
    """KL divergence; its limit is drift.max_nats_per_token."""
    perplexity: GateBlock = GateBlock()
    """Perplexity; its limits stand in drift.perplexity."""
    audit: GateBlock = GateBlock()
    """Timed output is the model's own; its limits stand in audit."""
    budget: GateBlock = GateBlock()
    """The rerun with less memory is healthy."""
    precision: GateBlock = GateBlock()
    """The declared precision is the one that runs."""
    score: GateBlock = GateBlock()
    """The record qualifies."""
    rules: tuple[Rule, ...] = ()
    """The user's own bounds."""
    on_inconclusive: OnInconclusive = "fail"
    """What an inconclusive verdict does to the test."""
    on_missing_baseline: Literal["fail", "record"] = "fail"
    """What relative gates do without any baseline; default record for a spec without configs."""

    def block(self, kind: str) -> GateBlock:
        """The block of a built-in gate such as ``slo``. Raises ``KeyError`` for any other name."""
        found = getattr(self, kind, None) if kind in type(self).model_fields else None
        if not isinstance(found, GateBlock):
            raise KeyError(kind)
        return found

    def inconclusive(self, gate: GateBlock) -> OnInconclusive:
        """What an inconclusive verdict of this gate (or rule) does to the test."""
        return gate.on_inconclusive or self.on_inconclusive

"""Drift: how far a configuration's next-token distributions are from the baseline's, and its perplexity on texts.

All divergences are in nats per token.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_tokenwatt.records.base import Reason


@dataclass(frozen=True, slots=True)
class Sequence:
    """Token ids that both engines score: ``ids[:prompt]`` is the prompt, what follows counts position by position."""

    name: str
    ids: tuple[int, ...]
    prompt: int


@dataclass(frozen=True, slots=True)
class TopK:
    """What one engine says of the scored positions of a sequence: flat arrays, ``k`` columns a position.

    ``ids`` and ``logprobs`` are the ``k`` likeliest tokens by falling probability (unused places: id −1, NaN); of an
    engine that was scored on fixed ids, those of the baseline in its order.
    ``chosen`` is the log-probability of the token that stands there, one a position. A probability of zero is −inf,
    a position that the server did not score is NaN throughout.
    """

    k: int
    ids: array[int] = field(default_factory=lambda: array("i"))
    logprobs: array[float] = field(default_factory=lambda: array("f"))
    chosen: array[float] = field(default_factory=lambda: array("f"))

    @property
    def positions(self) -> int:
        """Scored positions."""
        return len(self.chosen)


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many sequences lie in each bin of their lower bound: ``bins`` are the edges, one more than ``counts``."""

    bins: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Divergence:
    """The divergence of one scoring from another on the same sequences (baseline ‖ the other).

    ``kl`` is extrapolated from two nested cut-offs (K/2 and K), ``kl_lower`` is a guaranteed bound, ``kl_sampled``
    assumes nothing of the tail; all three are means over sequences of their mean over positions. ``kl_se`` and its
    kin are standard errors clustered by sequence. ``kl_per_token`` weighs by tokens. ``tail_mass`` is the baseline's
    mass outside both top-K. ``top1_agreement`` is the share of positions whose likeliest token is the same, ties
    counted as agreement. ``by_confidence`` maps a range of the baseline's largest probability to (kl_lower, tokens).
    ``per_sequence`` holds the lower bound of each sequence; ``histogram`` stands for them in a record of a report,
    which has no more. ``None`` where it cannot be had.
    ``doubts`` leave the figures undecided without making them invalid (the two estimates disagree).
    """

    kl: float | None
    kl_se: float | None
    kl_lower: float | None
    kl_lower_se: float | None
    kl_sampled: float | None
    kl_sampled_se: float | None
    kl_median: float | None
    kl_per_token: float | None
    tail_mass: float | None
    top1_agreement: float | None
    k: int
    sequences: int
    tokens: int
    invalid_positions: int
    by_confidence: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    per_sequence: tuple[float, ...] = ()
    invalid: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()
    doubts: tuple[Reason, ...] = ()
    histogram: Histogram | None = None


@dataclass(frozen=True, slots=True)
class PerplexityRecord:
    """One corpus on one configuration. ``nll`` is the mean negative log-likelihood per token of each window.

    ``ppl`` = exp(mean over windows). ``sha256`` is the hash of the baseline's windows; others are not compared. Where
    an engine can only score the beginning of each, ``base_nll`` is what the baseline said of these same beginnings,
    window by window; empty where both scored the whole.
    """

    name: str
    sha256: str
    windows: int
    tokens: int
    nll: tuple[float, ...]
    ppl: float | None
    invalid: tuple[Reason, ...] = ()
    base_nll: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerLength:
    """The greedy answer to one prompt, which ended by itself unless it is ``cut`` at drift.tokens.

    ``tokens`` are the generated ones; ``None`` when the request failed or the server did not count them.
    """

    id: str
    tokens: int | None
    cut: bool = False


@dataclass(frozen=True, slots=True)
class DriftRecord:
    """What was scored on one configuration.

    ``sha256`` is the hash of the scored ids. ``against`` is the divergence from the baseline (``None`` on the
    baseline), ``control`` the baseline's divergence from itself in another order and concurrency (on the baseline
    only). ``route`` names how the log-probabilities came: ``prompt_logprobs`` (each engine's own likeliest tokens) or
    ``fixed_ids`` (the baseline's likeliest, in binary); ``None`` in a record from elsewhere that does not say.
    ``decode_gap`` is the mean absolute difference, in nats,
    between log-probabilities while decoding and the same engine's prefill, of the tokens that ``decode_route`` names:
    ``served_tokens`` or ``trace_replay`` (of the scored sequences). ``answers`` are the lengths of the greedy answers
    to ``drift.prompts``, empty where the prompts are those of suites; they compare where ``answers_sha256`` (of the
    prompts and settings) is the same.
    """

    sha256: str
    route: str | None
    k: int
    sequences: int
    tokens: int
    against: Divergence | None
    control: Divergence | None
    perplexity: Mapping[str, PerplexityRecord] = field(default_factory=dict)
    decode_gap: float | None = None
    decode_tokens: int = 0
    file: str | None = None
    invalid: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()
    decode_route: str | None = None
    answers: tuple[AnswerLength, ...] = ()
    answers_sha256: str = ""


@dataclass(frozen=True, slots=True)
class KlDelta:
    """A configuration's divergence from the baseline less the baseline's from itself; ``None`` with ``faults``.

    ``value`` is kl − ``control``, ``se`` its standard error. ``lower`` and ``upper`` are one-sided 95 % bounds: of the
    guaranteed bound from below, of ``value`` from above; ``None`` where they cannot be had. ``bit_identical`` says that
    a divergence of exactly 0 is to be believed. ``doubts`` say why the figure cannot pass; it may still fail.
    """

    value: float | None = None
    se: float | None = None
    lower: float | None = None
    upper: float | None = None
    control: float | None = None
    bit_identical: bool = False
    doubts: tuple[Reason, ...] = ()
    faults: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class PerplexityDelta:
    """One corpus on a configuration against the baseline, window by window.

    ``dnll`` is the mean over windows of candidate − baseline negative log-likelihood, in nats per token, ``dnll_se``
    its standard error over windows (``None`` below two). ``ppl`` is the candidate's, ``ppl_bf16`` the baseline's.
    ``None`` where ``invalid`` says why.
    """

    name: str
    dnll: float | None
    dnll_se: float | None
    ppl: float | None
    ppl_bf16: float | None
    windows: int
    tokens: int
    invalid: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class DriftDelta:
    """All that a configuration's scoring says against the baseline's; ``control`` is the baseline's of itself."""

    kl: KlDelta
    control: Divergence | None = None
    perplexity: Mapping[str, PerplexityDelta] = field(default_factory=dict)

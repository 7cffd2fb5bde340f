"""The blocks of quality and of the derived figures: accuracy, drift, audit, budget, score, fleet."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from pytest_tokenwatt.spec.scalars import (
    Block,
    Boolean,
    Count,
    CountOrZero,
    Filled,
    Integer,
    JsonMapping,
    Name,
    NonNegative,
    Number,
    Percent,
    Positive,
    Share,
    Text,
    one_or_more,
    whole_number,
    wrong,
)


class Sampling(Block):
    """Sampling fields, all sent explicitly; anything else goes into extra_body."""

    temperature: NonNegative = 0
    """0 is greedy."""
    top_p: Share = 1
    """Mass of the nucleus."""
    top_k: Integer = 0
    """0: all tokens."""
    min_p: Share = 0
    """Least probability relative to the likeliest token."""
    repetition_penalty: Positive = 1
    """1: none."""
    presence_penalty: Number = 0
    """0: none."""
    frequency_penalty: Number = 0
    """0: none."""
    seed: Integer | None = None
    """Seed of sampled answers."""


class Suite(Block):
    """One accuracy suite."""

    suite: Filled
    """File with one item a line: id, prompt or messages, answer."""
    name: Name | None = None
    """Name in test ids; null: the file's name without its ending."""
    scorer: Filled = "numeric"
    """How an answer is compared."""
    api: Literal["completions", "chat"] = "completions"
    """Which API is asked."""
    shots: CountOrZero | None = None
    """Worked examples in the prompt, for reports."""
    max_drop_pts: NonNegative = 1.0
    """Largest drop against the baseline in points."""
    min_score: Percent | None = None
    """Least score in per cent, whatever the baseline does."""
    limit: Count = 200
    """Items asked."""
    seeds: Count = 1
    """How often the suite is asked."""
    max_tokens: Count = 384
    """Longest answer."""
    stop: tuple[Text, ...] = ()
    """Texts that end an answer."""
    concurrency: Count = 32
    """Requests in flight."""
    sampling: Sampling = Sampling()
    """Sampling of the answers."""
    extra_body: JsonMapping = Field(default_factory=dict)
    """Free-form fields added to every request."""
    control: Boolean = False
    """Ask the baseline twice and report its own flips."""

    @property
    def title(self) -> str:
        """The name in test ids."""
        stem = self.suite.replace("\\", "/").rsplit("/", 1)[-1]
        return self.name or stem.split(".", 1)[0] or stem


class Perplexity(Block):
    """One corpus for the perplexity gate."""

    name: Name
    """Name in test ids."""
    file: Filled
    """A text file."""
    window: Count = 2048
    """Tokens of one window."""
    windows: Count = 128
    """Windows scored."""
    max_dnll: NonNegative = 0.02
    """Largest rise of the negative log-likelihood per token."""


def _top_k(value: object) -> object:
    count = whole_number(value)
    if count < 2 and count != -1:
        raise wrong(f"must be at least 2, or -1 for the whole vocabulary, not {count}")
    return count


class Drift(Block):
    """KL divergence of the candidate from the baseline."""

    prompts: Filled | None = None
    """File of prompts; null: those of the accuracy suite."""
    sequences: Count = 256
    """Continuations scored."""
    tokens: Count = 256
    """Tokens of each continuation."""
    top_k: Annotated[int, BeforeValidator(_top_k)] = 20
    """Log-probabilities asked for per position; -1: the whole vocabulary."""
    max_nats_per_token: NonNegative = 0.02
    """Largest divergence."""
    control: Boolean = True
    """Score the baseline against itself."""
    decode: Boolean = True
    """Score the decode path too."""
    perplexity: tuple[Perplexity, ...] = ()
    """Corpora of the perplexity gate."""


class Audit(Block):
    """Whether timed output is what the model would have said."""

    picked: Count = 24
    """Prompts looked at, of each timed run."""
    max_gap_median: NonNegative = 0.5
    """Largest median gap of log-probability per token."""
    max_empty_alone: CountOrZero = 1
    """Answers that may be empty where the baseline's is not."""
    min_length_ratio: NonNegative = 0.8
    """Least median length ratio."""


class Budget(Block):
    """Rerun with less memory; extra engine starts."""

    factor: Positive = 1.02
    """Memory budget as a multiple of the measured peak."""


class Score(Block):
    """The leaderboard figures."""

    points_per_nat: NonNegative = 56.8
    """Points of drift per nat of KL divergence."""
    tiers: dict[Name, NonNegative] = Field(default_factory=lambda: {"A": 1.0, "B": 2.0, "C": 5.0})
    """Tier: largest mean drop in points."""


class Fleet(Block):
    """What the figures mean for many cards."""

    cards: Count = 64
    """Cards of the fleet."""


Suites = Annotated[tuple[Suite, ...], one_or_more(Suite)]

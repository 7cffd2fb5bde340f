"""Accuracy: what each item of a suite came to, and what that makes of a suite on one configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pytest_tokenwatt.records.base import Reason


class Outcome(StrEnum):
    """What became of one item; only the first four are answers, and only ``CORRECT`` counts as right."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNPARSEABLE = "unparseable"
    TRUNCATED = "truncated"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SuiteItem:
    """One line of a suite. Either ``prompt`` or ``messages`` is set; ``answer`` is the gold as the file has it.

    ``choices`` are the options of a multiple-choice item, ``domain`` and ``template`` group items: those that share a
    template are not independent.
    """

    id: str
    answer: str
    prompt: str | None = None
    messages: tuple[Mapping[str, Any], ...] | None = None
    choices: tuple[str, ...] = ()
    domain: str | None = None
    template: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said to an item: the text as it came, without reasoning that it marked as such.

    ``text`` is ``None`` when the request failed; ``error`` then says how. ``reasoning_only`` is true when only the
    reasoning field had content.
    """

    text: str | None
    finish_reason: str | None = None
    output_tokens: int | None = None
    error: str | None = None
    reasoning_only: bool = False


@dataclass(frozen=True, slots=True)
class Scored:
    """The outcome of one answer, and what the scorer read in it."""

    outcome: Outcome
    parsed: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ItemResult:
    """One item asked with one seed. ``cluster`` groups items that are not independent (default: the item itself)."""

    id: str
    seed: int
    outcome: Outcome
    parsed: str | None = None
    output_tokens: int | None = None
    cluster: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SuiteRecord:
    """One suite on one configuration. ``score`` is in per cent over all seeds, failed items left out.

    ``sha256`` is the hash of what was asked (items, few-shot prefix, sampling, scorer); records with another one are
    not compared. ``spread_pts`` is max − min of the score over seeds (``None`` with one). ``control`` holds a second
    pass over the same items in another order and concurrency. ``answers_file`` has the texts, so that a replay can
    score anew. Figures are ``None`` when ``invalid`` is not empty. ``n`` is how many answers the score is of where
    ``counts`` does not tell: records of other tools have a score without ``items``, and of
    those ``limit`` is how many items their own spec asked for.
    """

    name: str
    suite: str
    sha256: str
    scorer: str
    api: str
    shots: int | None
    max_tokens: int
    seeds: int
    items: tuple[ItemResult, ...]
    score: float | None
    spread_pts: float | None
    counts: Mapping[str, int]
    invalid: tuple[Reason, ...]
    control: tuple[ItemResult, ...] = ()
    notes: tuple[str, ...] = ()
    answers_file: str | None = None
    domains: Mapping[str, str] = field(default_factory=dict)
    n: int | None = None
    limit: int | None = None

    @property
    def answered(self) -> int | None:
        """How many answers the score is of, failed ones left out; ``None`` when the record does not tell."""
        if self.counts:
            return sum(self.counts.values()) - self.counts.get(Outcome.FAILED, 0)
        return self.n


@dataclass(frozen=True, slots=True)
class FlipRate:
    """How many of ``n`` answers changed between right and not right in a second pass over the same items."""

    flips: int
    n: int

    @property
    def share(self) -> float:
        """As a fraction."""
        return self.flips / self.n


@dataclass(frozen=True, slots=True)
class DomainDelta:
    """One domain of a suite against the baseline: ``interval_pts`` is the 95 % one, ``p_value`` is Holm's."""

    delta_pts: float
    n: int
    interval_pts: tuple[float, float]
    p_value: float | None


@dataclass(frozen=True, slots=True)
class SuiteDelta:
    """One suite of a configuration against the baseline's. With a ``fault`` the two cannot be compared.

    ``n`` pairs of answers to ``items`` items are compared, worth ``independent`` ones. Flips, intervals (95 %, and
    the 90 % one of the gate) and ``mid_p`` are ``None`` without item results; ``mid_p`` also where items share a
    template or are asked with several seeds. ``resolvable_pts`` is the drop that the sample shows with 80 % power at
    one-sided 5 %, at ``flip_rate``, which is of the baseline's ``control``, ``observed`` or ``assumed``.
    """

    delta_pts: float | None = None
    n: int | None = None
    items: int | None = None
    independent: float | None = None
    right_to_wrong: int | None = None
    wrong_to_right: int | None = None
    interval_pts: tuple[float, float] | None = None
    interval_90_pts: tuple[float, float] | None = None
    mid_p: float | None = None
    resolvable_pts: float | None = None
    flip_rate: float | None = None
    flip_source: str | None = None
    domains: Mapping[str, DomainDelta] = field(default_factory=dict)
    fault: Reason | None = None


@dataclass(frozen=True, slots=True)
class LengthDelta:
    """How long a configuration's answers are against the baseline's, over all suites; ``None`` with ``faults``.

    ``shift`` is candidate / baseline − 1 of the mean generated tokens (``tokens``, ``baseline_tokens``), ``interval``
    its 95 % one, over ``n`` pairs of answers to ``clusters`` independent items. ``truncated`` pairs were cut at
    max_tokens on either side; ``left_out`` failed, or were not counted, on either. ``doubts`` say why the figure
    decides nothing.
    """

    shift: float | None = None
    interval: tuple[float, float] | None = None
    n: int = 0
    clusters: int = 0
    tokens: float | None = None
    baseline_tokens: float | None = None
    truncated: int = 0
    left_out: int = 0
    doubts: tuple[Reason, ...] = ()
    faults: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class AccuracyDelta:
    """All suites of a configuration against the baseline's, by name.

    Drops are baseline − candidate over the suites that can be compared, each of which counts the same. ``tier`` is
    ``None`` without tiers or beyond all of them. ``controls`` are flips of the configuration's own second pass.
    """

    suites: Mapping[str, SuiteDelta]
    controls: Mapping[str, FlipRate] = field(default_factory=dict)
    mean_drop_pts: float | None = None
    worst: str | None = None
    worst_drop_pts: float | None = None
    tier: str | None = None
    valid_domains: int = 0
    left_out: tuple[str, ...] = ()

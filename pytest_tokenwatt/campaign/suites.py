"""The suites of a spec: loaded once, checked before anything starts, and what they will be able to tell."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pytest_tokenwatt.errors import Problem, SpecError, UsageError
from pytest_tokenwatt.gates.deltas import nothing_read
from pytest_tokenwatt.metrics.paired import UnequalItems, compare
from pytest_tokenwatt.metrics.resolution import ASSUMED_FLIP_RATE, LEAST_MARGIN_PTS, items_to_resolve, resolution
from pytest_tokenwatt.quality.scorers import find_scorer
from pytest_tokenwatt.quality.scoring import Scorer
from pytest_tokenwatt.quality.suites import LoadedSuite, open_suite
from pytest_tokenwatt.records import SuiteRecord
from pytest_tokenwatt.spec.model import Spec, Suite
from pytest_tokenwatt.values import Accuracy, AccuracyChange

_TOKEN_S = 0.03
"""Assumed for a token of an answer: nothing says beforehand how fast an engine is."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """The suites of one spec; ``scorers`` are those that others brought."""

    spec: Spec
    scorers: Mapping[str, Scorer] = field(default_factory=dict)
    _loaded: dict[str, LoadedSuite] = field(default_factory=dict)

    def scorer(self, suite: Suite) -> Scorer:
        """The suite's scorer. Raises ``UsageError`` for a name that nobody has."""
        return find_scorer(suite.scorer, self.scorers)

    def open(self, suite: Suite) -> LoadedSuite:
        """The suite, checked. Raises ``SpecError`` with all that is wrong, ``UsageError`` for its scorer."""
        if suite.title not in self._loaded:
            place = self.spec.resolve(suite.suite)
            self._loaded[suite.title] = open_suite(place, suite, self.scorer(suite).check_gold)
        return self._loaded[suite.title]

    def problems(self) -> Iterator[Problem]:
        """What is wrong with the suites, and what they cannot tell. An absent file is the spec's own preflight's."""
        for number, suite in enumerate(self.spec.accuracy):
            if not self.spec.resolve(suite.suite).is_file():
                continue
            try:
                loaded = self.open(suite)
            except SpecError as error:
                yield from error.problems
            except UsageError as error:
                yield Problem(str(self.spec.path), self._line(number, "scorer"), "scorer", error.what, error.remedy)
            else:
                yield from self._coarse(number, suite, loaded)
                yield from self._loose_stops(number, suite)

    def tells(self) -> dict[str | None, str]:
        """By suite, what its gate will be able to tell, assuming the usual rate of flips; unusable ones left out."""
        told: dict[str | None, str] = {}
        for suite in self.spec.accuracy:
            try:
                items = len(self.open(suite).items)
            except UsageError:
                continue
            drop_pts = resolution(_independent(items, suite)).drop_pts
            told[suite.title] = f"{items} items can resolve a drop of {drop_pts:.1f} points (if 5 % of them flip)"
        return told

    def _coarse(self, number: int, suite: Suite, loaded: LoadedSuite) -> Iterator[Problem]:
        """A suite too small for its margin: under ``noninferiority`` it can never pass."""
        candidates = [each for each in self.spec.configurations if each.role != "baseline"]
        rules = {each.gates.accuracy.rule for each in candidates if each.gates.accuracy.mode == "enforce"}
        told = resolution(_independent(len(loaded.items), suite))
        if not rules or told.drop_pts <= suite.max_drop_pts:
            return
        what = (
            f"{len(loaded.items)} items can resolve a drop of {told.drop_pts:.1f} points, and max_drop_pts is"
            f" {suite.max_drop_pts:g} (assuming that {100 * ASSUMED_FLIP_RATE:g} % flip)"
        )
        remedy = "raise max_drop_pts"
        if suite.max_drop_pts >= LEAST_MARGIN_PTS:
            remedy = f"ask {items_to_resolve(suite.max_drop_pts, told.flip_rate):,} items, or raise max_drop_pts"
        severity = "error" if "noninferiority" in rules and not self.spec.is_quick else "warning"
        place = str(self.spec.path)
        yield Problem(place, self._line(number, "limit"), f"accuracy.{suite.title}", what, remedy, severity=severity)

    def _loose_stops(self, number: int, suite: Suite) -> Iterator[Problem]:
        """Stops that a word of the answer, or of the reasoning before it, can set off."""
        for stop in suite.stop:
            if stop[:1].isalnum():
                what = f"{stop!r} ends an answer wherever it stands, within its reasoning and longer words, too"
                remedy = f"write {json.dumps(chr(10) + stop, ensure_ascii=False)}, which begins a line"
                place = str(self.spec.path)
                yield Problem(place, self._line(number, "stop"), "accuracy.stop", what, remedy, severity="warning")

    def _line(self, number: int, key: str) -> int | None:
        line = self.spec.line
        return line("accuracy", number, key) or line("accuracy", key) or line("accuracy", number) or line("accuracy")


def _independent(items: int, suite: Suite) -> int:
    """How many answers tell something of their own: greedy ones to one item are the same with every seed."""
    return items * suite.seeds if suite.sampling.temperature > 0 else items


def estimated_s(spec: Spec, *, control: bool) -> float:
    """Seconds that the suites of one configuration will probably take; ``control``: it is the baseline."""
    return sum(_estimated_s(suite, control=control and suite.control) for suite in spec.accuracy)


def _estimated_s(suite: Suite, *, control: bool) -> float:
    passes = suite.seeds + (2 if control else 0)  # the control runs at half the concurrency
    return passes * suite.limit / suite.concurrency * suite.max_tokens * _TOKEN_S


def described(spec: Spec, *, control: bool) -> Iterator[str]:
    """One line a suite for the plan."""
    for suite in spec.accuracy:
        seeds = f" x {suite.seeds} seeds" if suite.seeds > 1 else ""
        again = ", asked again as control" if control and suite.control else ""
        items = f"at most {suite.limit} items{seeds} of at most {suite.max_tokens} tokens"
        yield f"accuracy of {suite.title}: {items}, {suite.concurrency} at once{again}"


def compared(config: str, record: SuiteRecord, baseline: SuiteRecord | None) -> Accuracy:
    """A suite's value for tests, with its change against the baseline's record of the same items, if there is one."""
    if baseline is None:
        return Accuracy(config, record)
    unread = nothing_read(baseline)
    if baseline.invalid or unread or baseline.sha256 != record.sha256:
        known = (*baseline.invalid, *((unread,) if unread else ()))
        return Accuracy(config, record, why="; ".join(map(str, known)) or "the baseline was asked something else")
    try:
        found = compare(baseline.items, record.items)
    except UnequalItems as error:
        return Accuracy(config, record, why=str(error))
    interval, delta_pts = found.interval_pts(), found.delta_pts
    if interval is None or delta_pts is None:
        return Accuracy(config, record, why="no item was answered by both")
    told = resolution(found.effective_n, control=control_rate(baseline), observed=found.counts.flip_rate)
    change = AccuracyChange(
        delta_pts=delta_pts,
        low_pts=interval[0],
        high_pts=interval[1],
        items=found.counts.n,
        right_to_wrong=found.counts.base_only,
        wrong_to_right=found.counts.candidate_only,
        mid_p=found.mid_p,
        resolvable_drop_pts=told.drop_pts,
    )
    return Accuracy(config, record, change)


def control_rate(baseline: SuiteRecord) -> float | None:
    """The share of the baseline's own items that flip when they are asked again; ``None`` without a control."""
    if not baseline.control:
        return None
    first = [item for item in baseline.items if item.seed == 0]
    return compare(first, baseline.control).counts.flip_rate

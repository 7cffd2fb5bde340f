"""What the figures of a suite say against each other: counts, score, difference, flips, interval and p value.

Who changes one of them by hand and leaves the others gets no verdict. Failed answers are in no score, and a pair of
which one failed is in no difference; answers that were cut or could not be read count as not right.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from scipy.special import bdtr

from pytest_tokenwatt.records import Reason
from pytest_tokenwatt.records.accuracy import Outcome
from pytest_tokenwatt.store.replay.fields import Fields

CODE = "contradiction"
ROUNDED_PTS = 0.11
"""Two scores and their difference, each rounded to 0.1 points, may differ by so much."""
_DIGITS_PTS = 2e-4
"""The same, each rounded to the six significant digits of our own reports."""
_DIGITS = 1e-5
"""Relative: a p value of six significant digits."""


@dataclass(frozen=True, slots=True)
class Answers:
    """How the answers of one side came out; ``None`` of a side that does not count them."""

    right: int
    answered: int
    failed: int


def answers(entry: Fields) -> Answers | None:
    """What ``counts`` says."""
    counts = entry.block("counts")
    found = {outcome: counts.count(outcome) or 0 for outcome in Outcome}
    if not counts.data or not (sum(found.values()) or counts.has(Outcome.CORRECT)):
        return None
    failed = found.pop(Outcome.FAILED)
    return Answers(found[Outcome.CORRECT], sum(found.values()), failed)


@dataclass(frozen=True, slots=True)
class Suite:
    """One suite of a configuration (``entry``) and of its baseline; ``ours``: one of our own reports has both."""

    name: str
    entry: Fields
    base: Fields | None
    ours: bool

    def reasons(self) -> tuple[Reason, ...]:
        """The first contradiction, as why the suite is not to be believed."""
        checks = (self._nothing, self._score, self._size, self._flips, self._p_value, self._scores, self._interval)
        found = next((text for check in checks for text in check()), None)
        return () if found is None else (Reason(CODE, f"{self.name}: {found}"),)

    @property
    def _tolerance_pts(self) -> float:
        """How far figures of the same answers may differ."""
        return _DIGITS_PTS if self.ours and self.entry.block("counts").data else ROUNDED_PTS

    def _nothing(self) -> Iterator[str]:
        told = any(self.entry.number(figure) is not None for figure in ("delta_pts", "score"))
        if told and self.entry.count("n") == 0:
            yield "figures of 0 answers are stored"

    def _score(self) -> Iterator[str]:
        """The score is the share of right answers."""
        score, own = self.entry.number("score"), answers(self.entry)
        if score is None or own is None:
            return
        if not own.answered:
            yield f"a score of {score:g} % is stored, but none of its answers is counted"
        elif abs(100.0 * own.right / own.answered - score) > self._tolerance_pts:
            yield f"a score of {score:g} % is stored, but {own.right} of {own.answered} answers are right"

    def _size(self) -> Iterator[str]:
        """All answered ones count; where there is a difference, but for those that failed on the other side."""
        n, own = self.entry.count("n"), answers(self.entry)
        if n is None or own is None or not self.ours:
            return
        compared = self.entry.data.get("flips") is not None
        theirs = answers(self.base) if self.base is not None else None
        least = most = own.answered
        if compared:
            least = own.answered - theirs.failed if theirs is not None else 0
            most = min(own.answered, theirs.answered) if theirs is not None else own.answered
        if not least <= n <= most:
            yield f"figures of {n} answers are stored, but {own.answered} are counted"

    def _flips(self) -> Iterator[str]:
        """The difference is that of flips both ways; what flipped is counted as it came out."""
        flips, n, delta = _flips(self.entry), self.entry.count("n"), self.entry.number("delta_pts")
        if flips is None or not n:
            return
        lost, gained = flips
        if lost + gained > n:
            yield f"{lost + gained} of {n} answers cannot have flipped"
        own = answers(self.entry)
        if own is not None and (gained > own.right or lost > own.answered - own.right):
            yield f"{gained} answers turned right and {lost} wrong, but {own.right} of {own.answered} are right"
        if delta is not None and abs(100.0 * (gained - lost) / n - delta) > self._tolerance_pts:
            told = f"{lost} of {n} answers turned wrong and {gained} right"
            yield f"a difference of {delta:g} pt is stored, but {told}"

    def _p_value(self) -> Iterator[str]:
        """McNemar's mid-p value is one of the flips alone."""
        flips, stored = _flips(self.entry), self.entry.number("mid_p", least=0.0, most=1.0)
        if flips is None or stored is None:
            return
        wanted = _mid_p(*flips)
        if not math.isclose(stored, wanted, rel_tol=_DIGITS, abs_tol=1e-12):
            yield f"a mid-p value of {stored:g} is stored, but that of its flips is {wanted:.6g}"

    def _scores(self) -> Iterator[str]:
        """The difference is that of the scores, as far as the same answers are in all of them."""
        delta, score = self.entry.number("delta_pts"), self.entry.number("score")
        base = self.base.number("score", least=0.0, most=100.0) if self.base is not None else None
        if delta is None or score is None or base is None:
            return
        if abs(score - base - delta) > self._unequal_pts():
            text = f"a difference of {delta:g} pt is stored, but the scores {score:g} and {base:g} differ by"
            yield f"{text} {score - base:.3g}"

    def _unequal_pts(self) -> float:
        """k answers out of m that are in one figure and not in the other change it by 100 k / m points at most."""
        own, theirs = answers(self.entry), answers(self.base) if self.base is not None else None
        if own is None or theirs is None or not own.answered or not theirs.answered:
            return ROUNDED_PTS
        failed = theirs.failed / own.answered + own.failed / theirs.answered
        return self._tolerance_pts + 100.0 * failed

    def _interval(self) -> Iterator[str]:
        """The interval of a difference is around it."""
        delta, ends = self.entry.number("delta_pts"), self.entry.pair("interval_pts")
        if delta is None or ends is None:
            return
        low, high = ends
        if not low - self._tolerance_pts <= delta <= high + self._tolerance_pts:
            yield f"a difference of {delta:g} pt is stored outside of its interval, {low:g} to {high:g}"


def _flips(entry: Fields) -> tuple[int, int] | None:
    """Answers that turned wrong, and right."""
    flips = entry.block("flips")
    lost, gained = flips.count("right_to_wrong"), flips.count("wrong_to_right")
    return None if lost is None or gained is None else (lost, gained)


def _mid_p(one: int, other: int) -> float:
    """McNemar's mid-p value: half of the probability of what was observed is left out of each tail."""
    flips, fewer = one + other, min(one, other)
    if not flips or one == other:
        return 1.0 - _probability(fewer, flips) / 2 if flips else 1.0
    return 2.0 * float(bdtr(fewer, flips, 0.5)) - _probability(fewer, flips)


def _probability(count: int, of: int) -> float:
    """That ``count`` of so many fair coins fall on one side."""
    return float(bdtr(count, of, 0.5)) - (float(bdtr(count - 1, of, 0.5)) if count else 0.0)


def misordered(kl: Mapping[str, float | None]) -> Iterator[Reason]:
    """A guaranteed bound that lies above what it bounds, by more than their errors."""
    value, lower = kl.get("kl"), kl.get("kl_lower")
    if value is None or lower is None:
        return
    joint = math.hypot(kl.get("kl_se") or 0.0, kl.get("kl_lower_se") or 0.0)
    if lower - value > max(_JOINT_ERRORS * joint, _DIGITS * max(abs(value), abs(lower)), _ROUNDED_NATS):
        text = f"a divergence of {value:.4g} nats is stored, but it is at least {lower:.4g}"
        yield Reason(CODE, text)


def other_dnll(name: str, corpus: Fields) -> Iterator[Reason]:
    """A difference of mean log-likelihoods that is not the one of the perplexities beside it."""
    dnll, ppl, base = corpus.number("dnll"), corpus.number("ppl", least=0.0), corpus.number("ppl_bf16", least=0.0)
    if dnll is None or not ppl or not base:
        return
    derived, error = math.log(ppl) - math.log(base), corpus.number("dnll_se", least=0.0) or 0.0
    if abs(derived - dnll) > max(_ROUNDED_DNLL, _JOINT_ERRORS * error):
        text = f"{name}: a dnll of {dnll:.4g} nats is stored, but perplexities of {ppl:.4g} and {base:.4g}"
        yield Reason(CODE, f"{text} are {derived:.4g} apart")


_ROUNDED_DNLL = 0.002
"""Of perplexities that were rounded, or are of a few windows more."""
_JOINT_ERRORS = 3.0
_ROUNDED_NATS = 1e-5
"""How far logarithms of single precision may be off."""

"""The scorers by name: those built in, and those that others bring."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.quality.choice import ChoiceScorer
from pytest_tokenwatt.quality.numeric import NumericScorer
from pytest_tokenwatt.quality.patterns import compiled, searched
from pytest_tokenwatt.quality.scoring import Scorer
from pytest_tokenwatt.records.accuracy import Outcome, Scored, SuiteItem

_SHOWN = 80
_LETTER = "0-9A-Za-z\u00c0-\u052f"


class ExactScorer:
    """Compares the whole answer with the gold, case and punctuation included; only runs of white space are one."""

    name = "exact"

    def check_gold(self, item: SuiteItem) -> str | None:
        """A gold must not be blank."""
        return None if item.answer.strip() else "the answer is blank: give the text that is right"

    def score(self, item: SuiteItem, text: str, *, cut: bool) -> Scored:
        """Correct when both are the same text; a cut answer that differs could have gone on differently."""
        answer = _spaced(text)
        if answer == _spaced(item.answer):
            return Scored(Outcome.CORRECT, _short(answer))
        return _not_right(answer, cut)


class ContainsScorer:
    """Looks for the gold in the answer, whatever the case, and not within a longer word or number."""

    name = "contains"

    def check_gold(self, item: SuiteItem) -> str | None:
        """A gold must not be blank."""
        return None if item.answer.strip() else "the answer is blank: give the text that an answer must contain"

    def score(self, item: SuiteItem, text: str, *, cut: bool) -> Scored:
        """Correct when the gold is there; nothing that a cut took could undo that."""
        if _words(item.answer).search(_folded(text)):
            return Scored(Outcome.CORRECT, _short(_spaced(item.answer)))
        return _not_right(_spaced(text), cut)


class RegexScorer:
    """Searches the gold, a regular expression, in the answer.

    The gold is the pattern, since it is what differs from item to item; whoever wants to extract by one pattern for a
    whole suite brings a scorer. Patterns that could match for ever are refused with the gold (see ``patterns``).
    """

    name = "regex"

    def check_gold(self, item: SuiteItem) -> str | None:
        """A gold must be a regular expression that is safe to search and does not match everything."""
        pattern = compiled(item.answer)
        if isinstance(pattern, str):
            return pattern
        return "the pattern matches an empty answer, and so any" if pattern.search("") else None

    def score(self, item: SuiteItem, text: str, *, cut: bool) -> Scored:
        """Correct when the pattern is found in the first or the last 1,000 characters."""
        pattern = compiled(item.answer)
        if isinstance(pattern, str):
            return Scored(Outcome.UNPARSEABLE, detail=pattern)
        found = searched(pattern, text)
        return _not_right(_spaced(text), cut) if found is None else Scored(Outcome.CORRECT, _short(found))


BUILT_IN: Mapping[str, Scorer] = {
    scorer.name: scorer for scorer in (NumericScorer(), ExactScorer(), ChoiceScorer(), RegexScorer(), ContainsScorer())
}


def find_scorer(name: str, extra: Mapping[str, Scorer] | None = None) -> Scorer:
    """The scorer of that name; those built in come before ``extra``. Raises ``UsageError`` that names the nearest."""
    known: dict[str, Scorer] = {**(extra or {}), **BUILT_IN}
    if name in known:
        return known[name]
    near = get_close_matches(name, known, 1)
    remedy = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known))}"
    raise UsageError(f"there is no scorer {name!r}", remedy=remedy)


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _not_right(answer: str, cut: bool) -> Scored:
    if cut:
        return Scored(Outcome.TRUNCATED, _short(answer), "ended at max_tokens without the gold")
    return Scored(Outcome.WRONG, _short(answer))


def _folded(text: str) -> str:
    # Word by word: normalising is quadratic in the marks that follow one letter.
    return " ".join(unicodedata.normalize("NFKC", word[:1000]).casefold() for word in text.split())


@lru_cache(maxsize=4096)
def _words(gold: str) -> re.Pattern[str]:
    """The gold with no letter or digit of an alphabet beside its own; scripts without spaces have no such border."""
    folded = _folded(gold)
    before = f"(?<![{_LETTER}])" if re.match(f"[{_LETTER}]", folded) else ""
    behind = f"(?![{_LETTER}])" if re.search(f"[{_LETTER}]$", folded) else ""
    return re.compile(before + re.escape(folded) + behind)

"""The scorer of numbers: which number of an answer counts, and whether it is the gold."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from pytest_tokenwatt.quality.markers import Form, Marked, marked
from pytest_tokenwatt.quality.notation import CURRENCIES, normalise
from pytest_tokenwatt.quality.numbers import Found, last_number, numbers_in, spell
from pytest_tokenwatt.records.accuracy import Outcome, Scored, SuiteItem

_LONGEST_GOLD = 64
_UNIT_WORDS = 3
_ASIDE = re.compile(r"\b(?:because|since|as|for|which|so)\b|\(")
_OPERATOR = re.compile(rf"[ ]?(?:[-+*/×÷·x]|\\times|\\cdot|\\div)[ ]?[{CURRENCIES}(]?[ ]?")
_LABEL = re.compile(rf"(?:[A-Za-z]\w{{0,20}}[ ]?[=≈][ ]?)?[-+−(\[{{*\\{CURRENCIES}≈~ ]{{0,8}}")
_REST_OF_LINE = re.compile(r"(?![.)][ \t]+\w)[^0-9=+/×÷]{0,60}")


@dataclass(frozen=True, slots=True)
class Reading:
    """The number that counts. ``value`` is ``None`` when it cannot be read; ``explicit`` when a marker points at it.

    ``open_end``: the text ends with it, so that a cut may have taken digits.
    """

    value: Fraction | None
    explicit: bool
    open_end: bool


class NumericScorer:
    r"""Compares numbers exactly: $29.00 is 29, 3/4 is 0.75, 50 % is 50 (the sign is a unit).

    The last explicit marker wins (``\boxed{}``, ``####``, "answer is", "Answer:"), else the last number. An answer that
    was cut is truncated unless a marker points at a number that is complete.
    """

    name = "numeric"

    def check_gold(self, item: SuiteItem) -> str | None:
        """Why the gold is no number: it holds none, several, or a whole solution."""
        gold = normalise(item.answer[: 2 * _LONGEST_GOLD]).strip()
        numbers = list(numbers_in(gold))
        words = re.findall(r"[^\W\d_]+", gold)
        if len(item.answer) > _LONGEST_GOLD or len(numbers) > 1 or len(words) > _UNIT_WORDS:
            return f"the answer {_shown(item.answer)} is more than one number: give the number alone"
        if not numbers or numbers[0].value is None:
            return f"the answer {_shown(item.answer)} is no number that can be read"
        return None

    def score(self, item: SuiteItem, text: str, *, cut: bool) -> Scored:
        """Correct when the number that counts equals the gold."""
        reading = read_number(text)
        if cut and (reading is None or not reading.explicit or reading.open_end):
            return Scored(Outcome.TRUNCATED, detail="ended at max_tokens before the answer was complete")
        if reading is None:
            return Scored(Outcome.UNPARSEABLE, detail="no number in the answer")
        if reading.value is None:
            return Scored(Outcome.UNPARSEABLE, detail="the answer's number cannot be read as one")
        right = reading.value == _gold(item)
        return Scored(Outcome.CORRECT if right else Outcome.WRONG, spell(reading.value))


def read_number(answer: str) -> Reading | None:
    """The number that counts in an answer; ``None`` when there is none."""
    for statement in marked(answer):
        found, text = _stated(statement)
        if found is not None:
            open_end = statement.open_end and not text[found.end :].strip(" *_`$)}.")
            return Reading(found.value, True, open_end)
    last = last_number(answer)
    return Reading(last.value, False, True) if last else None


def _gold(item: SuiteItem) -> Fraction | None:
    return next((found.value for found in numbers_in(normalise(item.answer[: 2 * _LONGEST_GOLD]))), None)


def _shown(gold: str) -> str:
    return repr(gold if len(gold) <= 40 else gold[:37] + "...")


def _stated(statement: Marked) -> tuple[Found | None, str]:
    """The number that a marker points at, within the normalised text that is returned with it."""
    text = normalise(statement.text)
    if statement.form is Form.BOX:
        return _of_box(text), text
    if statement.form is Form.SENTENCE:
        return _of_sentence(text), text
    return _of_line(text, evaluated=statement.form is Form.LINE), text


def _of_box(text: str) -> Found | None:
    """A box holds the answer and nothing else: several numbers without "=" cannot be read."""
    start = text.rfind("=") + 1
    numbers = [found for found in numbers_in(text) if found.start >= start]
    if len(numbers) == 1:
        return numbers[0]
    return Found(0, len(text), None)


def _of_line(text: str, evaluated: bool) -> Found | None:
    """A line counts as the answer when it is a number with its unit, or a sum that is worked out on it."""
    numbers = list(numbers_in(text))
    if not numbers or not _LABEL.fullmatch(text[: numbers[0].start]):
        return None
    if _REST_OF_LINE.fullmatch(text[numbers[0].end :]):
        return numbers[0]
    return _of_sentence(text) if evaluated and "=" in text else None


def _of_sentence(text: str) -> Found | None:
    """The first number, or that behind the last "="; a sum that is not worked out cannot be read."""
    aside = _ASIDE.search(text)
    numbers = list(numbers_in(text[: aside.start()] if aside else text)) or list(numbers_in(text))
    if not numbers:
        return None
    equals = text[: numbers[-1].start].rfind("=")
    results = [found for found in numbers if found.start > equals]
    first, *more = results
    if more and _OPERATOR.fullmatch(text[first.end : more[0].start]):
        return Found(first.start, more[-1].end, None)
    return first

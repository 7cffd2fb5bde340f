"""The scorer of multiple choice: which option an answer names."""

from __future__ import annotations

import re
import unicodedata
from string import ascii_uppercase

from pytest_tokenwatt.quality.markers import Form, marked
from pytest_tokenwatt.records.accuracy import Outcome, Scored, SuiteItem

_TAIL = 2000
_DECORATION = r"[\s*_`\"'$({\[]{0,6}"
_NAMED = r"(?:(?:[Oo]ption|[Cc]hoice|[Aa]nswer|[Ll]etter)[ ]{1,2})?"
# A lower-case letter is a label only where nothing follows it: "a" is a word more often than an option.
_LABEL = re.compile(rf"{_DECORATION}{_NAMED}{_DECORATION}(?P<label>[A-Z](?![\w'’])|[a-z](?=[)\]}}.*_`:]|\s*$))")
_LATEX_TEXT = re.compile(r"\\(?:text|math)[a-z]{0,4}(?=\{)")
_ALONE = re.compile(r"[\s*_`\"'$({\[]{0,6}(?P<label>[A-Za-z])[\s*_`\"'$)}\].:]{0,6}")
_LEADING = re.compile(r"[\s*_`\"'(\[]{0,6}(?P<label>[A-Z])[*_`]{0,2}[).:\]]")
_LINE = re.compile(rf"^{_LEADING.pattern}", re.MULTILINE)
_ENCLOSED = re.compile(r"\((?P<paren>[A-Za-z])\)|\*\*(?P<bold>[A-Z])[).:]?\*\*")
_ARTICLE = re.compile(r"[AI](?=\s+[a-z])")


class ChoiceScorer:
    """Compares the option that an answer names with the gold: a letter, or the text of one of the choices.

    The letter behind the last explicit marker counts ("The answer is (B)"), else an answer that is or begins with a
    letter, else the last letter in brackets or bold, else the one choice whose text the answer holds.
    """

    name = "choice"

    def check_gold(self, item: SuiteItem) -> str | None:
        """Why the gold names no option: it is neither a letter within the choices nor the text of exactly one."""
        if len(item.choices) > len(ascii_uppercase) or len(item.choices) == 1:
            return f"{len(item.choices)} choices: give 2 to {len(ascii_uppercase)}"
        texts = [_plain(choice) for choice in item.choices]
        if len(set(texts)) < len(texts) or "" in texts:
            return "the choices must be distinct and not empty"
        if gold_label(item) is not None:
            return None
        known = f"one of {_labels(item)[0]} to {_labels(item)[-1]}, or the text of a choice"
        return f"the answer {item.answer[:40]!r} names no choice: give {known if item.choices else 'a letter'}"

    def score(self, item: SuiteItem, text: str, *, cut: bool) -> Scored:
        """Correct when the option named is the gold's. A cut answer counts only by a letter that it names as such."""
        labels = _labels(item)
        label = explicit_label(text, labels)
        if label is None and cut:
            return Scored(Outcome.TRUNCATED, detail="ended at max_tokens before an option was named")
        label = label or next(reversed(_enclosed(text, labels)), None) or _by_text(item, text)
        if label is None:
            return Scored(Outcome.UNPARSEABLE, detail="the answer names no option")
        return Scored(Outcome.CORRECT if label == gold_label(item) else Outcome.WRONG, label)


def gold_label(item: SuiteItem) -> str | None:
    """The gold as a letter; ``None`` when it names no option. The text of a choice wins over a letter."""
    texts = [_plain(choice) for choice in item.choices]
    gold = _plain(item.answer)
    if gold in texts:
        return ascii_uppercase[texts.index(gold)]
    alone = _ALONE.fullmatch(item.answer)
    label = alone["label"].upper() if alone else ""
    return label if label and label in _labels(item) else None


def explicit_label(text: str, labels: str) -> str | None:
    """The letter that an answer names as its answer: by a marker, by being it, or by beginning with it."""
    for statement in marked(text):
        label = _stated(statement.text, statement.form, labels)
        if label is not None:
            return label
    found = _ALONE.fullmatch(text.strip()) or _LEADING.match(text)
    label = found["label"].upper() if found else ""
    # An answer that goes through several options has not chosen the one that it begins with.
    rivals = {*_enclosed(text, labels), *(place["label"] for place in _LINE.finditer(text[:_TAIL]))} - {label}
    return label if label and label in labels and not rivals & set(labels) else None


def _labels(item: SuiteItem) -> str:
    return ascii_uppercase[: len(item.choices)] if item.choices else ascii_uppercase


def _stated(text: str, form: Form, labels: str) -> str | None:
    text = _LATEX_TEXT.sub("", text)
    found = _ALONE.fullmatch(text) if form is Form.BOX else _LABEL.match(text)
    if found is None or found["label"].upper() not in labels:
        return None
    # "The answer is A because …" names an option, "Answer: A cat …" begins a sentence.
    if form is not Form.SENTENCE and _ARTICLE.match(text, found.start("label")):
        return None
    return found["label"].upper()


def _enclosed(text: str, labels: str) -> list[str]:
    """The letters in brackets or bold near the end."""
    found = [(match["paren"] or match["bold"]).upper() for match in _ENCLOSED.finditer(text[-_TAIL:])]
    return [label for label in found if label in labels]


def _by_text(item: SuiteItem, text: str) -> str | None:
    """The only choice whose text stands in the answer as words; a choice within a longer one does not count twice."""
    answer = _plain(text[-_TAIL:])
    held = [choice for choice in map(_plain, item.choices) if _holds(answer, choice)]
    longest = [choice for choice in held if not any(choice in other and choice != other for other in held)]
    if len(longest) != 1:
        return None
    return ascii_uppercase[[_plain(choice) for choice in item.choices].index(longest[0])]


def _holds(answer: str, choice: str) -> bool:
    return bool(choice) and re.search(rf"(?<!\w){re.escape(choice)}(?!\w)", answer) is not None


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text[:_TAIL]).casefold().split()).strip(".")

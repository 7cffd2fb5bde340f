r"""Where an answer says that it is the answer: ``\boxed{42}``, ``#### 42``, "Answer: 42", "The answer is 42"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

_REACH = 400
_LATEST = 32

# Every alternative begins with a plain character: the search then skips what cannot begin one, at a third of the time.
_MARKER = re.compile(r"\\boxed|\\fboxed|####|Answer\b|answer\b|ANSWER\b|Final result\b|final result\b")
_BOX = re.compile(r"[ ]{0,3}\{")
_IS = re.compile(
    r"[ \t*_`\"']{0,4}(?:to (?:the|this) (?:question|problem) )?"
    r"(?:is|are|was|equals|(?:would|will|should|must) be|comes to|=|≈)(?![A-Za-z])(?P<not>[ \t]+not\b|n['’]t\b)?",
    re.IGNORECASE,
)
_COLON = re.compile(r"[ \t*_`]{0,4}[:：]")
_LEADING = " \t\r\n:*_`=≈>\"'"
_SENTENCE_END = re.compile(r"[.!?;。](?=\s|$)|[\r\n]")


class Form(Enum):
    """How a marker is written; a box closes what it holds, a sentence may say more than the answer."""

    BOX = "box"
    LINE = "line"
    HEADING = "heading"
    SENTENCE = "sentence"


@dataclass(frozen=True, slots=True)
class Marked:
    """What an answer says behind a marker. ``open_end``: the text ends here, so that a cut may have shortened it."""

    form: Form
    text: str
    open_end: bool = False


def marked(answer: str) -> Iterator[Marked]:
    """What stands behind the markers of an answer, the last one first, at most 32 of them.

    A heading is an ``Answer:`` that opens the answer: all that follows may be working.
    """
    for place in reversed([*_MARKER.finditer(answer)][-_LATEST:]):
        found = _behind(answer, place)
        if found is not None:
            yield found


def _behind(answer: str, marker: re.Match[str]) -> Marked | None:
    word, end = marker.group(), marker.end()
    if word[0].isalpha() and marker.start() and answer[marker.start() - 1].isalpha():
        return None
    if word.startswith("\\"):
        return _boxed(answer, end)
    if word == "####":
        return _statement(answer, end, Form.LINE)
    said = _IS.match(answer, end)
    if said:
        return None if said["not"] else _statement(answer, said.end(), Form.SENTENCE)
    colon = _COLON.match(answer, end)
    if colon is None:
        return None
    before = answer[max(0, marker.start() - 40) : marker.start()].strip(_LEADING + "#")
    form = Form.SENTENCE if before.lower().endswith("final") or "result" in word else Form.LINE
    return _statement(answer, colon.end(), form if before else Form.HEADING)


def _boxed(answer: str, end: int) -> Marked | None:
    brace = _BOX.match(answer, end)
    if brace is None:
        return None
    depth, inside = 1, answer[brace.end() : brace.end() + _REACH]
    for place, char in enumerate(inside):
        depth += (char == "{") - (char == "}")
        if depth == 0:
            return Marked(Form.BOX, inside[:place])
    return Marked(Form.BOX, inside, brace.end() + _REACH >= len(answer))


def _statement(answer: str, start: int, form: Form) -> Marked:
    """The line that follows, the next one with content if there is none; of a sentence, the sentence."""
    reach = answer[start : start + _REACH].lstrip(_LEADING)
    while reach and not any(char.isalnum() for char in reach.partition("\n")[0]):
        reach = reach.partition("\n")[2].lstrip(_LEADING)
    stop = _SENTENCE_END.search(reach) if form is Form.SENTENCE else re.search(r"[\r\n]", reach)
    text = reach[: stop.start()] if stop else reach
    return Marked(form, text, stop is None and start + _REACH >= len(answer))

"""What of a reply is the answer: reasoning taken out, and whatever came behind the answer cut off."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# Each tag by itself, so that one pass over any text is enough; what closes has a slash, END or the final channel.
_REASONING = re.compile(
    r"</?(?:think|thinking|thought|reasoning|seed:think)>"
    r"|\[/?THINK\]"
    r"|◁/?think▷"
    r"|<\|(?:START|END)_THINKING\|>"
    r"|<\|channel\|>(?:analysis|commentary|final)[^<]{0,60}<\|message\|>",
    re.IGNORECASE,
)
_CLOSES = re.compile(r"^[<\[◁]/|END_|final", re.IGNORECASE)
_RUN_ON = re.compile(
    r"<\|(?:im_end|endoftext|end_of_text|eot_id|return|end)\|>|<end_of_turn>|</s>"
    r"|[\r\n][ \t#*>]{0,8}(?:(?i:question)|Q)[ \t]{0,3}[0-9]{0,4}[ \t]{0,3}\*{0,2}:"
)


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """The answer within a reply.

    ``open_reasoning``: a reasoning block began and did not end, so that the answer never came. ``ran_on``: the answer
    was over and the model went on, with the next question for example; such an answer is whole even if the reply was
    cut at its longest.
    """

    text: str
    open_reasoning: bool = False
    ran_on: bool = False


def answer_part(reply: str, stops: Sequence[str] = ()) -> AnswerPart:
    """Strip closed reasoning blocks, then cut at the first stop that the model ran across.

    A stop is one of ``stops`` that the server let pass (those that begin with a letter or digit only at the start of a
    line, where they are no mere word), the next ``Question:`` or ``Q:`` on a line of its own, or a token that ends a
    turn. ``Question:`` at the very start is the answer's own heading.
    """
    text, still_open = _without_reasoning(reply)
    end = min((place for place in (_run_on(text), *(_stop(text, stop) for stop in stops)) if place >= 0), default=-1)
    return AnswerPart(text if end < 0 else text[:end], still_open, end >= 0)


def _without_reasoning(reply: str) -> tuple[str, bool]:
    """The text outside reasoning, and whether a block is still open at the end.

    A tag that closes what never opened ends reasoning that the prompt opened: all before it goes.
    """
    kept: list[str] = []
    start = 0
    inside = False
    for tag in _REASONING.finditer(reply):
        if not inside:
            kept.append(reply[start : tag.start()])
        if _CLOSES.search(tag.group()):
            kept = kept if inside else []
            inside = False
        else:
            inside = True
        start = tag.end()
    if not inside:
        kept.append(reply[start:])
    return "".join(kept), inside


def _run_on(text: str) -> int:
    found = _RUN_ON.search(text)
    return found.start() if found else -1


def _stop(text: str, stop: str) -> int:
    if not stop:
        return -1
    return text.find(f"\n{stop}" if stop[0].isalnum() else stop)

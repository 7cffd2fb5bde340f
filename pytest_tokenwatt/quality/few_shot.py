"""Worked examples before a question: as text for completions, as turns of a conversation for chat.

The form is the one that GSM8K is usually asked in: ``Question: …``, ``Answer: …``, a blank line between two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_tokenwatt.arithmetic import asked


@dataclass(frozen=True, slots=True)
class Example:
    """A question and its worked solution, as the model is to imitate it."""

    question: str
    solution: str


def as_prefix(examples: Sequence[Example]) -> str:
    """What stands before the question; empty without examples."""
    return "".join(f"{asked(example.question)} {example.solution.strip()}\n\n" for example in examples)


def as_prompt(examples: Sequence[Example], question: str) -> str:
    """The whole prompt of a completion; it ends where the answer begins."""
    return as_prefix(examples) + asked(question)


def as_turns(examples: Sequence[Example], question: str) -> tuple[Mapping[str, str], ...]:
    """The whole conversation; it ends with the user's turn that asks the question."""
    turns: list[Mapping[str, str]] = []
    for example in examples:
        turns += [_turn("user", example.question), _turn("assistant", example.solution)]
    return (*turns, _turn("user", question))


def _turn(role: str, text: str) -> Mapping[str, str]:
    return {"role": role, "content": text.strip()}

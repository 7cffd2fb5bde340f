"""What the embedded model can do: sums. Behind a question it favours the answer, as sure as it is of each digit.

A script begins where ids end with ``Answer:`` behind a question, or where the assistant's turn begins behind a user's
question. It lifts two tokens above all others at each of its places: the right one, and one rival digit. How far the
right one leads is fixed by seed, question and place; a few leads are negative, which is what the model does not know.
The error of a coarser KV cache is added to both, so it turns over the places whose lead is small.

All this is a function of the ids before a place alone. So decoding and the scoring of prompts agree, and a wrong digit
does not change those behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_tokenwatt.arithmetic import ANSWER_MARK, last_question, solve
from pytest_tokenwatt.sim.hashing import text_hashes, uniform
from pytest_tokenwatt.sim.lm import Ids, LanguageModel, Logits
from pytest_tokenwatt.sim.tokenizer import END_OF_TEXT, TURN_END, TURN_START, Tokenizer

_LIFT = 40.0
"""Logit of the rival; without a script, hardly one context in a billion has a token as likely as that."""
_SURE = 8.0
"""Lead of the space before an answer and of the end behind it: those never turn over."""

_UNKNOWN = 0.015
"""Share of the digits that the model gets wrong by itself: about one sum in twenty."""

_LONGEST = 32
"""Tokens of a script; who asks for longer numbers gets no answer."""
_REACH = 512
"""Tokens before an answer in which its question must stand."""


@dataclass(frozen=True, slots=True)
class Script:
    """The answer to one question, to be said from place ``start`` of a sequence on."""

    start: int
    rights: tuple[int, ...]
    right_logits: tuple[float, ...]
    rivals: tuple[int, ...]
    rival_logits: tuple[float, ...]

    def steer(self, logits: Logits, place: int) -> None:
        """Favour the right token and its rival in the ``(vocab,)`` logits of a place; elsewhere, leave them alone."""
        k = place - self.start
        if 0 <= k < len(self.rights):
            logits[self.rivals[k]] = self.rival_logits[k]
            logits[self.rights[k]] = self.right_logits[k]


class Skill:
    """Finds the scripts in sequences of ids; ``model`` gives its seed and the errors of its precision."""

    def __init__(self, tokenizer: Tokenizer, model: LanguageModel) -> None:
        self._tokenizer = tokenizer
        self._model = model
        self._answer = tuple(tokenizer.encode(ANSWER_MARK))
        self._turn = (TURN_START, *tokenizer.encode("assistant\n"))
        self._user = (TURN_START, *tokenizer.encode("user\n"))
        self._zero = tokenizer.encode("0")[0]
        self.cues = frozenset((self._answer[-1], self._turn[-1]))
        """Ids that scripts begin behind, among others: a quick look at one id rules out nearly all places."""

    def current(self, ids: Sequence[int]) -> Script | None:
        """The script that what follows these ids may be part of."""
        for place in range(len(ids), max(len(ids) - _LONGEST, 0), -1):
            if ids[place - 1] in self.cues and (script := self.begun(ids, place)) is not None:
                return script
        return None

    def begun(self, ids: Sequence[int], place: int) -> Script | None:
        """The script that begins at ``place``, behind a cue."""
        if _ends_with(ids, place, self._answer):
            return self._script(place, ids[max(0, place - _REACH) : place], " ")
        if _ends_with(ids, place, self._turn):
            return self._script(place, self._asked(ids, place - len(self._turn)), "")
        return None

    def steer(self, logits: Logits, ids: Sequence[int], start: int) -> None:
        """Steer the ``(n, vocab)`` logits of the places ``start`` to ``start + n - 1`` of a sequence of ids."""
        script = self.current(ids[:start])
        for row, place in enumerate(range(start, start + len(logits))):
            if place > start and ids[place - 1] in self.cues:
                script = self.begun(ids, place) or script
            if script is not None:
                script.steer(logits[row], place)

    def _asked(self, ids: Sequence[int], end: int) -> Sequence[int]:
        """What the last turn of a user before ``end`` says, or the end of it."""
        width = len(self._user)
        for start in range(end, width - 1, -1):
            if ids[start - width] == TURN_START and _ends_with(ids, start, self._user):
                turn = ids[start:end]
                return turn[: turn.index(TURN_END)][-_REACH:] if TURN_END in turn else ()
        return ()

    def _script(self, start: int, asked: Sequence[int], lead_in: str) -> Script | None:
        text = self._tokenizer.decode(asked)
        answer = solve(text)
        if answer is None or len(answer) >= _LONGEST - 1:
            return None
        body = self._tokenizer.encode(answer)
        before = self._tokenizer.encode(lead_in)
        rights = np.array([*before, *body, END_OF_TEXT])
        # A digit has the same lead in a chat as behind a prompt: places count from the first one.
        sure = np.array([True] * len(before) + [False] * len(body) + [True])
        places = np.arange(len(rights)) - len(before)
        hashes = text_hashes(f"{self._model.seed}|{last_question(text)}", 3 * _LONGEST).reshape(3, -1)[:, places]
        leads = np.where(sure, _SURE, _leads(uniform(hashes[0])))
        rivals = self._rivals(rights, hashes[1])
        return Script(
            start=start,
            rights=tuple(rights.tolist()),
            right_logits=tuple((_LIFT + leads + self._model.errors(hashes[2], rights)).tolist()),
            rivals=tuple(rivals.tolist()),
            rival_logits=tuple((_LIFT + self._model.errors(hashes[2], rivals)).tolist()),
        )

    def _rivals(self, rights: Ids, hashes: npt.NDArray[np.uint64]) -> Ids:
        """One digit each, another than the right one."""
        step = (hashes % np.uint64(9)).astype(np.int64) + 1
        rivals: Ids = self._zero + (rights - self._zero + step) % 10
        return rivals


def _leads(share: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Leads of digits in logits, from uniform shares.

    Few are near 0 and many between 0.3 and 1.5, so that a small error turns over hardly any and a larger one many.
    """
    known = np.maximum(share - _UNKNOWN, 0) / (1 - _UNKNOWN)
    leads: npt.NDArray[np.float64] = np.where(share < _UNKNOWN, share / _UNKNOWN - 1, 3 * known**0.65 + 8 * known**4)
    return leads


def _ends_with(ids: Sequence[int], place: int, mark: tuple[int, ...]) -> bool:
    return place >= len(mark) and tuple(ids[place - len(mark) : place]) == mark

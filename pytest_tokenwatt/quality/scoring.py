"""The seam of the scorers, and what becomes of an answer before and after one has read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pytest_tokenwatt.errors import TokenwattError
from pytest_tokenwatt.quality.extract import AnswerPart, answer_part
from pytest_tokenwatt.records.accuracy import Answer, Outcome, Scored, SuiteItem

_CUT = frozenset({"length", "max_tokens"})
_CUT_DETAIL = "ended at max_tokens"


class Scorer(Protocol):
    """Compares the text of an answer with the gold of its item; one object serves all items of a suite."""

    @property
    def name(self) -> str:
        """The name that a spec gives under ``scorer``."""
        ...

    def check_gold(self, item: SuiteItem) -> str | None:
        """Why this item's gold cannot be scored, with the remedy; ``None`` when it can. Asked before any request."""
        ...

    def score(self, item: SuiteItem, text: str, *, cut: bool) -> Scored:
        """The outcome of an answer that is not blank, its reasoning and whatever ran on behind it taken out.

        ``cut``: it ended at max_tokens, so that text may be missing; what more text could change is ``TRUNCATED``.
        """
        ...


def outcome_of(
    scorer: Scorer, item: SuiteItem, answer: Answer, *, stops: Sequence[str] = (), max_tokens: int | None = None
) -> Scored:
    """What became of an item: failed without a text, truncated in its reasoning, else as the scorer says.

    ``stops`` are those of the suite; ``max_tokens`` tells a cut answer where the server gave no finish reason. Raises
    ``TokenwattError`` with the scorer's name and the item when the scorer itself fails.
    """
    cut = _is_cut(answer, max_tokens)
    if answer.reasoning_only:
        return _no_answer("only reasoning came", cut)
    if answer.text is None or answer.error is not None:
        return Scored(Outcome.FAILED, detail=answer.error or "the server sent no text")
    part = answer_part(answer.text, stops)
    if part.open_reasoning:
        return Scored(Outcome.TRUNCATED, detail="the reasoning did not end")
    if not part.text.strip():
        return _no_answer("the answer is empty", cut and not part.ran_on)
    return _scored(scorer, item, part, cut and not part.ran_on)


def _is_cut(answer: Answer, max_tokens: int | None) -> bool:
    if answer.finish_reason is not None:
        return answer.finish_reason in _CUT
    return max_tokens is not None and answer.output_tokens is not None and answer.output_tokens >= max_tokens


def _no_answer(detail: str, cut: bool) -> Scored:
    if cut:
        return Scored(Outcome.TRUNCATED, detail=f"{detail}; {_CUT_DETAIL}")
    return Scored(Outcome.UNPARSEABLE, detail=detail)


def _scored(scorer: Scorer, item: SuiteItem, part: AnswerPart, cut: bool) -> Scored:
    remedy = "mend the scorer; the stored answers can be scored anew"
    try:
        scored = scorer.score(item, part.text, cut=cut)
    except Exception as error:
        what = f"scorer {scorer.name} failed on item {item.id}: {type(error).__name__}: {error}"
        raise TokenwattError(what, remedy=remedy) from error
    if not isinstance(scored, Scored) or not isinstance(scored.outcome, Outcome):
        raise TokenwattError(
            f"scorer {scorer.name} gave {scored!r} for item {item.id}, which is no Scored", remedy=remedy
        )
    return scored

"""Asks a running engine the items of a suite, some at a time, and gives every answer away as soon as it is there."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.metrics.tally import LARGEST_FAILED_SHARE
from pytest_tokenwatt.quality.insisting import HOPELESS, each, insist
from pytest_tokenwatt.records import Client, Reply
from pytest_tokenwatt.records.accuracy import Answer, SuiteItem
from pytest_tokenwatt.spec.quality import Suite

MAIN, CONTROL = "main", "control"
"""Passes over a suite: the one that counts, and the second one of the baseline that shows its own flips."""


@dataclass(frozen=True, slots=True)
class Question:
    """One item to be asked with one seed in one pass."""

    item: SuiteItem
    seed: int
    part: str = MAIN

    @property
    def key(self) -> tuple[str, int, str]:
        """What tells it from every other question of the suite."""
        return self.part, self.seed, self.item.id


def questions(items: Sequence[SuiteItem], settings: Suite, *, part: str = MAIN) -> list[Question]:
    """Every item with every seed, in the order in which they are asked.

    A seed permutes the order of the items, since greedy answers depend on what else is in the batch; the control has
    an order of its own. Only the first seed is asked again by the control.
    """
    asked: list[Question] = []
    for seed in range(settings.seeds if part == MAIN else 1):
        order = list(items)
        if seed or part != MAIN:
            random.Random(f"{part}/{seed}").shuffle(order)
        asked += [Question(item, seed, part) for item in order]
    return asked


def concurrency(settings: Suite, part: str) -> int:
    """Requests in flight; the control uses other batches."""
    return settings.concurrency if part == MAIN else max(1, settings.concurrency // 2)


async def ask_all(
    client: Client,
    settings: Suite,
    asked: Sequence[Question],
    *,
    in_flight: int,
    keep: Callable[[Question, Answer], None],
    death: Callable[[], str | None],
) -> None:
    """Ask all questions; ``keep`` is given each answer once, failures as answers without a text.

    When as many in a row fail as are in flight (at least twenty), and more than a suite may miss, the others are given
    up with them: an engine that hangs would take its time limit for each. Raises ``EngineError`` (``engine_died``) as
    soon as the engine is seen to be gone; what was kept until then stays.
    """
    state = _State(max(HOPELESS, in_flight), LARGEST_FAILED_SHARE * len(asked))

    async def one(question: Question) -> None:
        if state.hopeless:
            given_up = f"not asked, since {state.in_a_row} in a row failed: {state.last}"
            keep(question, Answer(None, error=given_up))
            return
        reply = await insist(lambda: _send(client, settings, question), death)
        answer = Answer(None, error=str(reply)) if isinstance(reply, EngineError) else answer_of(reply)
        died = death() if answer.error is not None else None
        if died is not None:
            raise EngineError("engine_died", died)
        state.note(answer.error)
        keep(question, answer)

    await each(asked, one, min(in_flight, len(asked)))


@dataclass(slots=True)
class _State:
    """How it went so far: failures in all, those since the last answer, and the last of them.

    ``patience`` is how many in a row show that there is no hope, ``allowed`` how many a suite may miss.
    """

    patience: int
    allowed: float
    failed: int = 0
    in_a_row: int = 0
    last: str = ""

    def note(self, error: str | None) -> None:
        if error is None:
            self.in_a_row = 0
        else:
            self.failed, self.in_a_row, self.last = self.failed + 1, self.in_a_row + 1, error

    @property
    def hopeless(self) -> bool:
        return self.in_a_row >= self.patience and self.failed > self.allowed


async def _send(client: Client, settings: Suite, question: Question) -> Reply:
    sampling = sampling_fields(settings, question.seed)
    if question.item.messages is not None:
        return await client.chat(question.item.messages, max_tokens=settings.max_tokens, **sampling)
    return await client.complete(question.item.prompt or "", max_tokens=settings.max_tokens, **sampling)


def sampling_fields(settings: Suite, seed: int) -> Mapping[str, Any]:
    """Every sampling field, since servers fill in what is left out from the model's own defaults."""
    sampling = settings.sampling
    fields = sampling.model_dump(exclude={"seed"})
    stop = {"stop": list(settings.stop)} if settings.stop else {}
    return {**fields, "seed": (sampling.seed or 0) + seed, **stop, **settings.extra_body}


def answer_of(reply: Reply) -> Answer:
    """The answer in a reply. Reasoning that the server keeps apart is no answer."""
    choice = (reply.raw.get("choices") or [{}])[0]
    message = choice.get("message")
    text = choice.get("text") if not isinstance(message, Mapping) else message.get("content")
    reasoning = isinstance(message, Mapping) and any(message.get(name) for name in ("reasoning", "reasoning_content"))
    return Answer(
        text=text if isinstance(text, str) else "",
        finish_reason=reply.finish_reason,
        output_tokens=reply.output_tokens,
        reasoning_only=not text and reasoning,
    )

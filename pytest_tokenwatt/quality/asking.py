"""Asks a running engine the items of a suite, some at a time, and gives every answer away as soon as it is there."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.metrics.tally import LARGEST_FAILED_SHARE
from pytest_tokenwatt.records import Client, Reply
from pytest_tokenwatt.records.accuracy import Answer, SuiteItem
from pytest_tokenwatt.spec.quality import Suite

MAIN, CONTROL = "main", "control"
"""Passes over a suite: the one that counts, and the second one of the baseline that shows its own flips."""

_TRIES = 3
_PAUSE_S = 1.0
_PATIENCE_S = 60.0
_HOPELESS = 20
_SERVER_ERROR = 500


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
    waiting, state = iter(asked), _State(max(_HOPELESS, in_flight), LARGEST_FAILED_SHARE * len(asked))
    workers = [
        asyncio.create_task(_work(client, settings, waiting, state, keep, death))
        for _ in range(min(in_flight, len(asked)))
    ]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


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


async def _work(
    client: Client,
    settings: Suite,
    waiting: Iterator[Question],
    state: _State,
    keep: Callable[[Question, Answer], None],
    death: Callable[[], str | None],
) -> None:
    for question in waiting:
        if state.hopeless:
            given_up = f"not asked, since {state.in_a_row} in a row failed: {state.last}"
            keep(question, Answer(None, error=given_up))
            continue
        answer = await _ask(client, settings, question)
        if answer.error is not None:
            died = death()
            if died is not None:
                raise EngineError("engine_died", died)
        state.note(answer.error)
        keep(question, answer)


async def _ask(client: Client, settings: Suite, question: Question) -> Answer:
    """One answer; what may be the server's passing trouble is asked again, a refusal or a long silence is not."""
    failure, began_s = "", time.monotonic()
    for attempt in range(_TRIES):
        if attempt:
            await asyncio.sleep(_PAUSE_S)
        try:
            return answer_of(await _send(client, settings, question))
        except EngineError as error:
            failure = str(error)
            refused = error.status is not None and error.status < _SERVER_ERROR
            if refused or time.monotonic() - began_s > _PATIENCE_S:
                break
    return Answer(None, error=failure)


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

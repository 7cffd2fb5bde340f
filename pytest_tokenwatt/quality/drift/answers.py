"""How long an engine's own answers to the prompts of drift are, with their natural end."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.quality.drift.continuations import IN_FLIGHT
from pytest_tokenwatt.quality.drift.patience import Patience, alive
from pytest_tokenwatt.quality.drift.sampling import sampling_fields
from pytest_tokenwatt.quality.insisting import each
from pytest_tokenwatt.records import Client, Reply
from pytest_tokenwatt.records.accuracy import SuiteItem
from pytest_tokenwatt.records.drift import AnswerLength


async def answer_lengths(
    client: Client,
    prompts: Sequence[SuiteItem],
    tokens: int,
    *,
    in_flight: int = IN_FLIGHT,
    death: Callable[[], str | None] = alive,
) -> tuple[AnswerLength, ...]:
    """One answer to each prompt, in their order: greedy, so that a difference is the engine's and not of the dice.

    At most ``tokens`` are generated; an answer that reaches them is ``cut``. Raises ``EngineError`` (``engine_died``,
    ``engine_unreachable``).
    """
    remedy = f"set drift.tokens below {tokens}, or look into the engine's log"
    patience = Patience(death, f"it answered prompts with up to {tokens} tokens, {in_flight} at a time", remedy)
    found: dict[int, AnswerLength] = {}

    async def answer(place: int) -> None:
        item = prompts[place]
        found[place] = _length(item, await patience.ask(lambda: _send(client, item, tokens)), tokens)

    await each(range(len(prompts)), answer, in_flight)
    return tuple(found[place] for place in sorted(found))


def answers_sha256(prompts: Sequence[SuiteItem], tokens: int) -> str:
    """SHA-256 (hex) of what ``answer_lengths`` asks."""
    asked = [[item.id, item.prompt, [dict(each) for each in item.messages or ()]] for item in prompts]
    return hashlib.sha256(json.dumps([tokens, asked], sort_keys=True).encode()).hexdigest()


async def _send(client: Client, item: SuiteItem, tokens: int) -> Reply:
    fields = sampling_fields(0, 0)
    if item.messages is not None:
        return await client.chat(item.messages, max_tokens=tokens, **fields)
    return await client.complete(item.prompt or "", max_tokens=tokens, **fields)


def _length(item: SuiteItem, reply: Reply | EngineError, tokens: int) -> AnswerLength:
    if isinstance(reply, EngineError) or reply.output_tokens is None:
        return AnswerLength(item.id, None)
    cut = reply.finish_reason == "length" or reply.output_tokens >= tokens
    return AnswerLength(item.id, reply.output_tokens, cut)

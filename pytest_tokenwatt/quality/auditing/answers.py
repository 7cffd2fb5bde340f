"""The baseline's own answers to the prompts of a timed run, asked for as the timed requests were."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.quality.drift.continuations import prompt_ids
from pytest_tokenwatt.quality.drift.patience import Patience
from pytest_tokenwatt.quality.drift.prompt_scores import are_ids
from pytest_tokenwatt.quality.insisting import each
from pytest_tokenwatt.records import Client, Reply
from pytest_tokenwatt.records.audit import Served

IN_FLIGHT = 32

_OF_THE_TRANSPORT = ("model", "prompt", "messages", "max_tokens", "stream", "stream_options")
"""Fields of a timed request that say how it is sent, not what is asked."""


async def own_answers(
    client: Client,
    served: Sequence[Served],
    *,
    max_model_len: int | None,
    extra_body: Mapping[str, Any],
    death: Callable[[], str | None],
) -> list[tuple[int, ...]]:
    """The ids of the baseline's answer to each prompt, at temperature 0, of the length that was asked for.

    ``extra_body`` is merged last and ``None`` in it removes a field, as in the timed requests: what these left to the
    server's defaults is left to them here, too. Raises ``EngineError``: ``engine_died``, ``wrong_echo``,
    ``no_token_ids``, and ``answers_failed`` when a prompt stays without an answer.
    """
    longest = max((one.max_tokens for one in served), default=0)
    burden = f"it answered audited prompts with up to {longest} tokens, {IN_FLIGHT} at a time"
    patience = Patience(death, burden, "look into the engine's log, or drop the audit block")
    found: dict[int, tuple[int, ...]] = {}
    failures: list[str] = []

    async def answer(place: int) -> None:
        one = served[place]
        fields = _fields(one, extra_body)
        tokens = _room(one, max_model_len)
        reply = await patience.ask(lambda: client.complete(one.prompt, max_tokens=tokens, **fields))
        if isinstance(reply, EngineError):
            failures.append(str(reply))
        else:
            found[place] = _ids(reply, one)

    await each(range(len(served)), answer, IN_FLIGHT)
    if failures:
        what = f"{len(failures)} of {len(served)} prompts have no answer of the baseline: {failures[-1]}"
        raise EngineError("answers_failed", what)
    return [found[place] for place in range(len(served))]


def _fields(one: Served, extra_body: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {"temperature": 0, "return_token_ids": True}
    if one.ignore_eos:
        fields["ignore_eos"] = True
    fields.update(extra_body)
    return {name: value for name, value in fields.items() if value is not None and name not in _OF_THE_TRANSPORT}


def _room(one: Served, max_model_len: int | None) -> int:
    """Tokens to ask for: servers differ in what they do with more than they have room for."""
    return one.max_tokens if max_model_len is None else min(one.max_tokens, max_model_len - len(one.prompt))


def _ids(reply: Reply, one: Served) -> tuple[int, ...]:
    echo = prompt_ids(reply)
    if echo is not None and echo != one.prompt:
        what = f"{one.name}: {len(one.prompt)} token ids were sent and others came back"
        raise EngineError("wrong_echo", what, remedy="let the server take ids as they are")
    if reply.token_ids is None or not are_ids(reply.token_ids):
        raise EngineError("no_token_ids", "the baseline tells no token ids of what it generates")
    return tuple(reply.token_ids)

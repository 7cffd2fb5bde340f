"""Scores sequences with a running engine by the JSON route: ``prompt_logprobs`` of a completions request."""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.quality.drift.patience import Patience, alive
from pytest_tokenwatt.quality.drift.prompt_scores import read_scores, unscored
from pytest_tokenwatt.quality.drift.sampling import sampling_fields
from pytest_tokenwatt.quality.insisting import each
from pytest_tokenwatt.records import Client, Reason, Reply, drift

ROUTE = "prompt_logprobs"
IN_FLIGHT = 4
"""Few, since an engine keeps the logits of every position of a request that it scores."""
CONTROL_IN_FLIGHT = 2

_TOLERATED_PCT = 1.0
_FOREIGN_ID = re.compile(r"out[- ]of[- ]vocab", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Scores:
    """One ``TopK`` for each sequence, in their order; ``failed`` maps the place of those that are NaN to why."""

    tops: tuple[drift.TopK, ...]
    failed: Mapping[int, str]

    @property
    def invalid(self) -> tuple[Reason, ...]:
        """Why the scores are not to be believed: more than one sequence in a hundred was not scored."""
        if 100 * len(self.failed) <= _TOLERATED_PCT * len(self.tops):
            return ()
        return (Reason("sequences_failed", self._told()),)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader should know."""
        return (self._told(),) if self.failed else ()

    def _told(self) -> str:
        last = self.failed[max(self.failed)]
        return f"{len(self.failed)} of {len(self.tops)} sequences were not scored: {last}"


async def score(
    client: Client,
    sequences: Sequence[drift.Sequence],
    top_k: int,
    *,
    in_flight: int = IN_FLIGHT,
    order_seed: int | None = None,
    keep: Callable[[int, drift.TopK], None] = lambda _place, _top: None,
    death: Callable[[], str | None] = alive,
) -> Scores:
    """The ``top_k`` likeliest tokens (as ``ask_limits`` found) at every position behind each prompt.

    Sequences must fit (see ``fit``). ``order_seed`` shuffles the order of asking; ``keep`` is given each result once.
    A sequence that the engine does not score is NaN throughout. Raises ``EngineError``: ``engine_died`` with the
    smaller setting, ``other_tokenizer`` when an id is unknown, ``wrong_echo`` and ``no_prompt_logprobs`` when the
    server scores something else or nothing.
    """
    order = list(range(len(sequences)))
    if order_seed is not None:
        random.Random(order_seed).shuffle(order)
    patience = scoring_patience(sequences, top_k, in_flight, death)

    async def ask(place: int) -> drift.TopK | EngineError:
        sequence = sequences[place]
        reply = await patience.ask(lambda: _send(client, sequence.ids, top_k))
        return reply if isinstance(reply, EngineError) else _read(reply, sequence, top_k)

    return await gather_scores(sequences, order, ask, top_k, in_flight, keep)


async def gather_scores(
    sequences: Sequence[drift.Sequence],
    order: Sequence[int],
    ask: Callable[[int], Awaitable[drift.TopK | EngineError]],
    top_k: int,
    in_flight: int,
    keep: Callable[[int, drift.TopK], None],
) -> Scores:
    """What ``ask`` finds at each place of ``order``, by sequence. Raises what ``ask`` does, and ``other_tokenizer``."""
    tops: dict[int, drift.TopK] = {}
    failed: dict[int, str] = {}

    async def one(place: int) -> None:
        found = await ask(place)
        if isinstance(found, EngineError):
            _refuse_foreign(found, sequences[place])
            failed[place] = str(found)
            return
        tops[place] = found
        keep(place, found)

    await each(order, one, in_flight)
    return Scores(tuple(_in_order(sequences, tops, top_k)), dict(sorted(failed.items())))


def scoring_patience(
    sequences: Sequence[drift.Sequence], top_k: int, in_flight: int, death: Callable[[], str | None]
) -> Patience:
    """How an engine is asked for scores, and what to say when it dies of them."""
    longest = max((len(each.ids) for each in sequences), default=0)
    scored = max((len(each.ids) - each.prompt for each in sequences), default=0)
    burden = (
        f"it scored sequences of up to {longest} tokens with prompt_logprobs {top_k}, {in_flight} at a time, each of"
        " which takes memory for tokens x vocabulary"
    )
    smaller = f"; drift.top_k {max(2, top_k // 2)}" if top_k != 2 else ""
    if top_k < 0:
        smaller = "; drift.top_k 20"
    remedy = f"set drift.tokens (of texts: window) to {max(2, scored // 2)}{smaller}; or score fewer at a time"
    return Patience(death, burden, remedy)


async def _send(client: Client, ids: Sequence[int], top_k: int) -> Reply:
    return await client.complete(
        ids, max_tokens=1, prompt_logprobs=top_k, return_token_ids=True, **sampling_fields(0, 0)
    )


def _refuse_foreign(error: EngineError, sequence: drift.Sequence) -> None:
    if error.status is not None and _FOREIGN_ID.search(str(error)):
        what = f"the engine does not know the token ids of {sequence.name}: {error}"
        remedy = "compare models that share a tokenizer, or drop the drift block"
        raise EngineError("other_tokenizer", what, remedy=remedy) from error


def _read(reply: Reply, sequence: drift.Sequence, top_k: int) -> drift.TopK:
    choice: Mapping[str, Any] = (reply.raw.get("choices") or [{}])[0]
    check_echo(choice.get("prompt_token_ids"), reply.prompt_tokens, sequence)
    return read_scores(choice.get("prompt_logprobs"), sequence.ids, sequence.prompt, top_k)


def check_echo(echo: Any, prompt_tokens: int | None, sequence: drift.Sequence) -> None:
    """Raises ``EngineError`` (``wrong_echo``) when the server says that it was given something else."""
    told = f"{sequence.name}: {len(sequence.ids)} token ids were sent"
    remedy = "let the server take ids as they are: no special tokens added, no truncation"
    if echo is not None and not isinstance(echo, list):
        raise EngineError("wrong_echo", f"{told} and no list of ids came back", remedy=remedy)
    if echo is not None and echo != list(sequence.ids):
        at = next((at for at, (ours, its) in enumerate(zip(sequence.ids, echo, strict=False)) if ours != its), None)
        where = f"{len(echo)} came back" if at is None else f"those that came back differ from position {at} on"
        raise EngineError("wrong_echo", f"{told} and {where}", remedy=remedy)
    if prompt_tokens is not None and prompt_tokens != len(sequence.ids):
        raise EngineError("wrong_echo", f"{told} and the server counts {prompt_tokens}", remedy=remedy)


def _in_order(sequences: Sequence[drift.Sequence], tops: Mapping[int, drift.TopK], top_k: int) -> Iterator[drift.TopK]:
    """All as wide as the widest, which differ only when the whole vocabulary was asked for."""
    width = top_k if top_k >= 0 else max((top.k for top in tops.values()), default=0)
    for place, sequence in enumerate(sequences):
        top = tops.get(place)
        positions = len(sequence.ids) - max(sequence.prompt, 1)
        yield top if top is not None and top.k == width else unscored(positions, width)

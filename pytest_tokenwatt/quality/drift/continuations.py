"""The baseline's own sampled continuations of prompts: the mean over them estimates KL(baseline ‖ candidate)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.quality.drift.fitting import LEAST_TOKENS, fit
from pytest_tokenwatt.quality.drift.patience import Patience, alive
from pytest_tokenwatt.quality.drift.prompt_scores import are_ids
from pytest_tokenwatt.quality.drift.sampling import sampling_fields
from pytest_tokenwatt.quality.insisting import each
from pytest_tokenwatt.records import Client, Reason, Reply, drift
from pytest_tokenwatt.records.accuracy import SuiteItem
from pytest_tokenwatt.spec.quality import Drift

IN_FLIGHT = 32

_NO_IDS = "without token ids"
_SHORT = f"of fewer than {LEAST_TOKENS} tokens"


@dataclass(frozen=True, slots=True)
class Continuations:
    """What was sampled, in the order of the prompts; ``invalid`` says why there is nothing."""

    sequences: tuple[drift.Sequence, ...]
    notes: tuple[str, ...] = ()
    invalid: tuple[Reason, ...] = ()


async def sample_sequences(
    client: Client,
    prompts: Sequence[SuiteItem],
    settings: Drift,
    *,
    max_model_len: int | None = None,
    in_flight: int = IN_FLIGHT,
    seed: int = 0,
    keep: Callable[[], None] = lambda: None,
    death: Callable[[], str | None] = alive,
) -> Continuations:
    """Sample ``settings.sequences`` continuations at temperature 1, each with a seed of its own, prompts repeated.

    ``keep`` is called behind each. Those that cannot be used are left out and noted. Raises ``EngineError``
    (``engine_died``) when the engine ends meanwhile.
    """
    remedy = f"set drift.tokens below {settings.tokens}, or look into the engine's log"
    patience = Patience(death, f"it sampled continuations of {settings.tokens} tokens, {in_flight} at a time", remedy)
    sampled = _Sampled()

    async def sample(number: int) -> None:
        item = prompts[number % len(prompts)]
        reply = await patience.ask(lambda: _send(client, item, settings, seed + number))
        sampled.take(number, f"{item.id}/{number}", reply)
        keep()

    wanted = settings.sequences if prompts else 0
    await each(range(wanted), sample, in_flight)
    fitted = fit([sampled.found[number] for number in sorted(sampled.found)], max_model_len)
    notes = (*sampled.notes(wanted), *fitted.notes)
    invalid = () if fitted.sequences else (Reason("no_sequences", "; ".join(notes) or "there are no prompts"),)
    return Continuations(fitted.sequences, notes, invalid)


async def _send(client: Client, item: SuiteItem, settings: Drift, seed: int) -> Reply:
    fields = {**sampling_fields(1, seed), "return_token_ids": True}
    if item.messages is not None:
        return await client.chat(item.messages, max_tokens=settings.tokens, **fields)
    return await client.complete(item.prompt or "", max_tokens=settings.tokens, **fields)


@dataclass(slots=True)
class _Sampled:
    """Sequences by the number of their request, and how many others there were."""

    found: dict[int, drift.Sequence] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)
    failure: str = ""

    def take(self, number: int, name: str, reply: Reply | EngineError) -> None:
        if isinstance(reply, EngineError):
            self.lost["that failed"] += 1
            self.failure = str(reply)
            return
        prompt = prompt_ids(reply)
        if not prompt or not are_ids(reply.token_ids):
            self.lost[_NO_IDS] += 1
        elif len(reply.token_ids) < LEAST_TOKENS:
            self.lost[_SHORT] += 1
        else:
            self.found[number] = drift.Sequence(name, (*prompt, *reply.token_ids), len(prompt))

    def notes(self, wanted: int) -> Iterator[str]:
        for what, count in sorted(self.lost.items()):
            yield f"{count} of {wanted} continuations {what} are left out"
        if self.lost[_NO_IDS]:
            yield "the server must answer return_token_ids: true with token_ids and prompt_token_ids"
        if self.failure:
            yield f"the last failure: {self.failure}"


def prompt_ids(reply: Reply) -> tuple[int, ...] | None:
    """The prompt's ids as the server tells them: of a chat beside the choices, else within the choice."""
    choice: Mapping[str, Any] = (reply.raw.get("choices") or [{}])[0]
    told = choice.get("prompt_token_ids") or reply.raw.get("prompt_token_ids")
    return tuple(told) if are_ids(told) else None

"""What an engine says of its tokens while it decodes, against what it says of the same ids in a prefill.

Both paths compute the same numbers, so what separates them is the error of the decode kernels and of the KV cache: a
bug that scoring alone, which is all prefill, cannot show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.quality.drift.fitting import fit
from pytest_tokenwatt.quality.drift.patience import Patience, alive
from pytest_tokenwatt.quality.drift.prompt_scores import IMPOSSIBLE, are_ids
from pytest_tokenwatt.quality.drift.sampling import sampling_fields
from pytest_tokenwatt.quality.drift.scoring import IN_FLIGHT, score
from pytest_tokenwatt.quality.insisting import each
from pytest_tokenwatt.records import Client, Reason, Reply, drift

MOST = 32
"""Prompts looked at."""
SERVED = "served_tokens"
"""``route`` of a gap of tokens that the engine chose itself."""

_LEAST_K = 2


@dataclass(frozen=True, slots=True)
class DecodeGap:
    """|log-prob while decoding − log-prob in the prefill| in nats over ``tokens`` served tokens.

    ``None`` when there is none, or when it is not finite; ``invalid`` then says why. ``route`` says whose tokens these
    are: those that the engine served, or those of the sequences, replayed.
    """

    mean_nats: float | None
    max_nats: float | None
    tokens: int
    invalid: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()
    route: str = SERVED


@dataclass(frozen=True, slots=True)
class _Served:
    sequence: drift.Sequence
    logprobs: tuple[float, ...]


async def decode_gap(
    client: Client,
    sequences: Sequence[drift.Sequence],
    tokens: int,
    *,
    max_model_len: int | None = None,
    most: int = MOST,
    in_flight: int = IN_FLIGHT,
    seed: int = 0,
    death: Callable[[], str | None] = alive,
) -> DecodeGap:
    """Let the engine answer the prompts of ``sequences`` (the first ``most`` that differ) and score what it served.

    ``tokens`` are generated at most, at temperature 1. Raises ``EngineError`` as ``score`` does.
    """
    prompts = list(dict.fromkeys(each.ids[: each.prompt] for each in sequences))[:most]
    remedy = f"set drift.tokens below {tokens}, or drift.decode: false"
    patience = Patience(death, f"it decoded {tokens} tokens with their log-probabilities", remedy)
    served: dict[int, _Served] = {}
    lost: list[str] = []

    async def generate(place: int) -> None:
        reply = await patience.ask(lambda: _send(client, prompts[place], tokens, seed + place))
        found = reply if isinstance(reply, EngineError) else _served(reply, prompts[place], place)
        if isinstance(found, _Served):
            served[place] = found
        else:
            lost.append(str(found))

    await each(range(len(prompts)), generate, in_flight)
    notes = (f"{len(lost)} of {len(prompts)} answers have no decode path to look at: {lost[-1]}",) if lost else ()
    return await _compared(client, [served[place] for place in sorted(served)], notes, max_model_len, in_flight, death)


async def _send(client: Client, prompt: Sequence[int], tokens: int, seed: int) -> Reply:
    fields = sampling_fields(1, seed)
    return await client.complete(prompt, max_tokens=tokens, logprobs=1, return_token_ids=True, **fields)


def _served(reply: Reply, prompt: tuple[int, ...], place: int) -> _Served | str:
    choice: Mapping[str, Any] = (reply.raw.get("choices") or [{}])[0]
    told = choice.get("logprobs")
    logprobs = told.get("token_logprobs") if isinstance(told, Mapping) else None
    if not reply.token_ids or not are_ids(reply.token_ids):
        return "the server tells no ids of what it generates"
    if not isinstance(logprobs, list) or len(logprobs) != len(reply.token_ids):
        return "the server tells no log-probabilities of what it generates"
    values = tuple(map(logprob_of, logprobs))
    return _Served(drift.Sequence(f"served/{place}", (*prompt, *reply.token_ids), len(prompt)), values)


def logprob_of(value: Any) -> float:
    """A told log-probability; NaN for what is none."""
    if not isinstance(value, (int, float)):
        return math.nan
    return -math.inf if value <= IMPOSSIBLE else float(value)


async def _compared(
    client: Client,
    served: Sequence[_Served],
    notes: tuple[str, ...],
    max_model_len: int | None,
    in_flight: int,
    death: Callable[[], str | None],
) -> DecodeGap:
    decoded = {each.sequence.name: each.logprobs for each in served}
    fitted = fit([each.sequence for each in served], max_model_len).sequences
    scores = await score(client, fitted, _LEAST_K, in_flight=in_flight, death=death)
    pairs = [
        pair
        for sequence, top in zip(fitted, scores.tops, strict=True)
        for pair in zip(decoded[sequence.name], top.chosen, strict=False)
    ]
    return gap_between(pairs, (*notes, *scores.notes), SERVED)


def gap_between(pairs: Sequence[tuple[float, float]], notes: tuple[str, ...], route: str) -> DecodeGap:
    """Of (decoded, prefilled) log-probabilities: NaN is a token that one path did not score, −inf an impossible one."""
    gaps = [0.0 if ours == its else abs(ours - its) for ours, its in pairs]
    known = [gap for gap in gaps if not math.isnan(gap)]
    if not known:
        nothing = "none of the served tokens was scored" if gaps else "nothing was generated"
        why = Reason("no_decode_path", "; ".join(notes) or nothing)
        return DecodeGap(None, None, 0, (why,), notes, route)
    impossible = sum(1 for gap in known if math.isinf(gap))
    if impossible:
        what = f"{impossible} of {len(known)} served tokens are possible in one of decoding and prefill only"
        return DecodeGap(None, None, len(known), (Reason("decode_path_broken", what),), notes, route)
    unscored = len(gaps) - len(known)
    more = (f"{unscored} of {len(gaps)} served tokens were not scored",) if unscored else ()
    return DecodeGap(math.fsum(known) / len(known), max(known), len(known), (), (*notes, *more), route)

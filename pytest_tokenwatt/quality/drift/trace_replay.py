"""The decode path by trace replay: the engine is made to decode the scored sequences themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.quality.drift.decode_gap import MOST, DecodeGap, gap_between, logprob_of
from pytest_tokenwatt.quality.drift.fixed_ids import PATH, Post
from pytest_tokenwatt.quality.drift.patience import Patience, alive
from pytest_tokenwatt.quality.drift.sampling import sampling_fields
from pytest_tokenwatt.quality.drift.scoring import IN_FLIGHT
from pytest_tokenwatt.quality.insisting import each
from pytest_tokenwatt.records import drift

REPLAYED = "trace_replay"


async def replay_gap(
    post: Post,
    sequences: Sequence[drift.Sequence],
    tops: Sequence[drift.TopK],
    *,
    most: int = MOST,
    in_flight: int = IN_FLIGHT,
    death: Callable[[], str | None] = alive,
) -> DecodeGap | None:
    """What the engine says while it decodes ``sequences`` (the first ``most`` with different prompts) against ``tops``.

    ``tops`` are the engine's own scores of the same sequences. ``None`` when the engine does not replay: asked once.
    Raises ``EngineError`` as ``score`` does.
    """
    prompts = {sequence.ids[: sequence.prompt]: place for place, sequence in enumerate(sequences)}
    chosen = list(prompts.values())[:most]
    tokens = max((len(sequences[place].ids) - sequences[place].prompt for place in chosen), default=0)
    remedy = f"set drift.tokens below {tokens}, or drift.decode: false"
    patience = Patience(death, f"it decoded given sequences of up to {tokens} tokens", remedy)
    decoded: dict[int, tuple[float, ...]] = {}
    lost: list[str] = []

    async def replay(place: int) -> None:
        reply = await patience.ask(lambda: post(PATH, _body(sequences[place])))
        found = str(reply) if isinstance(reply, EngineError) else _logprobs(reply, sequences[place])
        if isinstance(found, str):
            lost.append(found)
        else:
            decoded[place] = found

    await each(chosen[:1], replay, 1)
    if not decoded:
        return None
    await each(chosen[1:], replay, in_flight)
    notes = (f"{len(lost)} of {len(chosen)} sequences were not replayed: {lost[-1]}",) if lost else ()
    pairs = [
        pair for place in sorted(decoded) for pair in zip(decoded[place], tops[place].chosen.tolist(), strict=True)
    ]
    return gap_between(pairs, notes, REPLAYED)


def _body(sequence: drift.Sequence) -> dict[str, Any]:
    start = max(sequence.prompt, 1)
    trace = list(sequence.ids[start:])
    wanted = {"max_tokens": len(trace), "logprobs": 1, "ignore_eos": True, "trace_decode_token_ids": trace}
    return {
        "token_ids": list(sequence.ids[:start]),
        "sampling_params": {**sampling_fields(1, 0), **wanted},
        "stream": False,
    }


def _logprobs(told: Any, sequence: drift.Sequence) -> tuple[float, ...] | str:
    """One log-probability for each token of the trace, or what is wrong: a server may not know of traces."""
    trace = list(sequence.ids[max(sequence.prompt, 1) :])
    choices = told.get("choices") if isinstance(told, Mapping) else None
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], Mapping) else {}
    logprobs = choice.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    if choice.get("token_ids") != trace:
        return "the server decoded other tokens than the given ones"
    if not isinstance(content, list) or [_token(entry) for entry in content] != trace:
        return "the server tells no log-probabilities of what it decoded"
    return tuple(logprob_of(entry.get("logprob")) for entry in content)


def _token(entry: Any) -> Any:
    return entry.get("token_id") if isinstance(entry, Mapping) else None

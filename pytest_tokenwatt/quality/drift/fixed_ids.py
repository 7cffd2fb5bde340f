"""Scores the baseline's likeliest tokens on another engine by the binary route of vLLM's ``/inference/v1/generate``.

Both engines then speak of the same ids, so that the tail is the baseline's alone, and a reply is one array.
"""

from __future__ import annotations

import base64
import binascii
import io
from array import array
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.quality.drift.limits import allowed_width
from pytest_tokenwatt.quality.drift.patience import alive
from pytest_tokenwatt.quality.drift.prompt_scores import IMPOSSIBLE
from pytest_tokenwatt.quality.drift.sampling import sampling_fields
from pytest_tokenwatt.quality.drift.scoring import IN_FLIGHT, Scores, check_echo, gather_scores, scoring_patience
from pytest_tokenwatt.records import drift

Post: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""Sends JSON to a path below a server's root and gives the JSON that it answers. Raises ``EngineError``."""

ROUTE = "fixed_ids"
PATH = "/inference/v1/generate"
NOT_OFFERED = frozenset({400, 403, 404, 405, 422, 501})
"""How servers answer what they do not offer."""

_LEAST = 2


@dataclass(frozen=True, slots=True)
class Offer:
    """How many ids a position the route scores beside the token that stands there; 0: the route is not offered."""

    width: int
    notes: tuple[str, ...] = ()


async def ask_fixed_ids(
    post: Post, sequence: drift.Sequence, base: drift.TopK, *, death: Callable[[], str | None] = alive
) -> Offer:
    """Try the route on one sequence, of which ``base`` is what the baseline says.

    The token that stands there takes one of the ids that a server allows, whatever the others are: the set of ids at a
    position must not depend on what was drawn. Raises ``EngineError`` (``engine_died``).
    """
    patience = scoring_patience((sequence,), base.k, 1, death)

    async def tried(width: int) -> EngineError | None:
        reply = await patience.ask(lambda: post(PATH, _body(sequence, base, width)))
        if isinstance(reply, EngineError):
            return reply
        try:
            read_fixed_ids(reply, sequence, base, width)
        except EngineError as error:
            return error
        return None

    refused, width = await tried(base.k), base.k
    allowed = allowed_width(refused)
    if allowed is not None and _LEAST < allowed <= base.k:
        width = allowed - 1
        refused = await tried(width)
    if refused is not None:
        offered = refused.status not in NOT_OFFERED
        return Offer(0, (f"scored by JSON, since {PATH} cannot be used: {refused}",) if offered else ())
    told = f"{width} of the baseline's {base.k} likeliest tokens are scored"
    more = f"{told}; start the server with --max-logprobs {base.k + 1} for all of them"
    return Offer(width, (more,) if width < base.k else ())


async def score_fixed_ids(
    post: Post,
    sequences: Sequence[drift.Sequence],
    base: Sequence[drift.TopK],
    width: int,
    *,
    in_flight: int = IN_FLIGHT,
    death: Callable[[], str | None] = alive,
) -> Scores:
    """What the engine says of the first ``width`` ids of ``base`` at every position behind each prompt, in their order.

    ``width`` is what ``ask_fixed_ids`` found. Raises and fails as ``score`` does.
    """
    patience = scoring_patience(sequences, width, in_flight, death)

    async def ask(place: int) -> drift.TopK | EngineError:
        sequence, top = sequences[place], base[place]
        reply = await patience.ask(lambda: post(PATH, _body(sequence, top, width)))
        return reply if isinstance(reply, EngineError) else read_fixed_ids(reply, sequence, top, width)

    return await gather_scores(sequences, range(len(sequences)), ask, width, in_flight, lambda _place, _top: None)


def read_fixed_ids(told: Any, sequence: drift.Sequence, base: drift.TopK, width: int) -> drift.TopK:
    """The scores in a reply: a base64 ``.npy`` of float32, (positions, ``width`` + 1), last what stands there.

    Raises ``EngineError``: ``no_prompt_logprobs`` when there is no such array, ``wrong_echo`` when the server tells of
    another prompt.
    """
    reply = told if isinstance(told, Mapping) else {}
    usage = reply.get("usage")
    counted = usage.get("prompt_tokens") if isinstance(usage, Mapping) else None
    check_echo(reply.get("prompt_token_ids"), counted if isinstance(counted, int) else None, sequence)
    scores = _array(reply.get("prompt_token_id_logprobs"))
    if scores.shape != (base.positions, width + 1):
        what = f"the server scores {scores.shape} ids, not ({base.positions}, {width + 1})"
        raise EngineError("no_prompt_logprobs", what)
    scores = np.where(scores <= IMPOSSIBLE, np.float32(-np.inf), scores)
    ids = _ids(base, width)
    best = np.where(ids >= 0, scores[:, :width], np.float32(np.nan))
    return drift.TopK(
        width, array("i", ids.tobytes()), array("f", best.tobytes()), array("f", scores[:, width].tobytes())
    )


def _array(told: Any) -> npt.NDArray[np.float32]:
    try:
        found = np.load(io.BytesIO(base64.b64decode(told, validate=True)), allow_pickle=False)
        return np.asarray(found, dtype=np.float32)
    except (TypeError, ValueError, EOFError, OSError, SyntaxError, binascii.Error) as error:
        what = f"the server's prompt_token_id_logprobs are no array: {' '.join(str(error).split())[:100]}"
        raise EngineError("no_prompt_logprobs", what) from None


def _ids(base: drift.TopK, width: int) -> npt.NDArray[np.int32]:
    return np.ascontiguousarray(np.asarray(base.ids, dtype=np.int32).reshape(-1, base.k)[:, :width])


def _body(sequence: drift.Sequence, base: drift.TopK, width: int) -> dict[str, Any]:
    start = max(sequence.prompt, 1)
    tokens = np.asarray(sequence.ids[start:], dtype=np.int32)[:, None]
    rows = np.concatenate([_ids(base, width), tokens], axis=1)
    wanted = {"max_tokens": 1, "prompt_logprob_token_ids": rows.tolist(), "prompt_logprob_start": start - 1}
    return {
        "token_ids": list(sequence.ids),
        "sampling_params": {**sampling_fields(0, 0), **wanted},
        "return_token_ids": True,
        "stream": False,
    }

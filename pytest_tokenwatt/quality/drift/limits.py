"""How many log-probabilities a server gives: asked, not assumed. The request that asks is the warm-up, too."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.quality.drift.patience import Patience, alive
from pytest_tokenwatt.quality.drift.sampling import sampling_fields
from pytest_tokenwatt.records import Client, Reply

_ALLOWED = re.compile(r"greater than max allowed: (\d{1,9})")
_LEAST = 2
_REFUSED = 400


@dataclass(frozen=True, slots=True)
class Limits:
    """``top_k`` log-probabilities a position are to be asked for; −1 is the whole vocabulary."""

    top_k: int
    notes: tuple[str, ...] = ()


async def ask_limits(
    client: Client, ids: Sequence[int], top_k: int, *, death: Callable[[], str | None] = alive
) -> Limits:
    """Ask for ``top_k`` of each id of ``ids``, and for what the server allows if that is too many.

    The first request for log-probabilities may compile kernels for seconds; this one is it, for the prompt's and for
    those of generated tokens. Raises ``EngineError``: ``max_logprobs`` when fewer than two are allowed,
    ``no_prompt_logprobs`` for any other refusal, ``engine_died``, ``engine_unreachable`` for silence.
    """
    burden = f"it scored {len(ids)} tokens for the first time with prompt_logprobs {top_k}"
    patience = Patience(death, burden, "set drift.tokens or drift.top_k lower")
    answer = await patience.ask(lambda: _send(client, ids, top_k))
    allowed = allowed_width(answer)
    if allowed is None:
        return _granted(answer, Limits(top_k), patience)
    if allowed < _LEAST:
        what = f"the server gives {allowed} log-probabilities a position, and {_LEAST} are needed"
        raise EngineError("max_logprobs", what, remedy="start it with --max-logprobs 20")
    answer = await patience.ask(lambda: _send(client, ids, allowed))
    remedy = f"start it with --max-logprobs {top_k} for that"
    wanted = "the whole vocabulary" if top_k < 0 else f"drift.top_k {top_k}"
    told = f"the server gives {allowed} log-probabilities, not {wanted}; {remedy}"
    return _granted(answer, Limits(allowed, (told,)), patience)


def allowed_width(answer: object) -> int | None:
    """The limit that a refusal names."""
    if not isinstance(answer, EngineError) or answer.status != _REFUSED:
        return None
    found = _ALLOWED.search(str(answer))
    return int(found[1]) if found else None


def _granted(answer: Reply | EngineError, limits: Limits, patience: Patience) -> Limits:
    if isinstance(answer, EngineError):
        if answer.status is None:
            raise EngineError(answer.reason, f"{answer}, while {patience.burden}", remedy=patience.remedy) from answer
        what = f"the server gives no log-probabilities of a prompt: {answer}"
        raise EngineError("no_prompt_logprobs", what) from answer
    return limits


async def _send(client: Client, ids: Sequence[int], top_k: int) -> Reply:
    return await client.complete(ids, max_tokens=1, prompt_logprobs=top_k, logprobs=1, **sampling_fields(0, 0))

"""Probes of log-probabilities: of what a model writes, and of a prompt that it is given."""

from __future__ import annotations

import math
from typing import Any

from pytest_tokenwatt.engine.probing import PROMPT_IDS, ProbeFailure, Probing

_OUTPUT_TOKENS = 4
_ABOVE_ONE = 0.01
"""Rounding may lift a log-probability a little above 0; a raw score lies far above it, or below all reason."""


async def logprobs(probing: Probing) -> str:
    """Every generated token has its log-probability."""
    reply = await probing.ask("/completions", prompt=probing.ids(), max_tokens=_OUTPUT_TOKENS, logprobs=1)
    found = (reply.raw["choices"][0].get("logprobs") or {}).get("token_logprobs")
    if not isinstance(found, list):
        raise ProbeFailure("missing", "the reply carries no log-probabilities")
    if len(found) != reply.output_tokens:
        raise ProbeFailure("wrong", f"{len(found)} log-probabilities for {reply.output_tokens} output tokens")
    _check(found)
    return f"of {len(found)} tokens"


async def prompt_logprobs(probing: Probing) -> str:
    """Every id of a prompt but the first has its log-probability, looked up by the id itself."""
    ids = probing.ids()
    reply = await probing.ask("/completions", prompt=ids, max_tokens=1, prompt_logprobs=1)
    found = reply.raw["choices"][0].get("prompt_logprobs")
    if not isinstance(found, list):
        raise ProbeFailure("missing", "the reply carries no log-probabilities of the prompt")
    scored = found[-(len(ids) - 1) :]
    if len(found) not in (len(ids), len(ids) - 1):
        raise ProbeFailure("wrong", f"{len(found)} positions for a prompt of {len(ids)} ids")
    _check([_of(entry, token) for entry, token in zip(scored, ids[1:], strict=True)])
    return f"of {PROMPT_IDS - 1} ids"


def _of(entry: Any, token: int) -> Any:
    told = entry.get(str(token)) if isinstance(entry, dict) else None
    if not isinstance(told, dict):
        raise ProbeFailure("wrong", f"a position of the prompt has no entry for its own id {token}")
    return told.get("logprob")


def _check(values: list[Any]) -> None:
    for value in values:
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not number or value > _ABOVE_ONE:
            raise ProbeFailure("wrong", f"{value!r} is no log-probability")

"""A client that answers like vLLM 0.32 does, from a small model whose next-token distribution depends on one id."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.records import Reply

VOCABULARY = 12


def logprob(before: int, token: int) -> float:
    """Of ``token`` behind ``before``; not all the same, and normalised."""
    weights = [1.0 + (before * 7 + other * 5) % 11 for other in range(VOCABULARY)]
    return math.log(weights[token] / sum(weights))


def entry(before: int, token: int, top_k: int) -> dict[str, Any]:
    """One position in vLLM's form: the token itself first, then the likeliest; all with the same text."""
    ranked = sorted(range(VOCABULARY), key=lambda other: -logprob(before, other))
    best = ranked if top_k < 0 else ranked[:top_k]
    return {
        str(other): {"logprob": logprob(before, other), "rank": ranked.index(other) + 1, "decoded_token": "\ufffd"}
        for other in dict.fromkeys([token, *best])
    }


def refusal(status: int | None, text: str = "boom") -> EngineError:
    error = EngineError("engine_http_error", f"POST answered {status}: {text}")
    error.status = status
    return error


@dataclass
class Server:
    """``change`` may spoil the choice of any reply; ``errors`` are raised before the first answers."""

    max_logprobs: int = 20
    max_model_len: int = 64
    output: tuple[int, ...] = (3, 1, 4, 1, 5)
    decode_error: float = 0.0
    change: Callable[[dict[str, Any]], None] = lambda _choice: None
    errors: list[EngineError] = field(default_factory=list)
    always: EngineError | None = None
    sent: list[dict[str, Any]] = field(default_factory=list)
    busy: int = 0
    busiest: int = 0

    async def complete(self, prompt: str | Sequence[int], *, max_tokens: int = 16, **sampling: Any) -> Reply:
        self.sent.append({"prompt": prompt, "max_tokens": max_tokens, **sampling})
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        await asyncio.sleep(0)
        self.busy -= 1
        if self.errors or self.always:
            raise self.errors.pop(0) if self.errors else self.always or AssertionError
        ids = [ord(letter) % VOCABULARY for letter in prompt] if isinstance(prompt, str) else list(prompt)
        self._check(ids, sampling)
        output = self.output[:max_tokens]
        choice: dict[str, Any] = {
            "token_ids": list(output),
            "prompt_token_ids": ids,
            "prompt_logprobs": self._prompt_part(ids, sampling.get("prompt_logprobs")),
            "logprobs": self._logprobs(ids[-1], output) if "logprobs" in sampling else None,
        }
        self.change(choice)
        return Reply("", "length", len(ids), len(output), _tuple(choice.get("token_ids")), {"choices": [choice]})

    async def chat(self, messages: Sequence[Mapping[str, Any]], *, max_tokens: int = 16, **sampling: Any) -> Reply:
        reply = await self.complete(f"<user>{messages[0]['content']}", max_tokens=max_tokens, **sampling)
        choice = dict(reply.raw["choices"][0])
        raw = {"choices": [choice], "prompt_token_ids": choice.pop("prompt_token_ids")}
        return Reply("", "length", reply.prompt_tokens, reply.output_tokens, reply.token_ids, raw)

    def _check(self, ids: Sequence[int], sampling: Mapping[str, Any]) -> None:
        if len(ids) >= self.max_model_len:
            raise refusal(400, f"This model's maximum context length is {self.max_model_len} tokens.")
        if max(ids) >= VOCABULARY:
            raise refusal(400, f"Token id {max(ids)} is out of vocabulary")
        asked = sampling.get("prompt_logprobs", 0)
        asked = VOCABULARY if asked == -1 else asked
        if self.max_logprobs >= 0 and asked > self.max_logprobs:
            text = f"Requested prompt logprobs of {asked}, which is greater than max allowed: {self.max_logprobs}"
            raise refusal(400, text)

    def _prompt_part(self, ids: Sequence[int], top_k: int | None) -> list[Any] | None:
        if top_k is None:
            return None
        return [None, *(entry(ids[at - 1], ids[at], top_k) for at in range(1, len(ids)))]

    def _logprobs(self, before: int, output: Sequence[int]) -> dict[str, Any]:
        befores = (before, *output)
        told = [logprob(a, b) - self.decode_error for a, b in zip(befores, output, strict=False)]
        return {"tokens": ["\ufffd"] * len(output), "token_logprobs": told, "top_logprobs": None}


def _tuple(ids: list[int] | None) -> tuple[int, ...] | None:
    return None if ids is None else tuple(ids)

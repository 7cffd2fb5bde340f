"""Replies in the exact form of vLLM 0.32: whole ones and the events of a stream."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from pytest_tokenwatt.sim.api import GenerationRequest
from pytest_tokenwatt.sim.output import Delta, TokenLogprob
from pytest_tokenwatt.sim.tokenizer import Tokenizer

DONE = b"data: [DONE]\n\n"


def event(body: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + orjson.dumps(body) + b"\n\n"


@dataclass(frozen=True, slots=True)
class Flaws:
    """What a reply lacks: ``null_content`` and ``reasoning_only`` leave a chat without content, which is JSON null."""

    null_content: bool = False
    reasoning_only: bool = False
    no_finish_reason: bool = False


class Reply:
    """Builds everything that answers one request. Token counts are those of the request's own output."""

    def __init__(
        self,
        request: GenerationRequest,
        tokenizer: Tokenizer,
        number: int,
        model: str,
        print_: str,
        flaws: Flaws = Flaws(),
    ) -> None:
        self._request = request
        self._tokenizer = tokenizer
        self._flaws = flaws
        self._fingerprint = print_
        self._head = {
            "id": f"{'chatcmpl' if request.chat else 'cmpl'}-{number:016x}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._tokens = 0
        self._characters = 0
        self._first = True

    # --- streaming

    def opening(self) -> bytes:
        """The event before the first token: chat has one that carries the role only, completions none."""
        if not self._request.chat:
            return b""
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        body = self._chunk([choice], with_usage=self._request.continuous_usage)
        if self._request.return_token_ids:
            body |= {"prompt_token_ids": self._request.prompt, "prompt_text": None}
        return event(body)

    def chunk(self, delta: Delta) -> bytes:
        """The event of some new tokens."""
        self._tokens += len(delta.ids)
        choice = self._chat_choice(delta) if self._request.chat else self._text_choice(delta)
        self._characters += len(delta.text)
        self._first = False
        body = self._chunk([choice], with_usage=self._request.continuous_usage)
        if delta.finish_reason is not None and not self._request.include_usage:
            body["system_fingerprint"] = self._fingerprint
        return event(body)

    def closing(self) -> bytes:
        """The usage event, if asked for, and the end of the stream."""
        if not self._request.include_usage:
            return DONE
        body = self._chunk([], with_usage=True) | {"system_fingerprint": self._fingerprint}
        return event(body) + DONE

    def _chunk(self, choices: list[dict[str, Any]], *, with_usage: bool) -> dict[str, Any]:
        body: dict[str, Any] = {**self._head, "choices": choices}
        if self._request.chat:
            body["object"] = "chat.completion.chunk"
        return body | {"usage": self._usage()} if with_usage else body

    def _text_choice(self, delta: Delta) -> dict[str, Any]:
        asked = self._request.return_token_ids
        return {
            "index": 0,
            "text": delta.text,
            "logprobs": self._text_logprobs(delta.logprobs),
            "finish_reason": self._ending(delta),
            "stop_reason": delta.stop_reason,
            "prompt_token_ids": self._request.prompt if asked and self._first else None,
            "token_ids": delta.ids if asked else None,
        }

    def _chat_choice(self, delta: Delta) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": 0,
            "delta": self._content(delta),
            "logprobs": self._chat_logprobs(delta.logprobs),
            "finish_reason": self._ending(delta),
        }
        if delta.finish_reason is not None:
            choice["stop_reason"] = delta.stop_reason
        return choice | {"token_ids": delta.ids} if self._request.return_token_ids else choice

    # --- whole replies

    def whole(self, output: Delta, prompt_logprobs: Sequence[TokenLogprob] | None) -> dict[str, Any]:
        """The JSON object of a reply without streaming; ``prompt_logprobs`` are those of the prompt's ids from 1 on."""
        self._tokens = len(output.ids)
        prompt_part = None if prompt_logprobs is None else [None, *map(self._prompt_entry, prompt_logprobs)]
        usage = {**self._usage(), "prompt_tokens_details": None}
        body = {**self._head, "usage": usage, "system_fingerprint": self._fingerprint, "metrics": None}
        ids = self._request.prompt if self._request.return_token_ids else None
        if not self._request.chat:
            return body | {"choices": [self._text_choice(output) | {"prompt_logprobs": prompt_part}]}
        choice = {
            "index": 0,
            "message": {"role": "assistant", **self._content(output)},
            "logprobs": self._chat_logprobs(output.logprobs),
            "finish_reason": self._ending(output),
            "stop_reason": output.stop_reason,
            "token_ids": output.ids if self._request.return_token_ids else None,
        }
        body |= {"object": "chat.completion", "choices": [choice]}
        return body | {"prompt_logprobs": prompt_part, "prompt_token_ids": ids}

    def _content(self, delta: Delta) -> dict[str, Any]:
        if self._flaws.reasoning_only:
            return {"content": None, "reasoning_content": delta.text}
        return {"content": None if self._flaws.null_content else delta.text}

    def _ending(self, delta: Delta) -> str | None:
        return None if self._flaws.no_finish_reason else delta.finish_reason

    def _usage(self) -> dict[str, Any]:
        prompt = len(self._request.prompt)
        return {"prompt_tokens": prompt, "total_tokens": prompt + self._tokens, "completion_tokens": self._tokens}

    # --- log-probabilities

    def _name(self, token: int) -> str:
        if self._request.tokens_as_ids:
            return f"token_id:{token}"
        return self._tokenizer.token_bytes(token).decode("utf-8", "replace")

    def _text_logprobs(self, entries: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        if self._request.logprobs is None:
            return None
        offsets = []
        offset = self._characters
        for entry in entries:
            offsets.append(offset)
            offset += len(self._name(entry.token))
        return {
            "text_offset": offsets,
            "token_logprobs": [entry.logprob for entry in entries],
            "tokens": [self._name(entry.token) for entry in entries],
            "top_logprobs": [
                {self._name(token): value for token, value in ((entry.token, entry.logprob), *entry.top)}
                for entry in entries
            ],
        }

    def _chat_logprobs(self, entries: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        if self._request.logprobs is None:
            return None
        return {
            "content": [
                self._chat_entry(entry.token, entry.logprob)
                | {"top_logprobs": [self._chat_entry(token, value) for token, value in entry.top]}
                for entry in entries
            ]
        }

    def _chat_entry(self, token: int, logprob: float) -> dict[str, Any]:
        return {"token": self._name(token), "logprob": logprob, "bytes": list(self._tokenizer.token_bytes(token))}

    def _prompt_entry(self, entry: TokenLogprob) -> dict[str, Any]:
        ranked = [(entry.token, entry.logprob, entry.rank)]
        ranked += [(token, value, rank) for rank, (token, value) in enumerate(entry.top, 1) if token != entry.token]
        return {
            str(token): {
                "logprob": value,
                "rank": rank,
                "decoded_token": self._tokenizer.token_bytes(token).decode("utf-8", "replace"),
            }
            for token, value, rank in ranked
        }

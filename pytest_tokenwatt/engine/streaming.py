"""One streamed generation on the control plane, looked at chunk by chunk."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from pytest_tokenwatt.engine.control import ControlClient

DONE = "[DONE]"
_TEXTS = ("content", "reasoning", "reasoning_content")


@dataclass(slots=True)
class StreamSeen:
    """What a stream carried. ``token_chunks`` counts chunks with a token; a role-only chunk is none.

    ``running_usage`` counts those of them that carried a usage count; ``error`` is an error object's message. Stamps
    are of the first and the last chunk with a token, on the monotonic clock.
    """

    token_chunks: int = 0
    running_usage: int = 0
    usage: Mapping[str, Any] | None = None
    ended: bool = False
    error: str | None = None
    malformed: str | None = None
    finish_reason: str | None = None
    token_ids: list[int] = field(default_factory=list)
    first_token_s: float | None = None
    last_token_s: float | None = None

    @property
    def output_tokens(self) -> int | None:
        """The server's count of generated tokens."""
        count = (self.usage or {}).get("completion_tokens")
        return count if isinstance(count, int) else None

    @property
    def flaw(self) -> str | None:
        """Why the stream did not come to its proper end; ``None`` when it did."""
        if self.error or self.malformed:
            return self.error or f"an event that is not JSON: {self.malformed}"
        if not self.token_chunks and not self.output_tokens:
            return "the stream carried no token"
        return None if self.ended else "the stream broke off without [DONE]"


async def watch_stream(
    client: ControlClient,
    path: str,
    body: Mapping[str, Any],
    timeout_s: float,
    stop_after: int | None = None,
    begun: asyncio.Event | None = None,
) -> StreamSeen:
    """Run one streamed request; ``stop_after`` chunks with tokens it is dropped. Raises ``HttpError``.

    ``begun`` is set at the first token.
    """
    seen = StreamSeen()
    events: AsyncGenerator[str, None] = client.http.events(
        client.access.endpoint + path, {**body, "stream": True}, timeout_s
    )
    async with aclosing(events):
        async for event in events:
            _look(event, seen)
            if begun is not None and seen.token_chunks:
                begun.set()
            if seen.error or seen.malformed or (stop_after is not None and seen.token_chunks >= stop_after):
                break
    return seen


def _look(event: str, seen: StreamSeen) -> None:
    if event.strip() == DONE:
        seen.ended = True
        return
    try:
        told = json.loads(event)
        if told.get("error") is not None:
            seen.error = _message(told["error"])
            return
        _look_at_chunk(told, seen)
    except (ValueError, TypeError, AttributeError, RecursionError):
        seen.malformed = event[:200]


def _look_at_chunk(told: Mapping[str, Any], seen: StreamSeen) -> None:
    usage = told.get("usage")
    if isinstance(usage, dict):
        seen.usage = usage
    for choice in told.get("choices") or ():
        seen.finish_reason = choice.get("finish_reason") or seen.finish_reason
        ids = choice.get("token_ids") or []
        seen.token_ids.extend(ids)
        if ids or _has_text(choice):
            seen.token_chunks += 1
            seen.last_token_s = time.monotonic()
            seen.first_token_s = seen.first_token_s or seen.last_token_s
            seen.running_usage += isinstance(usage, dict)


def _has_text(choice: Mapping[str, Any]) -> bool:
    delta = choice.get("delta") or {}
    return bool(choice.get("text") or delta.get("tool_calls") or any(delta.get(name) for name in _TEXTS))


def _message(error: Any) -> str:
    said = error.get("message") if isinstance(error, dict) else error
    return " ".join(str(said).split())[:300]

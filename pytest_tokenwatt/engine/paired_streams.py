"""The probe of two requests at once: does the engine serve them together, or one after the other?"""

from __future__ import annotations

import asyncio

from pytest_tokenwatt.engine.http import HttpError
from pytest_tokenwatt.engine.probing import PROBE_TIMEOUT_S, ProbeFailure, Probing
from pytest_tokenwatt.engine.streaming import StreamSeen, watch_stream

_SHORT = 4
_LONG = (32, 256)
"""Output tokens of the first stream: a fast engine may end few of them before the second request has arrived."""


async def concurrency(probing: Probing) -> str:
    """A stream that begins while another runs has its first token before that one ends, and both come to their end."""
    for tokens in _LONG:
        first, second = await _two(probing, probing.at_most(tokens))
        flaw = first.flaw or second.flaw
        if flaw:
            raise ProbeFailure("wrong", f"of two streams at once one failed: {flaw}")
        if (second.first_token_s or 0.0) < (first.last_token_s or 0.0):
            return "two streams at once, both whole"
    if (first.output_tokens or 0) < probing.at_most(tokens):
        raise ProbeFailure("missing", "cannot be seen: the first stream ended before the length that was asked for")
    raise ProbeFailure("wrong", "a second stream had no token before the first had ended: requests are served in turn")


async def _two(probing: Probing, tokens: int) -> tuple[StreamSeen, StreamSeen]:
    """A long stream, and a short one that is sent at its first token."""
    begun = asyncio.Event()
    return await asyncio.gather(_leading(probing, tokens, begun), _joining(probing, begun))


async def _leading(probing: Probing, tokens: int, begun: asyncio.Event) -> StreamSeen:
    try:
        return await _stream(probing, tokens, begun)
    finally:
        begun.set()


async def _joining(probing: Probing, begun: asyncio.Event) -> StreamSeen:
    await begun.wait()
    return await _stream(probing, _SHORT, asyncio.Event())


async def _stream(probing: Probing, tokens: int, begun: asyncio.Event) -> StreamSeen:
    """A refused or broken request is a stream with a flaw."""
    body = probing.load_body(tokens)
    try:
        return await watch_stream(probing.client, probing.path, body, PROBE_TIMEOUT_S, begun=begun)
    except HttpError as error:
        return StreamSeen(error=error.what)

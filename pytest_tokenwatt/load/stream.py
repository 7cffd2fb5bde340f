"""What an OpenAI-compatible stream says: tokens of each chunk, usage, finish reason, errors."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from pytest_tokenwatt.load.glance import glance
from pytest_tokenwatt.load.share import equal_share
from pytest_tokenwatt.load.sse import EventOverflowError, EventSplitter
from pytest_tokenwatt.records import ErrorClass

FAILED_FINISH = frozenset({"abort", "error", "cancelled"})
"""Finish reasons by which servers report that they gave a request up."""

MESSAGE_CHARS = 500
MAX_COUNT = 2**40
"""A count above it is no count of tokens; keeps nonsense out of 64-bit fields."""


class StreamReader:
    """Reads the events of one response. Never raises on what a server sends: oddities become ``error``.

    Tokens of a chunk are its token ids, else the growth of continuous usage, else an equal share of the final usage
    among the chunks with text (then ``estimated``). ``tokens`` is the count so far, a provisional one for the latter.
    """

    __slots__ = (
        "_counted",
        "_glanced", "_open", "_splitter", "cached_tokens", "chunk_s", "chunk_tokens", "done", "error", "error_message",
        "estimated", "finish_reason", "output_tokens", "prompt_tokens",
    )  # fmt: skip

    _glance: Callable[[bytes], int | None] = staticmethod(glance)

    def __init__(self) -> None:
        self._splitter = EventSplitter()
        self._counted = 0
        self._glanced: bytes | None = None
        self._open: list[int] = []
        self.chunk_s: array[float] = array("d")
        self.chunk_tokens: array[int] = array("q")
        self.output_tokens: int | None = None
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.finish_reason: str | None = None
        self.done = False
        self.estimated = False
        self.error: ErrorClass | None = None
        self.error_message: str | None = None

    @property
    def prompt_ids(self) -> array[int] | None:
        """Not kept here: the usual request costs nothing for it."""
        return None

    @property
    def output_ids(self) -> array[int] | None:
        """Not kept here."""
        return None

    @property
    def tokens(self) -> int:
        """Tokens received so far; a chunk of unknown count is taken as one."""
        return self._counted + len(self._open)

    @property
    def first_tokens(self) -> int:
        """Tokens of the first chunk that carried any."""
        return max(1, self.chunk_tokens[0]) if self.chunk_tokens else 0

    @property
    def complete(self) -> bool:
        """Whether the stream came to its own end: ``[DONE]``, or a finish reason with the final count."""
        return self.done or (self.finish_reason is not None and self.output_tokens is not None)

    def feed(self, piece: bytes, stamp_s: float) -> None:
        """Take bytes of the body that were received at ``stamp_s``."""
        if self.error is not None:
            return
        try:
            events = self._splitter.feed(piece)
        except EventOverflowError as overflow:
            self._fail(ErrorClass.PROTOCOL, str(overflow))
            return
        for data in events:
            tokens = self._glance(data)
            if tokens is not None:
                self._glanced = data
                self._add(tokens, stamp_s)
                continue
            self._event(data, stamp_s)
            if self.error is not None:
                break

    def close(self, stamp_s: float) -> None:
        """The stream ended: read a last event without its blank line, if whole, and share out unknown counts."""
        for data in self._splitter.close():
            if self.error is None and (data == b"[DONE]" or _is_json(data)):
                self._event(data, stamp_s)
        if self._glanced is not None:
            self._usage_of(self._glanced)
        if self._open:
            self._share()

    def _event(self, data: bytes, stamp_s: float) -> None:
        if data == b"[DONE]":
            self.done = True
            return
        try:
            event = orjson.loads(data)
        except orjson.JSONDecodeError:
            self._fail(ErrorClass.PROTOCOL, f"an event that is not JSON: {data[:200]!r}")
            return
        if not isinstance(event, dict):
            self._fail(ErrorClass.PROTOCOL, f"an event that is not an object: {data[:200]!r}")
        elif (message := error_of(event)) is not None:
            self._fail(ErrorClass.STREAM_ERROR, message)
        else:
            self._chunk(event, stamp_s)

    def _usage_of(self, glanced: bytes) -> None:
        """No usage came behind an event that was only glanced at: take what it carries."""
        self._glanced = None
        event = orjson.loads(glanced) if _is_json(glanced) else None
        if isinstance(event, dict) and isinstance(event.get("usage"), dict):
            self._usage(event["usage"])

    def _chunk(self, event: Mapping[str, Any], stamp_s: float) -> None:
        usage = event.get("usage")
        choices = event.get("choices")
        grown = self._usage(usage) if type(usage) is dict else None
        if type(choices) is not list:
            return
        for choice in choices:
            if type(choice) is dict:
                self._choice(choice, grown, stamp_s)
                grown = None if grown is None else 0

    def _usage(self, usage: Mapping[str, Any]) -> int | None:
        """Take a usage object; the growth of its count over what is counted, ``None`` if that cannot be a chunk's."""
        self._glanced = None
        completion = _count(usage.get("completion_tokens"))
        prompt = _count(usage.get("prompt_tokens"))
        details = usage.get("prompt_tokens_details")
        if prompt is not None:
            self.prompt_tokens = prompt
        if type(details) is dict and (cached := _count(details.get("cached_tokens"))) is not None:
            self.cached_tokens = cached
        if completion is None:
            return None
        self.output_tokens = completion
        if self._open or completion == 0:
            return None
        return max(0, completion - self._counted)

    def _choice(self, choice: Mapping[str, Any], grown: int | None, stamp_s: float) -> None:
        reason = choice.get("finish_reason")
        if type(reason) is str:
            self.finish_reason = reason
            if reason in FAILED_FINISH:
                self._fail(ErrorClass.STREAM_ERROR, f"finish_reason {reason}")
        ids = choice.get("token_ids")
        if type(ids) is list:
            self._add(len(ids), stamp_s)
        elif grown is None:
            if _has_text(choice):
                self._open.append(len(self.chunk_s))
                self.chunk_s.append(stamp_s)
                self.chunk_tokens.append(0)
        elif not _role_only(choice):
            self._add(grown, stamp_s)

    def _add(self, tokens: int, stamp_s: float) -> None:
        if tokens > 0:
            self._counted += tokens
            self.chunk_s.append(stamp_s)
            self.chunk_tokens.append(tokens)

    def _share(self) -> None:
        self.estimated = True
        left = None if self.output_tokens is None else max(0, self.output_tokens - self._counted)
        shares = [1] * len(self._open) if left is None else equal_share(left, len(self._open))
        for position, share in zip(self._open, shares, strict=True):
            self.chunk_tokens[position] = share
        self._counted += sum(shares)
        self._open.clear()
        kept = [k for k, tokens in enumerate(self.chunk_tokens) if tokens > 0]
        self.chunk_s = array("d", [self.chunk_s[k] for k in kept])
        self.chunk_tokens = array("q", [self.chunk_tokens[k] for k in kept])

    def _fail(self, error: ErrorClass, message: str) -> None:
        if self.error is None:
            self.error, self.error_message = error, message[:MESSAGE_CHARS]


def error_of(event: Mapping[str, Any]) -> str | None:
    """The message of an error object, in the forms that servers use; ``None`` when it is none."""
    error = event.get("error")
    if error:
        message = error.get("message") if isinstance(error, dict) else error
        return str(message or error)[:MESSAGE_CHARS]
    if event.get("object") == "error":
        return str(event.get("message") or event)[:MESSAGE_CHARS]
    return None


def _is_json(data: bytes) -> bool:
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return True


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= MAX_COUNT else None


def _role_only(choice: Mapping[str, Any]) -> bool:
    delta = choice.get("delta")
    return type(delta) is dict and "role" in delta and not _has_text(choice)


def _has_text(choice: Mapping[str, Any]) -> bool:
    if choice.get("text"):
        return True
    delta = choice.get("delta")
    if type(delta) is not dict:
        return False
    if delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning") or delta.get("refusal"):
        return True
    calls = delta.get("tool_calls")
    return type(calls) is list and any(_calls_text(call) for call in calls)


def _calls_text(call: Any) -> bool:
    function = call.get("function") if type(call) is dict else None
    return type(function) is dict and bool(function.get("arguments") or function.get("name"))

"""Request bodies, and the bytes of whole HTTP requests ready to be sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from pytest_tokenwatt.load.address import Address
from pytest_tokenwatt.load.prompts import prompt_source
from pytest_tokenwatt.records import Target

RESERVED_HEADERS = frozenset({"host", "content-length", "content-type", "transfer-encoding", "connection", "accept"})


class RequestWriter:
    """Renders requests of one target: streaming, temperature 0, usage and token ids asked for.

    ``extra_body`` of the target is merged last; a ``None`` in it removes a field that a strict gateway refuses.
    """

    def __init__(self, target: Target, address: Address) -> None:
        self._prompts = prompt_source(target)
        self._chat = target.api == "chat"
        self._fields = _fields(target)
        self._secrets = _secrets(target.headers)
        self._head = _head(
            target.headers, address, address.path + ("/chat/completions" if self._chat else "/completions")
        )

    def render(self, prompt_key: int, index: int, input_tokens: int, output_tokens: int) -> bytes:
        """Head and body of request ``index`` of a schedule."""
        prompt = self._prompts.make(prompt_key, index, input_tokens)
        asked = {"messages": [{"role": "user", "content": prompt}]} if self._chat else {"prompt": prompt}
        body = orjson.dumps({**self._fields, "max_tokens": output_tokens, **asked}, option=orjson.OPT_SERIALIZE_NUMPY)
        return b"%bContent-Length: %d\r\n\r\n%b" % (self._head, len(body), body)

    def mask(self, text: str) -> str:
        """``text``, such as a server's error message, without the header values that it may repeat."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def _secrets(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Whole header values, and what stands behind a scheme such as Bearer; longest first."""
    values = {part for value in headers.values() for part in (value, value.rpartition(" ")[2]) if len(part) > 2}
    return tuple(sorted(values, key=len, reverse=True))


def _fields(target: Target) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "model": target.model,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "return_token_ids": True,
        "temperature": 0,
    }
    if target.ignore_eos:
        fields["ignore_eos"] = True
    fields.update(target.extra_body)
    return {name: value for name, value in fields.items() if value is not None}


def _head(headers: Mapping[str, str], address: Address, path: str) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {address.authority}",
        "Content-Type: application/json",
        "Accept: text/event-stream",
        *(f"{name}: {value}" for name, value in headers.items() if name.lower() not in RESERVED_HEADERS),
    ]
    return ("\r\n".join(lines) + "\r\n").encode("latin-1")

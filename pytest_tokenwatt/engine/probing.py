"""What contract probes share: the request that the load will send, plain requests, and how a probe fails."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from pytest_tokenwatt.engine.control import ControlClient, parse_reply
from pytest_tokenwatt.engine.metrics import ServerMetrics
from pytest_tokenwatt.engine.scraping import read_all
from pytest_tokenwatt.engine.vocabulary import Vocabulary
from pytest_tokenwatt.records import Reply, ServedIdentity
from pytest_tokenwatt.spec.model import Engine

PROBE_TIMEOUT_S = 60.0
PROMPT_IDS = 24
TEXT = "Count upwards: one, two, three, four, five, six, seven,"
_SAFE_IDS = range(32, 200)


class ProbeFailure(Exception):
    """A probe's outcome other than a pass: ``state`` is ``missing`` or ``wrong``."""

    def __init__(self, state: str, detail: str) -> None:
        self.state = state
        self.detail = detail
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class Probing:
    """The engine under question."""

    client: ControlClient
    engine: Engine
    identity: ServedIdentity
    vocabulary: Vocabulary
    metrics_urls: tuple[str, ...]

    @property
    def chat(self) -> bool:
        """Whether the load uses the chat API."""
        return self.engine.api == "chat"

    @property
    def path(self) -> str:
        """Path of the API that carries the load."""
        return "/chat/completions" if self.chat else "/completions"

    def ids(self) -> list[int]:
        """Random ordinary token ids."""
        allowed = range(self.vocabulary.size) if self.vocabulary.size > len(_SAFE_IDS) else _SAFE_IDS
        ordinary = [token for token in random.sample(allowed, PROMPT_IDS * 4) if token not in self.vocabulary.special]
        return ordinary[:PROMPT_IDS]

    def prompt(self) -> dict[str, Any]:
        """The prompt fields, in the form that the load will use."""
        if self.chat:
            return {"messages": [{"role": "user", "content": TEXT}]}
        return {"prompt": self.ids() if self.engine.prompt == "ids" else TEXT}

    def at_most(self, tokens: int) -> int:
        """So many output tokens, or as many as the context length leaves."""
        room = (self.identity.max_model_len or tokens + 2 * PROMPT_IDS) - 2 * PROMPT_IDS
        return max(1, min(tokens, room))

    def load_body(self, max_tokens: int) -> dict[str, Any]:
        """The body that the load sends, ``extra_body`` merged last and its nulls removing fields."""
        body: dict[str, Any] = {
            "model": self.client.model,
            **self.prompt(),
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "return_token_ids": True,
        }
        if self.engine.ignore_eos:
            body["ignore_eos"] = True
        body.update(self.engine.extra_body)
        return {name: value for name, value in body.items() if value is not None}

    async def ask(self, path: str | None = None, **fields: Any) -> Reply:
        """One plain generation without streaming. Raises ``HttpError``."""
        body = {"model": self.client.model, "temperature": 0, **fields}
        url = self.client.access.endpoint + (path or self.path)
        return parse_reply(await self.client.http.ask(url, body, PROBE_TIMEOUT_S), url)

    async def metrics(self) -> ServerMetrics:
        """The engine's metrics now."""
        return await read_all(self.client, self.metrics_urls)

"""A running engine: what it says of itself, what it answers, and how it is spoken to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class ServedIdentity:
    """What a running engine says of itself; every field ``None`` or empty when it does not say.

    ``cache_config`` are the labels of ``vllm:cache_config_info``. ``start_args`` are the start-up arguments as the
    engine tells them. ``simulated`` is true for the embedded engine and makes every report say so.
    """

    model_ids: tuple[str, ...]
    version: str | None = None
    root: str | None = None
    max_model_len: int | None = None
    cache_config: Mapping[str, str] = field(default_factory=dict)
    start_args: Mapping[str, str] = field(default_factory=dict)
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """One contract probe: ``state`` is ``pass``, ``missing`` or ``wrong``; ``cost`` is what a report loses by it."""

    name: str
    required: bool
    state: str
    detail: str
    cost: str = ""


@dataclass(frozen=True, slots=True)
class Contract:
    """The probes that an engine answered before it was measured."""

    probes: tuple[ProbeOutcome, ...]

    @property
    def passed(self) -> bool:
        """Whether all required probes passed."""
        return all(probe.state == "pass" for probe in self.probes if probe.required)


@dataclass(frozen=True, slots=True)
class Reply:
    """A completion: ``token_ids`` is ``None`` when the server does not return ids."""

    text: str
    finish_reason: str | None
    prompt_tokens: int | None
    output_tokens: int | None
    token_ids: tuple[int, ...] | None
    raw: Mapping[str, Any] = field(repr=False, default_factory=dict)


class Client(Protocol):
    """The control-plane client of a running engine; not for timed load."""

    async def complete(self, prompt: str | Sequence[int], *, max_tokens: int = 16, **sampling: Any) -> Reply:
        """``/v1/completions`` without streaming. Raises ``EngineError`` on any HTTP error."""
        ...

    async def chat(self, messages: Sequence[Mapping[str, Any]], *, max_tokens: int = 16, **sampling: Any) -> Reply:
        """``/v1/chat/completions`` without streaming. Raises ``EngineError`` on any HTTP error."""
        ...

"""What a decode step of a model reads from memory: weights by the size of the batch, KV cache by the contexts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytest_tokenwatt.records import Reason

Contexts: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KvLayers:
    """Layers whose attention reads the KV cache alike.

    ``token_bytes`` is one token in one of them; ``copies`` how many GPUs of a replica hold and read each byte of it
    (1: sharded or one GPU). With a ``window`` a token reads at most that many tokens before it, itself included:
    the last ones, or, ``chunked``, those since the last multiple of the window.
    """

    layers: int
    token_bytes: float
    copies: float = 1.0
    window: int | None = None
    chunked: bool = False

    def tokens_read(self, first: Contexts, count: Contexts) -> float:
        """Cached tokens that one layer reads for runs of ``count`` tokens at contexts ``first``, ``first`` + 1, …"""
        start = np.maximum(first, 0) - 1
        return float(np.sum(self._up_to(start + count) - self._up_to(start), dtype=np.float64))

    def _up_to(self, context: Contexts) -> Contexts:
        """Tokens read by all contexts 1 … ``context`` together."""
        context = np.asarray(np.maximum(context, 0), dtype=np.int64)
        if self.window is None:
            return _triangle(context)
        if self.chunked:
            chunks, rest = np.divmod(context, self.window)
            return chunks * (self.window * (self.window + 1) // 2) + _triangle(rest)
        inside = np.minimum(context, self.window)
        return _triangle(inside) + (context - inside) * self.window


@dataclass(frozen=True, slots=True)
class ModelGeometry:
    """One model as it is stored and served: bytes of all GPUs of one replica together.

    ``dense_bytes``: what every step reads (attention, dense MLPs, shared experts, routers, output head), once.
    ``replicated_bytes``: what further GPUs of the replica read of it again, because tensor parallelism does not split
    it. ``embedding_bytes``: the input table, of which a step reads a few rows; 0 when it is tied to the head.
    ``expert_bytes``: one routed expert in all layers. ``problem`` says why the reads of a step cannot be told although
    sizes can (experts shared among data-parallel ranks).
    """

    dense_bytes: float
    kv: tuple[KvLayers, ...]
    embedding_bytes: float = 0.0
    replicated_bytes: float = 0.0
    expert_bytes: float = 0.0
    experts: int = 0
    experts_per_token: int = 0
    problem: Reason | None = None

    @property
    def shape(self) -> Literal["dense", "MoE"]:
        """Whether the model is a mixture of experts."""
        return "MoE" if self.experts else "dense"

    @property
    def stored_weight_bytes(self) -> float:
        """All weights of the checkpoint's language model, each once."""
        return self.dense_bytes + self.embedding_bytes + self.experts * self.expert_bytes

    @property
    def kv_bytes_per_token(self) -> float:
        """KV cache of one token in all layers, held once (not sharded, not replicated)."""
        return sum(group.layers * group.token_bytes for group in self.kv)

    def expected_unique_experts(self, decode_tokens_per_step: float) -> float:
        """Experts of a layer that a step of B tokens hits, N(1 − (1 − k/N)^B): picks are taken as independent."""
        if not self.experts or decode_tokens_per_step <= 0:
            return 0.0
        missed = (1.0 - self.experts_per_token / self.experts) ** decode_tokens_per_step
        return float(self.experts * (1.0 - missed))

    def weight_read_bytes(self, decode_tokens_per_step: float) -> float:
        """Weight bytes that a step of so many tokens reads, quantised weights with their scales."""
        routed = self.expected_unique_experts(decode_tokens_per_step) * self.expert_bytes
        return self.dense_bytes + self.replicated_bytes + routed

    def kv_read_bytes(self, contexts: Contexts) -> float:
        """KV bytes read for one token at each of these contexts (tokens before it, 1-D)."""
        return self.kv_read_bytes_of_runs(contexts, np.ones_like(contexts))

    def kv_read_bytes_of_runs(self, first: Contexts, count: Contexts) -> float:
        """The same for runs of tokens: ``count[i]`` of them at contexts ``first[i]``, ``first[i]`` + 1, …"""
        return sum(
            group.layers * group.token_bytes * group.copies * group.tokens_read(first, count) for group in self.kv
        )


def _triangle(n: Contexts) -> Contexts:
    """1 + 2 + … + n."""
    return np.asarray(n * (n + 1) // 2, dtype=np.int64)

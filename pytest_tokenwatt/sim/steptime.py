"""How long one engine step takes: a pure function of what is in the batch."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_tokenwatt.sim.profile import Profile


@dataclass(frozen=True, slots=True)
class Batch:
    """The work of one step.

    ``decodes`` sequences get one token each and read ``context`` tokens of KV cache together; ``prefill`` prompt tokens
    are computed, attending to ``pairs`` query-key pairs.
    """

    decodes: int
    context: int
    prefill: int
    pairs: int

    @property
    def tokens(self) -> int:
        """Tokens that go through the linear layers."""
        return self.decodes + self.prefill


class StepTime:
    """Seconds of a step of ``profile`` with one KV cache type, ``slowdown`` times longer than the model says.

    Roofline over the linear layers (reading the weights against computing the tokens), plus reading the KV cache, plus
    prefill attention, plus the host. The parts follow each other layer by layer, so they add up.
    """

    def __init__(self, profile: Profile, kv_dtype: str, slowdown: float = 1.0) -> None:
        machine = profile.machine
        kv = profile.kv_formats[kv_dtype]
        self._slowdown = slowdown
        self._weights = profile.weights
        self._kv_bytes = kv.bytes_per_token
        self._weight_bandwidth = machine.bandwidth * machine.weight_share
        self._token_s = profile.token_flops / machine.linear_flops
        self._pair_s = profile.pair_flops / machine.attention_flops
        self._context_s = kv.bytes_per_token / (machine.bandwidth * kv.bandwidth_share)
        self._step_s = machine.step_overhead_s
        self._sequence_s = machine.sequence_overhead_s

    def __call__(self, batch: Batch) -> float:
        """Seconds that ``batch`` takes; the overhead alone for an empty one."""
        linear_s, attention_s, host_s = self.parts(batch)
        return self._slowdown * (linear_s + attention_s + host_s)

    def parts(self, batch: Batch) -> tuple[float, float, float]:
        """Seconds of the linear layers, of attention and of the host, before any slowdown."""
        reading_s = self._weights.read_bytes(batch.tokens) / self._weight_bandwidth
        linear_s = max(reading_s, batch.tokens * self._token_s)
        attention_s = batch.context * self._context_s + batch.pairs * self._pair_s
        return linear_s, attention_s, self._step_s + batch.decodes * self._sequence_s

    def read_bytes(self, batch: Batch) -> tuple[float, float]:
        """Bytes that ``batch`` reads of the weights and of the KV cache."""
        return self._weights.read_bytes(batch.tokens), float(batch.context * self._kv_bytes)

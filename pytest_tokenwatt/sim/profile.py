"""What the embedded engine pretends to be: a model on a machine, as physical constants."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes that a step reads of the weights: the dense part always, of the routed experts those that were picked.

    ``expert_bytes`` is one routed expert in all layers; ``experts`` 0 means a dense model. ``embedding_bytes`` are
    stored, but a step reads only a few of their rows.
    """

    dense_bytes: float
    expert_bytes: float = 0.0
    experts: int = 0
    experts_per_token: int = 0
    embedding_bytes: float = 0.0

    @property
    def stored_bytes(self) -> float:
        """All weights together."""
        return self.dense_bytes + self.experts * self.expert_bytes + self.embedding_bytes

    def read_bytes(self, tokens: int) -> float:
        """Bytes read by a step of ``tokens`` tokens: N(1 - (1 - k/N)^tokens) experts are hit when picks are uniform."""
        if not self.experts:
            return self.dense_bytes
        missed = (1 - self.experts_per_token / self.experts) ** tokens
        return self.dense_bytes + self.experts * (1 - missed) * self.expert_bytes


@dataclass(frozen=True, slots=True)
class KvFormat:
    """One KV cache type: its size, and the share of the rated bandwidth that decode attention reaches with it."""

    bytes_per_token: int
    bandwidth_share: float


@dataclass(frozen=True, slots=True)
class Limits:
    """What the scheduler may use: sequences at once, tokens a step, and blocks of ``block_size`` tokens."""

    max_num_seqs: int
    max_num_batched_tokens: int
    blocks: int
    block_size: int


@dataclass(frozen=True, slots=True)
class Machine:
    """The accelerator and the host in front of it, as rates that real kernels reach rather than data-sheet peaks.

    ``bandwidth`` is the rated one in B/s, of which the weight-bound GEMMs reach ``weight_share``. ``linear_flops`` and
    ``attention_flops`` are FLOP/s of prefill. ``step_overhead_s`` is the host's part of each step (scheduling,
    sampling, launches), ``sequence_overhead_s`` what every decoding sequence adds to it.
    """

    bandwidth: float
    weight_share: float
    linear_flops: float
    attention_flops: float
    step_overhead_s: float
    sequence_overhead_s: float


@dataclass(frozen=True, slots=True)
class PowerModel:
    """What the board draws, in W, and how its sensor says so.

    ``idle_w`` with the model resident and no step under way, ``active_w`` with the clocks up during a step. Reading at
    the rated bandwidth adds ``memory_w``, computing at the machine's rate of FLOP/s ``compute_w``. ``limit_w`` is the
    limit that the driver tells; the regulator begins to hold the draw at ``cap_w``, a little below it. A reading is the
    mean of the last ``sensor_average_s``.
    """

    idle_w: float
    active_w: float
    memory_w: float
    compute_w: float
    cap_w: float
    limit_w: float
    sensor_average_s: float


@dataclass(frozen=True, slots=True)
class Board:
    """The pretended card: its name, its memory (2**30 bytes) and what it draws."""

    name: str
    memory_gib: float
    power: PowerModel


@dataclass(frozen=True, slots=True)
class EngineStart:
    """What the engine says of its start beside weights and KV cache: made up, like the machine.

    Memory (2**30 bytes) of the activations' peak, outside torch (the driver's context, communication) and of CUDA
    graphs; seconds of loading and of initialisation; ``quantization`` as vLLM names the weights' format. The KV cache
    gets ``gpu_memory_utilization`` of the board less all this.
    """

    gpu_memory_utilization: float
    activation_gib: float
    non_torch_gib: float
    cuda_graph_gib: float
    load_s: float
    init_s: float
    quantization: str | None = None

    @property
    def other_gib(self) -> float:
        """What is neither weights nor KV cache."""
        return self.activation_gib + self.non_torch_gib + self.cuda_graph_gib


@dataclass(frozen=True, slots=True)
class Profile:
    """A model served on a machine with the limits that its engine was started with.

    ``token_flops`` is the linear work of one token, ``pair_flops`` the attention work of one query-key pair.
    ``kv_pool_bytes`` is what the KV cache may use. Lengths are tokens.
    """

    name: str
    model: str
    weights: Weights
    kv_formats: Mapping[str, KvFormat]
    machine: Machine
    board: Board
    startup: EngineStart
    token_flops: float
    pair_flops: float
    kv_pool_bytes: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int = 16

    def limits(self, kv_dtype: str) -> Limits:
        """What the scheduler may use with one KV cache type."""
        blocks = self.kv_pool_bytes // (self.kv_formats[kv_dtype].bytes_per_token * self.block_size)
        return Limits(self.max_num_seqs, self.max_num_batched_tokens, blocks, self.block_size)

    def pool_at(self, gpu_memory_utilization: float) -> int:
        """Bytes that this share of the board's memory leaves for the KV cache; not above 0 when it leaves none."""
        share_gib = gpu_memory_utilization * self.board.memory_gib - self.startup.other_gib
        return math.floor(share_gib * _GIB - self.weights.stored_bytes)

    def limited(
        self,
        *,
        max_model_len: int | None = None,
        max_num_seqs: int | None = None,
        kv_pool_bytes: int | None = None,
    ) -> Profile:
        """The same profile with other engine limits (``None`` keeps one)."""
        return replace(
            self,
            max_model_len=self.max_model_len if max_model_len is None else max_model_len,
            max_num_seqs=self.max_num_seqs if max_num_seqs is None else max_num_seqs,
            kv_pool_bytes=self.kv_pool_bytes if kv_pool_bytes is None else kv_pool_bytes,
        )


_QWEN3_30B_A3B_FP8 = Profile(
    name="h100-qwen3-30b-a3b-fp8",
    model="Qwen/Qwen3-30B-A3B-FP8",
    # 48 layers, hidden 2048, 32 query and 4 KV heads of 128, 128 experts of width 768 of which 8 are picked; FP8 with a
    # BF16 scale per 128 x 128 block; router, output head and embedding in BF16.
    weights=Weights(
        dense_bytes=48 * (2048 * (4096 + 2 * 512 + 4096) + 2 * 2048 * 128) + 2 * 2048 * 151_936,
        expert_bytes=48 * 3 * 2048 * 768 * (1 + 2 / 128**2),
        experts=128,
        experts_per_token=8,
        embedding_bytes=2 * 2048 * 151_936,
    ),
    # Decode attention with 8 query heads a KV head comes near the bandwidth in BF16. In FP8 the same work
    # (dequantising, scaling, the softmax) stands against half the bytes, in four bits against a quarter.
    kv_formats=MappingProxyType(
        {
            "auto": KvFormat(98_304, 0.88),
            "fp8": KvFormat(49_152, 0.53),
            "int4": KvFormat(24_576, 0.35),
        }
    ),
    # H100 SXM. Grouped FP8 GEMMs of few tokens an expert reach three quarters of its bandwidth; with full tiles, a
    # quarter of its 1,979 dense FP8 TFLOP/s; causal attention in BF16 over half of its 989. A step costs the host 2 ms.
    machine=Machine(
        bandwidth=3.35e12,
        weight_share=0.78,
        linear_flops=4.8e14,
        attention_flops=5.5e14,
        step_overhead_s=2.0e-3,
        sequence_overhead_s=6e-6,
    ),
    # Set so that the linear layers, prefill and decode attention over a BF16 KV cache want more than the limit, and
    # decode attention over an FP8 one, at half the bandwidth, does not. A card of this kind serving chat-mix-v1 at the
    # SLO drew 637 W with the power cap in 199 of 240 samples in BF16, 616 W with 133 in FP8. Its sensor averages 1 s.
    board=Board(
        name="simulated H100 80GB HBM3",
        memory_gib=79.6,
        power=PowerModel(
            idle_w=110.0,
            active_w=160.0,
            memory_w=800.0,
            compute_w=550.0,
            cap_w=680.0,
            limit_w=700.0,
            sensor_average_s=1.0,
        ),
    ),
    startup=EngineStart(
        gpu_memory_utilization=0.92,
        activation_gib=1.2,
        non_torch_gib=0.3,
        cuda_graph_gib=0.7,
        load_s=14.0,
        init_s=31.0,
        quantization="fp8",
    ),
    token_flops=2 * 3.35e9,  # 3.35 G parameters are active for a token
    pair_flops=48 * 4 * 4096,  # QK and PV: 2 x 2 FLOP for each of 32 x 128 query channels and layer
    # vLLM takes 0.92 of 79.6 GiB; 29.0 GiB hold the weights, 2.2 GiB activations of 8,192 tokens, CUDA graphs and the
    # driver's context.
    kv_pool_bytes=42 * _GIB,
    # With the model's own 40,960 the long tail of chat-mix-v1 fills the pool at 9 req/s in BF16, and p99 prompts alone
    # take longer than the reference's TTFT p99 of 340 ms; started with 8,192, both come out right.
    max_model_len=8192,
    max_num_seqs=1024,
    max_num_batched_tokens=8192,
)
_QUICKSTART = Profile(
    name="quickstart",
    model="tokenwatt/embedded-tiny",
    # A made-up accelerator, slow enough that two CPU cores can serve it and its load in real time. Reading the KV cache
    # dominates its steps, so that a smaller one shows.
    weights=Weights(dense_bytes=102e6),
    kv_formats=MappingProxyType(
        {
            "auto": KvFormat(65_536, 1.0),
            "fp8": KvFormat(32_768, 0.95),
            "int4": KvFormat(16_384, 0.90),
        }
    ),
    machine=Machine(
        bandwidth=32.5e9,
        weight_share=1.0,
        linear_flops=16e12,
        attention_flops=12e12,
        step_overhead_s=2e-3,
        sequence_overhead_s=0.0,
    ),
    # Its windows are seconds, so its sensor averages over a tenth of one. Reading at the full bandwidth just reaches
    # its limit, so that a BF16 KV cache is capped most of the time and a smaller one is not.
    board=Board(
        name="simulated quickstart board",
        memory_gib=4.0,
        power=PowerModel(
            idle_w=12.0,
            active_w=20.0,
            memory_w=54.0,
            compute_w=20.0,
            cap_w=73.0,
            limit_w=75.0,
            sensor_average_s=0.1,
        ),
    ),
    startup=EngineStart(
        gpu_memory_utilization=0.55,
        activation_gib=0.05,
        non_torch_gib=0.03,
        cuda_graph_gib=0.02,
        load_s=0.4,
        init_s=0.8,
    ),
    token_flops=1e8,
    pair_flops=4e4,
    kv_pool_bytes=2 * _GIB,
    max_model_len=4096,
    max_num_seqs=256,
    max_num_batched_tokens=2048,
)
PROFILES: Mapping[str, Profile] = MappingProxyType({p.name: p for p in (_QWEN3_30B_A3B_FP8, _QUICKSTART)})
"""All profiles by name."""

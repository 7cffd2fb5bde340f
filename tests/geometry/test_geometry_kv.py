"""KV cache: bytes a token, what decoding reads of them, windows, and tensor parallelism."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from geometry_configs import (
    DEEPSEEK_V3,
    GEMMA2_9B,
    GEMMA3_4B,
    GPT_OSS_20B,
    LLAMA4_MAVERICK,
    LLAMA_31_8B,
    QWEN3_8B,
    QWEN3_30B_A3B,
    Config,
    geometry,
    refusal,
)
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.geometry.model import ModelGeometry


def at(*contexts: int) -> Any:
    return np.array(contexts, dtype=np.int64)


@pytest.mark.parametrize(
    ("config", "kv_dtype", "expected"),
    [
        (QWEN3_30B_A3B, "bf16", 98_304),
        (QWEN3_30B_A3B, "fp8", 49_152),
        (QWEN3_8B, "bf16", 147_456),
        (QWEN3_8B, "fp8", 73_728),
        (QWEN3_8B, "fp8_e4m3", 73_728),
        (QWEN3_8B, "float32", 294_912),
        (QWEN3_8B, "int4", 36_864),
        (QWEN3_8B, "nvfp4", 41_472),
        (QWEN3_8B, "auto", 147_456),
        (QWEN3_8B, None, 147_456),
        (LLAMA_31_8B, "fp16", 131_072),
        (DEEPSEEK_V3, "bf16", 576 * 61 * 2),
        (GPT_OSS_20B, "bf16", 49_152),
    ],
)
def test_a_tokens_cache_has_the_published_size(config: Config, kv_dtype: str | None, expected: float) -> None:
    model = geometry(config, kv_dtype=kv_dtype)

    assert model.kv_bytes_per_token == expected
    assert model.kv_read_bytes(at(1)) == expected


def test_a_cache_type_that_is_not_known_is_not_guessed() -> None:
    assert "turboquant_k8v4" in refusal(QWEN3_8B, kv_dtype="turboquant_k8v4")


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, 73_728),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}, 73_728),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}},
                "kv_cache_scheme": {"num_bits": 8, "type": "float"},
            },
            73_728,
        ),
        ({"quant_method": "fp8"}, 147_456),
    ],
)
def test_auto_is_what_the_checkpoint_asks_for(quantization: Config, expected: float) -> None:
    config = QWEN3_8B | {"quantization_config": quantization}

    assert geometry(config, kv_dtype="auto").kv_bytes_per_token == expected
    assert geometry(config, kv_dtype="bf16").kv_bytes_per_token == 147_456


@pytest.mark.parametrize(("gpus", "copies"), [(1, 1), (4, 1), (8, 2), (16, 4)])
def test_more_gpus_than_kv_heads_read_the_cache_several_times(gpus: int, copies: int) -> None:
    model = geometry(QWEN3_30B_A3B, tensor_parallel=gpus)

    assert model.kv_bytes_per_token == 98_304
    assert model.kv_read_bytes(at(1000)) == copies * 98_304 * 1000


def test_a_latent_cache_is_whole_on_every_gpu() -> None:
    assert geometry(DEEPSEEK_V3, tensor_parallel=8).kv_read_bytes(at(100)) == 8 * 576 * 61 * 2 * 100


LAYERS = {"num_hidden_layers": 32, "sliding_window": 4096}


@pytest.mark.parametrize(
    ("config", "windowed", "window", "chunked"),
    [
        (GEMMA3_4B, 29, 1024, False),
        (GEMMA2_9B, 21, 4096, False),
        (GPT_OSS_20B, 12, 128, False),
        (GPT_OSS_20B | {"layer_types": None}, 12, 128, False),
        (LLAMA4_MAVERICK, 36, 8192, True),
        (LLAMA_31_8B | {"model_type": "mistral"} | LAYERS, 32, 4096, False),
        (LLAMA_31_8B | {"model_type": "cohere2"} | LAYERS, 24, 4096, False),
        (LLAMA_31_8B | {"sliding_window_pattern": 4} | LAYERS, 24, 4096, False),
        (LLAMA_31_8B | {"sliding_window_pattern": "LLLG"} | LAYERS, 24, 4096, False),
        (LLAMA_31_8B | {"use_sliding_window": True, "max_window_layers": 20} | LAYERS, 12, 4096, False),
        (LLAMA_31_8B | {"use_sliding_window": False, "max_window_layers": 20} | LAYERS, 0, None, False),
        (LLAMA_31_8B | {"sliding_window": 0}, 0, None, False),
    ],
)
def test_windows_are_found_layer_by_layer(config: Config, windowed: int, window: int | None, chunked: bool) -> None:
    groups = [group for group in geometry(config).kv if group.window is not None]

    assert sum(group.layers for group in groups) == windowed
    assert {(group.window, group.chunked) for group in groups} == ({(window, chunked)} if windowed else set())
    assert (
        sum(group.layers for group in geometry(config).kv) == (config.get("text_config") or config)["num_hidden_layers"]
    )


def test_a_sliding_window_bounds_what_a_token_reads() -> None:
    model = geometry(GPT_OSS_20B)
    layer = 2 * 8 * 64 * 2

    assert model.kv_read_bytes(at(100)) == 24 * layer * 100
    assert model.kv_read_bytes(at(5000)) == 12 * layer * (5000 + 128)


def test_chunked_attention_starts_anew_behind_each_chunk() -> None:
    model = geometry(LLAMA4_MAVERICK)
    layer = 2 * 8 * 128 * 2

    assert model.kv_read_bytes(at(8192)) == 48 * layer * 8192
    assert model.kv_read_bytes(at(8193)) == layer * (12 * 8193 + 36 * 1)


def naive(model: ModelGeometry, context: int) -> float:
    read = 0.0
    for group in model.kv:
        seen = context
        if group.window is not None:
            seen = (context - 1) % group.window + 1 if group.chunked and context else min(context, group.window)
        read += group.layers * group.token_bytes * group.copies * seen
    return read


@pytest.mark.parametrize("config", [QWEN3_8B, GPT_OSS_20B, GEMMA3_4B, LLAMA4_MAVERICK | {"attention_chunk_size": 100}])
@given(first=st.integers(0, 3000), count=st.integers(1, 400))
def test_a_run_of_tokens_reads_what_its_tokens_read(config: Config, first: int, count: int) -> None:
    model = geometry(config)
    contexts = np.arange(first, first + count)

    assert model.kv_read_bytes_of_runs(at(first), at(count)) == pytest.approx(model.kv_read_bytes(contexts))
    assert model.kv_read_bytes(contexts) == pytest.approx(sum(naive(model, int(context)) for context in contexts))


@pytest.mark.parametrize("config", [QWEN3_8B, GPT_OSS_20B, GEMMA3_4B, DEEPSEEK_V3])
@given(context=st.integers(0, 200_000), more=st.integers(0, 5000))
def test_a_longer_context_never_reads_less(config: Config, context: int, more: int) -> None:
    model = geometry(config)

    assert model.kv_read_bytes(at(context)) <= model.kv_read_bytes(at(context + more))
    assert model.kv_read_bytes(at(context)) <= model.kv_bytes_per_token * context

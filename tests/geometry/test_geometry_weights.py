"""Weights of published models against their published totals, and what of them a step reads."""

from __future__ import annotations

from typing import Any

import pytest
from geometry_configs import (
    DEEPSEEK_V3,
    GEMMA2_9B,
    GEMMA3_4B,
    GLM_45,
    GPT_OSS_20B,
    LLAMA4_MAVERICK,
    LLAMA_31_8B,
    MIXTRAL_8X7B,
    QWEN3_8B,
    QWEN3_30B_A3B,
    QWEN15_MOE_A27B,
    Config,
    geometry,
)
from hypothesis import given
from hypothesis import strategies as st

# Parameters by the model cards or the safetensors headers, DeepSeek-V3 without its multi-token-prediction layer.
PUBLISHED = [
    (QWEN3_8B, 8.19e9),
    (LLAMA_31_8B, 8_030_261_248),
    (MIXTRAL_8X7B, 46_702_792_704),
    (QWEN3_30B_A3B, 30.53e9),
    (DEEPSEEK_V3, 671.0e9),
    (GPT_OSS_20B | {"quantization_config": None}, 20.91e9),
    (LLAMA4_MAVERICK, 400.7e9),
    (GEMMA3_4B, 3.88e9),
    (GEMMA2_9B, 9.24e9),
    (GLM_45, 352.8e9),
    (QWEN15_MOE_A27B, 14.3e9),
]
# What a token activates, by the model cards, which count the input table.
ACTIVE = [(MIXTRAL_8X7B, 12.9e9), (QWEN3_30B_A3B, 3.3e9), (DEEPSEEK_V3, 37e9), (QWEN15_MOE_A27B, 2.7e9)]


@pytest.mark.parametrize(("config", "published"), PUBLISHED, ids=lambda value: name_of(value))
def test_all_parameters_are_counted(config: Config, published: float) -> None:
    assert geometry(config).stored_weight_bytes / 2 == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize(("config", "published"), ACTIVE, ids=lambda value: name_of(value))
def test_one_token_reads_the_active_parameters(config: Config, published: float) -> None:
    model = geometry(config)

    assert (model.weight_read_bytes(1) + model.embedding_bytes) / 2 == pytest.approx(published, rel=0.03)


def name_of(value: Any) -> str | None:
    return value["model_type"] if isinstance(value, dict) else None


def test_a_dense_step_reads_all_but_the_input_table() -> None:
    model = geometry(QWEN3_8B)

    assert model.shape == "dense"
    assert model.embedding_bytes == 151_936 * 4096 * 2
    assert model.weight_read_bytes(1) == model.weight_read_bytes(500)
    assert model.weight_read_bytes(1) == model.stored_weight_bytes - model.embedding_bytes


def test_a_tied_head_is_counted_once() -> None:
    apart, tied = geometry(QWEN3_8B), geometry(QWEN3_8B | {"tie_word_embeddings": True})

    assert tied.weight_read_bytes(1) == apart.weight_read_bytes(1)
    assert tied.stored_weight_bytes == apart.weight_read_bytes(1)


def test_sixteen_tokens_hit_82_of_128_experts() -> None:
    model = geometry(QWEN3_30B_A3B)

    assert model.shape == "MoE"
    assert model.expected_unique_experts(16) == pytest.approx(82.4, abs=0.05)
    assert model.expected_unique_experts(1) == pytest.approx(8)
    assert model.expected_unique_experts(0) == 0
    assert model.expected_unique_experts(4000) == pytest.approx(128)


def test_shared_experts_and_first_dense_layers_are_read_by_every_step() -> None:
    model = geometry(DEEPSEEK_V3)
    expert = 3 * 7168 * 2048 * 2
    latent = 7168 * (1536 + 576) + 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168

    assert model.expert_bytes == 58 * expert
    expected = 61 * latent * 2 + 3 * 3 * 7168 * 18432 * 2 + 58 * (expert + 256 * 7168 * 2) + 129_280 * 7168 * 2
    assert model.dense_bytes == expected


def test_every_other_layer_of_llama_4_is_dense_and_wider() -> None:
    model = geometry(LLAMA4_MAVERICK)

    assert model.expert_bytes == 24 * 3 * 5120 * 8192 * 2
    assert (model.experts, model.experts_per_token) == (128, 1)


@pytest.mark.parametrize(
    ("keys", "sparse"),
    [
        ({"mlp_only_layers": [0, 5]}, 46),
        ({"decoder_sparse_step": 2}, 24),
        ({"first_k_dense_replace": 3}, 45),
        ({"moe_layer_freq": [0] * 8 + [1] * 40}, 40),
        ({"moe_layers": [1, 3]}, 2),
        ({"mlp_layer_types": ["dense"] * 10 + ["sparse"] * 38}, 38),
        ({"moe_layer_start_index": 4, "moe_layer_end_index": 43}, 40),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_layers_with_experts_are_found_by_each_spelling(keys: Config, sparse: int) -> None:
    assert geometry(QWEN3_30B_A3B | keys).expert_bytes == sparse * 3 * 2048 * 768 * 2


def test_an_mlp_without_gate_has_two_matrices() -> None:
    gated, plain = geometry(LLAMA_31_8B), geometry(LLAMA_31_8B | {"hidden_act": "relu2"})

    assert gated.dense_bytes - plain.dense_bytes == 32 * 4096 * 14336 * 2


def test_gpus_that_share_layers_read_what_is_not_split_again() -> None:
    alone, eight, sixteen = (geometry(LLAMA_31_8B, tensor_parallel=gpus) for gpus in (1, 8, 16))

    assert alone.replicated_bytes == eight.replicated_bytes == 0
    assert sixteen.replicated_bytes == 32 * 2 * 4096 * 1024 * 2
    latent = geometry(DEEPSEEK_V3, tensor_parallel=8)
    assert latent.replicated_bytes == 7 * 2 * (61 * 7168 * (1536 + 576) + 58 * 256 * 7168)
    assert latent.stored_weight_bytes == geometry(DEEPSEEK_V3).stored_weight_bytes


@given(st.floats(0.1, 1e5), st.floats(1.0, 10.0))
def test_reads_grow_with_the_batch_from_the_dense_part_to_all_that_is_stored(batch: float, factor: float) -> None:
    model = geometry(MIXTRAL_8X7B)
    read = model.weight_read_bytes(batch)

    assert model.dense_bytes < read <= model.stored_weight_bytes
    assert read <= model.weight_read_bytes(batch * factor)

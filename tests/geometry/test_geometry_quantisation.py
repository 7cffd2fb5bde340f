"""Bytes of quantised weights with their scales, and what of a checkpoint stays in 16 bits."""

from __future__ import annotations

import pytest
from geometry_configs import (
    DEEPSEEK_V3,
    GPT_OSS_20B,
    LLAMA_31_8B,
    QWEN3_8B,
    QWEN3_30B_A3B,
    QWEN3_30B_A3B_FP8,
    Config,
    geometry,
    refusal,
)

HEAD = 128_256 * 4096 * 2
LINEAR = 32 * (4096 * (4096 + 2 * 1024 + 4096) + 3 * 4096 * 14336)


def bits_per_weight(quantization: Config, **loading: str) -> float:
    """Of Llama 3.1 8B's layers, without its output head."""
    model = geometry(LLAMA_31_8B | {"quantization_config": quantization}, **loading)
    return (model.dense_bytes - HEAD) * 8 / LINEAR


def groups(**weights: object) -> Config:
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": ["lm_head"],
    }


@pytest.mark.parametrize(
    ("quantization", "bits"),
    [
        ({"quant_method": "fp8"}, 8),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + 32 / 128**2),
        ({"quant_method": "fbgemm_fp8"}, 8 + 32 / 5400),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, 4 + 20 / 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8 + 24 / 5400),
        ({"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True}, 4 + 20 / 64),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 128}, 4 + 20 / 128),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8 + 32 / 5400),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.5),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
            4 + 8.125 / 64,
        ),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, 4.5),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}, 8),
        (groups(num_bits=4, type="int", strategy="group", group_size=128), 4 + 16 / 128),
        (groups(num_bits=4, type="int", strategy="group", group_size=32, symmetric=False), 4 + 20 / 32),
        (groups(num_bits=4, type="float", strategy="tensor_group", group_size=16), 4.5),
        (groups(num_bits=4, type="float", strategy="group", group_size=32), 4.25),
        (groups(num_bits=8, type="float", strategy="block", block_structure=[128, 128]), 8 + 32 / 128**2),
        (groups(num_bits=8, type="int", strategy="channel"), 8 + 16 / 5400),
        (groups(num_bits=8, type="float", strategy="tensor"), 8),
    ],
)
def test_bits_of_a_weight_have_its_scales_within(quantization: Config, bits: float) -> None:
    # A row has 4,096 inputs, or 14,336 in a quarter of the weights: one scale a row is about one for 5,400 weights.
    assert bits_per_weight(quantization) == pytest.approx(bits, rel=2e-4)


def test_gpt_oss_has_the_published_checkpoint_size() -> None:
    assert geometry(GPT_OSS_20B).stored_weight_bytes / 2**30 == pytest.approx(12.8, abs=0.05)
    assert geometry(GPT_OSS_20B).expert_bytes == 24 * 3 * 2880 * 2880 * 4.25 / 8


def test_router_and_head_of_an_fp8_model_stay_in_16_bits() -> None:
    model = geometry(QWEN3_30B_A3B_FP8)
    block = 1 + 4 / 128**2

    assert model.expert_bytes == pytest.approx(48 * 3 * 2048 * 768 * block)
    plain = 2 * (48 * 128 * 2048 + 151_936 * 2048)
    assert model.dense_bytes == pytest.approx(plain + 48 * (2 * 4096 + 2 * 512) * 2048 * block)
    assert model.stored_weight_bytes == pytest.approx(31.17e9, rel=0.001)


@pytest.mark.parametrize(
    "entry",
    [
        "model.layers.0.self_attn",
        "self_attn",
        "model.language_model.layers.0.self_attn",
        "model.layers.*.self_attn",
        "model.layers.0.self_attn*",
        "re:.*self_attn.*",
        "re:.*layers\\.0\\.self_attn\\.[qkvo]_proj$",
    ],
)
def test_excluded_modules_stay_in_16_bits_however_they_are_written(entry: str) -> None:
    config = QWEN3_8B | {"num_hidden_layers": 1}
    attention = 4096 * (4096 + 2 * 1024 + 4096)
    quantised = geometry(config | {"quantization_config": {"quant_method": "fp8"}})
    kept = geometry(config | {"quantization_config": {"quant_method": "fp8", "modules_to_not_convert": [entry]}})

    assert kept.dense_bytes - quantised.dense_bytes == attention


@pytest.mark.parametrize("entry", ["mlp.gate", "model.layers.3.mlp.gate", "re:.*mlp.gate$", "re:[", 7, "", "visual"])
def test_a_listed_router_does_not_keep_the_gate_projection(entry: object) -> None:
    quantization = {"quant_method": "fp8", "ignored_layers": [entry]}

    assert bits_per_weight(quantization) == pytest.approx(8)


def test_groups_give_their_targets_different_widths() -> None:
    config = {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "a": {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"}},
            "b": {"targets": ["model.layers.0.mlp.down_proj"], "weights": {"num_bits": 8, "strategy": "tensor"}},
        },
    }
    attention, down = 32 * 4096 * (4096 + 2 * 1024 + 4096), 4096 * 14336

    assert bits_per_weight(config) == pytest.approx(16 - 8 * (attention + down) / LINEAR)


def test_a_quantised_head_is_counted_where_the_checkpoint_says_so() -> None:
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    plain = geometry(LLAMA_31_8B | {"quantization_config": gptq})
    head = geometry(LLAMA_31_8B | {"quantization_config": gptq | {"lm_head": True}})

    assert plain.dense_bytes - head.dense_bytes == pytest.approx(HEAD * (1 - (4 + 20 / 128) / 16))


@pytest.mark.parametrize(
    ("weight_dtype", "bits"),
    [("fp8", 8), ("int8", 8), ("bf16", 16), ("fp32", 32), ("nvfp4", 4.5), ("mxfp4", 4.25), ("auto", 16)],
)
def test_the_stated_type_counts_where_the_checkpoint_says_nothing(weight_dtype: str, bits: float) -> None:
    model = geometry(LLAMA_31_8B, weight_dtype=weight_dtype)
    head = HEAD * 2 if weight_dtype == "fp32" else HEAD

    assert (model.dense_bytes - head) * 8 / LINEAR == pytest.approx(bits)


def test_a_float32_checkpoint_is_served_in_16_bits() -> None:
    assert geometry(QWEN3_8B | {"torch_dtype": "float32"}).dense_bytes == geometry(QWEN3_8B).dense_bytes


def test_a_stated_type_that_agrees_changes_nothing() -> None:
    assert geometry(QWEN3_30B_A3B_FP8, weight_dtype="fp8") == geometry(QWEN3_30B_A3B_FP8)
    assert geometry(GPT_OSS_20B, weight_dtype="mxfp4") == geometry(GPT_OSS_20B)


@pytest.mark.parametrize(
    ("keys", "weight_dtype", "named"),
    [
        ({"quant_method": "fp8"}, "bf16", "weight_dtype is 'bf16'"),
        ({"quant_method": "fp8"}, "int4", "8-bit"),
        ({}, "int4", "quantization_config is missing"),
        ({}, "q4_k_m", "q4_k_m"),
        ({"quant_method": "aqlm"}, None, "aqlm"),
        ({"quant_method": "gptq", "group_size": 128}, None, "bits is missing"),
        ({"quant_method": "gptq", "bits": 4}, None, "group_size is missing"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"+:.*": {"bits": 8}}}, None, "dynamic"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, None, "weight_block_size"),
        ({"quant_method": "bitsandbytes"}, None, "load_in_4bit"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, None, "mixed_precision"),
        ({"quant_method": "compressed-tensors"}, None, "config_groups"),
        (groups(num_bits=4, strategy="attn_head"), None, "attn_head"),
        (groups(num_bits=8) | {"sparsity_config": {"format": "sparse-24-bitmask"}}, None, "sparsity_config"),
    ],
)
def test_what_does_not_tell_the_bytes_is_not_guessed(keys: Config, weight_dtype: str | None, named: str) -> None:
    assert named in refusal(QWEN3_8B | {"quantization_config": keys}, weight_dtype=weight_dtype)


def test_deepseeks_projections_are_found_by_their_names() -> None:
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    whole = geometry(DEEPSEEK_V3 | {"quantization_config": fp8})
    kept = geometry(
        DEEPSEEK_V3 | {"quantization_config": fp8 | {"modules_to_not_convert": ["kv_b_proj", "mlp.shared_experts"]}}
    )

    weights = 61 * 512 * 128 * 256 + 58 * 3 * 7168 * 2048
    assert kept.dense_bytes - whole.dense_bytes == pytest.approx(weights, rel=0.001)
    assert geometry(QWEN3_30B_A3B).expert_bytes == 2 * 48 * 3 * 2048 * 768

"""Where a geometry is read from, what overrides it, and what is said when it is not to be had."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from geometry_configs import DEEPSEEK_V3, MIXTRAL_8X7B, QWEN3_8B, QWEN3_30B_A3B, Config, geometry, outcome, refusal
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_tokenwatt.geometry.config import load_geometry, model_shape
from pytest_tokenwatt.geometry.model import ModelGeometry
from pytest_tokenwatt.records import Reason
from pytest_tokenwatt.spec.serving import Model

QUICKSTART = {"weight_bytes": 102_000_000, "num_hidden_layers": 16, "num_key_value_heads": 8, "head_dim": 128}


def model_dir(root: Path, config: Any, name: str = "model") -> Path:
    (root / name).mkdir()
    (root / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return root / name


def test_a_directory_and_a_file_are_read_alike_and_the_first_that_exists_counts(tmp_path: Path) -> None:
    directory = model_dir(tmp_path, QWEN3_8B)
    other = model_dir(tmp_path, MIXTRAL_8X7B, "other")
    (tmp_path / "empty").mkdir()
    places = [tmp_path / "nowhere", tmp_path / "empty", directory, other]

    assert load_geometry(Model(), places=places) == geometry(QWEN3_8B)
    assert load_geometry(Model(), places=[other / "config.json"]) == geometry(MIXTRAL_8X7B)


def test_geometry_wins_over_the_file(tmp_path: Path) -> None:
    model = Model(geometry={"num_hidden_layers": 18, "weight_bytes": 5e9, "sliding_window": None})
    found = load_geometry(model, places=[model_dir(tmp_path, QWEN3_8B)], kv_dtype="fp8")

    assert isinstance(found, ModelGeometry)
    assert found.kv_bytes_per_token == 73_728 / 2
    assert found.weight_read_bytes(7) == 5e9


def test_geometry_alone_suffices_for_the_embedded_engine() -> None:
    plain, small = geometry(QUICKSTART), geometry(QUICKSTART, kv_dtype="int4")

    assert plain.weight_read_bytes(1) == plain.weight_read_bytes(90) == 102e6
    assert (plain.kv_bytes_per_token, small.kv_bytes_per_token) == (65_536, 16_384)
    assert plain.shape == "dense"


def test_stated_bytes_of_experts_and_cache_replace_the_count() -> None:
    found = geometry(
        {"weight_bytes": 1e9, "expert_bytes": 1e8, "kv_bytes_per_token": 1000, "num_experts": 64, "top_k": 8}
    )

    assert found.weight_read_bytes(1) == pytest.approx(1e9 + 8e8)
    assert found.stored_weight_bytes == pytest.approx(1e9 + 64e8)
    assert found.kv_read_bytes(np.array([10, 20])) == 30_000


def test_a_stated_cache_keeps_windows_and_copies() -> None:
    config = QWEN3_30B_A3B | {"kv_bytes_per_token": 48_000, "layer_types": None, "sliding_window": 100}
    found = geometry(config | {"use_sliding_window": True, "max_window_layers": 24}, tensor_parallel=8)

    assert found.kv_bytes_per_token == pytest.approx(48_000)
    assert found.kv_read_bytes(np.array([300])) == pytest.approx(2 * (24 * 1000 * 300 + 24 * 1000 * 100))


def test_the_spec_gives_what_is_not_passed() -> None:
    model = Model(geometry=QWEN3_8B, kv_dtype="fp8", weight_dtype="fp8", tensor_parallel=16)

    assert load_geometry(model) == geometry(QWEN3_8B, kv_dtype="fp8", weight_dtype="fp8", tensor_parallel=16)


def test_modelopts_file_beside_the_config_tells_the_quantisation(tmp_path: Path) -> None:
    directory = model_dir(tmp_path, QWEN3_8B)
    stated = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    (directory / "hf_quant_config.json").write_text(json.dumps(stated), encoding="utf-8")
    found = load_geometry(Model(), places=[directory])

    assert isinstance(found, ModelGeometry)
    assert found.kv_bytes_per_token == 73_728
    assert found.dense_bytes == geometry(QWEN3_8B, weight_dtype="fp8").dense_bytes


def test_a_nested_language_model_counts_and_its_surroundings_do_not() -> None:
    nested = {"model_type": "some_vl", "hidden_size": 77, "vision_config": {"num_hidden_layers": 3}}

    assert geometry(nested | {"text_config": QWEN3_8B}) == geometry(QWEN3_8B)


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "intermediate_size", "vocab_size"])
def test_a_missing_key_is_named(key: str) -> None:
    assert f"{key} is missing" in refusal(QWEN3_8B | {key: None})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_hidden_layers", "36"),
        ("num_hidden_layers", 0),
        ("num_hidden_layers", 10**9),
        ("hidden_size", -1),
        ("num_key_value_heads", True),
        ("intermediate_size", [1, 2]),
        ("tie_word_embeddings", "no"),
        ("layer_types", ["full_attention"]),
        ("layer_types", [["full_attention"]] * 36),
        ("weight_bytes", -5),
        ("torch_dtype", "float8_e4m3fn"),
        ("num_experts", 64),
    ],
)
def test_a_value_that_is_not_understood_is_named(key: str, value: object) -> None:
    assert key in refusal(QWEN3_8B | {key: value})


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"layer_types": ["linear_attention"] * 27 + ["full_attention"] * 9}, "linear_attention"),
        ({"full_attention_interval": 4}, "full_attention_interval"),
        ({"mamba_d_state": 128}, "state space"),
        ({"model_type": "rwkv5"}, "rwkv5"),
        ({"index_topk": 2048}, "sparse attention"),
        ({"num_kv_shared_layers": 20}, "share one KV cache"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder"),
    ],
)
def test_a_structure_that_is_not_counted_is_refused(keys: Config, named: str) -> None:
    assert named in refusal(QWEN3_8B | keys)


def test_without_any_place_the_remedy_is_said(tmp_path: Path) -> None:
    found = load_geometry(Model(), places=[tmp_path / "gone"])

    assert isinstance(found, Reason)
    assert "gone" in found.text
    assert "model.config" in found.text


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "-1", "1" * 400])
def test_a_number_that_is_none_is_named(tmp_path: Path, number: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(QUICKSTART).replace("102000000", number), encoding="utf-8")
    found = load_geometry(Model(), places=[file])

    assert isinstance(found, Reason)
    assert "weight_bytes" in found.text


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, "\ufeff{}"])
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text, encoding="utf-8")
    found = load_geometry(Model(), places=[file])

    assert isinstance(found, Reason)
    assert str(file) in found.text


def test_experts_among_data_parallel_ranks_are_an_unknown_topology() -> None:
    shared = load_geometry(Model(geometry=QWEN3_30B_A3B, data_parallel=4))
    dense = load_geometry(Model(geometry=QWEN3_8B, data_parallel=4))

    assert isinstance(shared, ModelGeometry)
    assert isinstance(dense, ModelGeometry)
    assert shared.problem is not None
    assert shared.problem.code == "unknown_topology"
    assert shared.kv_bytes_per_token == 98_304
    assert dense.problem is None


def test_the_shape_is_known_where_the_reads_are_not(tmp_path: Path) -> None:
    hybrid = model_dir(tmp_path, {"num_experts": 512, "full_attention_interval": 4})

    assert model_shape(Model(), [hybrid]) == "MoE"
    assert model_shape(Model(), [model_dir(tmp_path, QWEN3_8B, "dense")]) == "dense"
    assert model_shape(Model(geometry=QUICKSTART)) == "dense"
    assert model_shape(Model()) is None


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.lists(st.integers(-2, 60), max_size=4),
    st.dictionaries(st.text(max_size=4), st.integers(0, 9), max_size=2),
)
OTHER_KEYS = (
    "quantization_config text_config layer_types weight_bytes attention_chunk_size no_rope_layers moe_layers "
    "mlp_layer_types kv_bytes_per_token top_k sliding_window_pattern"
)
KEYS = st.sampled_from(sorted({*QWEN3_30B_A3B, *DEEPSEEK_V3, *OTHER_KEYS.split()}))
QUANTISATION_KEYS = (
    "quant_method bits group_size weight_block_size config_groups ignore quant_algo lm_head kv_cache_scheme "
    "quantization load_in_4bit"
)
QUANTISATION = st.dictionaries(
    st.sampled_from(QUANTISATION_KEYS.split()),
    st.one_of(VALUES, st.sampled_from(["fp8", "gptq", "modelopt", "mxfp4", "compressed-tensors", "NVFP4"])),
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([QWEN3_8B, QWEN3_30B_A3B, DEEPSEEK_V3]), st.dictionaries(KEYS, VALUES), QUANTISATION)
def test_no_config_breaks_the_reader(base: Config, changes: Config, quantisation: Config) -> None:
    small = base | {"num_hidden_layers": 3} | {"quantization_config": quantisation} | changes
    found = outcome(small)

    if isinstance(found, ModelGeometry):
        assert found.dense_bytes > 0
        assert found.kv_bytes_per_token > 0
        assert found.weight_read_bytes(5) <= found.stored_weight_bytes * (1 + 1e-9)
    else:
        assert found.code == "geometry_unknown"
        assert "\n" not in found.text

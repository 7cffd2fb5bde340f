"""Bits of weights, activations and KV cache: from checkpoints, from what an engine says, and where these differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import Tensors, qwen3_8b, write_model
from geometry_configs import GPT_OSS_20B, QWEN3_8B, QWEN3_30B_A3B_FP8
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_tokenwatt.geometry.checkpoint import Checkpoint, read_checkpoint
from pytest_tokenwatt.geometry.labels import bits_apart, declared_bits
from pytest_tokenwatt.geometry.precision import on_boards, read_precision
from pytest_tokenwatt.records.profiles import Precision, Startup

SILENT = Startup()
BF16 = Startup(dtype="torch.bfloat16", quantization="None", kv_cache_dtype="auto")


def checkpoint(quantization: dict[str, Any] | None = None, **keys: Any) -> Checkpoint:
    """One of which only the config.json is here."""
    told = {} if quantization is None else {"quantization_config": quantization}
    return Checkpoint(config={**QWEN3_8B, **told, **keys}, missing={"weights": "not here", "stored_bytes": "not here"})


NO_CHECKPOINT = read_checkpoint([])


def read(found: Checkpoint, startup: Startup = SILENT, cache_dtype: str | None = "auto", **rest: Any) -> Precision:
    labels = {} if cache_dtype is None else {"cache_dtype": cache_dtype}
    return read_precision(found, cache_config=labels, startup=startup, **rest)


def groups(weights: dict[str, Any], activations: dict[str, Any] | None, **rest: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ["lm_head"], **rest}


CHANNEL8 = {"num_bits": 8, "type": "float", "strategy": "channel"}
GROUP4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}
NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}


@pytest.mark.parametrize(
    ("quantization", "label"),
    [
        (None, "W16A16KV16"),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, "W8A8KV16"),
        ({"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": [128, 128]}, "W8A8KV16"),
        ({"quant_method": "fbgemm_fp8"}, "W8A8KV16"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "W4A16KV16"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "W8A16KV16"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "W4A16KV16"),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128}, "W4A16KV16"),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128, "act_bits": 8}, "W4A8KV16"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "W4A16KV16"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "W8A8KV16"),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "W8A8KV8"),
        (
            {"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}},
            "W4A4KV8",
        ),
        ({"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"}, "W4A16KV16"),
        ({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, "W8A16KV16"),
        (groups(CHANNEL8, {"num_bits": 8, "type": "float", "dynamic": True}), "W8A8KV16"),
        (groups(GROUP4, None), "W4A16KV16"),
        (groups(GROUP4, {"num_bits": 8, "type": "int"}), "W4A8KV16"),
        (groups(NVFP4, {"num_bits": 4, "type": "float"}), "W4A4KV16"),
        (groups(GROUP4, None, kv_cache_scheme={"num_bits": 8, "type": "float"}), "W4A16KV8"),
    ],
)
def test_a_checkpoint_says_its_label(quantization: dict[str, Any] | None, label: str) -> None:
    found = read(checkpoint(quantization))

    assert found.label == label
    assert found.missing == {"weights_average": "not here", "stored_gib": "not here"}
    assert found.sources["weights"].startswith("checkpoint")


def test_experts_decide_where_they_hold_most() -> None:
    assert read(Checkpoint(config=GPT_OSS_20B)).label == "W4A16KV16"
    assert read(Checkpoint(config=QWEN3_30B_A3B_FP8)).label == "W8A8KV16"


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        ("fp8", 8),
        ("fp8_e4m3", 8),
        ("fp8_e5m2", 8),
        ("fp8_ds_mla", 8),
        ("nvfp4", 4),
        ("int8_per_token_head", 8),
        ("int4", 4),
        ("turboquant_4bit_nc", 4),
        ("turboquant_k8v4", 6),
        ("bfloat16", 16),
        ("float32", 32),
    ],
)
def test_the_engine_says_the_type_of_its_cache(dtype: str, bits: float) -> None:
    assert read(checkpoint(), BF16, dtype).kv == bits
    assert read(checkpoint(), Startup(kv_cache_dtype=dtype)).kv == bits
    assert read(checkpoint(), cache_dtype=None, start_args={"kv_cache_dtype": dtype}).kv == bits
    assert read(checkpoint(), cache_dtype=None, start_args={"cache_config.cache_dtype": dtype}).kv == bits


def test_layers_that_keep_their_cache_are_named() -> None:
    labels = {"cache_dtype": "fp8", "kv_cache_dtype_skip_layers": "['0', '1']"}
    found = read_precision(checkpoint(), cache_config=labels, startup=SILENT)

    assert (found.kv, found.sources["kv"]) == (8, "cache_config_info (fp8; not in layers ['0', '1'])")


def test_the_cache_of_an_engine_that_says_auto_has_the_type_that_is_served() -> None:
    assert read(checkpoint(), Startup(dtype="torch.float32", kv_cache_dtype="auto")).label == "W32A32KV32"
    assert read(checkpoint(), start_args={"model_config.dtype": "torch.float32"}).label == "W32A32KV32"
    # A float32 checkpoint is served in 16 bits unless the engine says otherwise.
    assert read(checkpoint(torch_dtype="float32"), start_args={"dtype": "auto"}).label == "W16A16KV16"


@pytest.mark.parametrize(
    ("method", "label"),
    [
        ("fp8", "W8A8KV16"),
        ("fp8_per_block", "W8A8KV16"),
        ("int8_per_channel_weight_only", "W8A16KV16"),
        ("bitsandbytes", "W4A16KV16"),
        ("nvfp4_per_token", "W4A4KV16"),
    ],
)
def test_quantisation_while_loading_is_seen_in_the_log(method: str, label: str) -> None:
    online = Startup(dtype="torch.bfloat16", quantization=method, kv_cache_dtype="auto")
    found = read(checkpoint(), online)

    assert found.label == label
    assert found.sources["weights"] == f"start-up log (quantization={method}; the checkpoint has 16 bits)"
    told = read(checkpoint(), start_args={"quantization": method})
    assert (told.label, told.sources["weights"][:18]) == (label, "start-up arguments")


def test_a_log_that_names_the_checkpoints_own_method_adds_nothing() -> None:
    gptq = checkpoint({"quant_method": "gptq", "bits": 4, "group_size": 128})
    fp8 = checkpoint({"quant_method": "fp8", "activation_scheme": "static"})

    for found, method, label in [(gptq, "gptq_marlin", "W4A16KV16"), (fp8, "fp8", "W8A8KV16")]:
        told = read(found, Startup(dtype="torch.bfloat16", quantization=method))
        assert told.label == label
        assert told.sources["weights"] == "checkpoint (quantization_config)"


def test_the_engine_is_believed_where_the_checkpoint_says_otherwise() -> None:
    packed = checkpoint({"quant_method": "gptq", "bits": 4, "group_size": 128})
    unpacked = read(packed, BF16)
    assert unpacked.label == "W16A16KV16"
    assert unpacked.sources["weights"] == "start-up log (quantization=None; the checkpoint has 4 bits)"
    asks = checkpoint({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"})
    assert read(asks, Startup(kv_cache_dtype="bfloat16")).label == "W8A8KV16"


FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
MODELOPT_FP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
INT8 = groups({"num_bits": 8, "type": "int", "strategy": "channel"}, {"num_bits": 8, "type": "int", "dynamic": True})


def by(*kernels: str, device: str = "cuda") -> Startup:
    return Startup(dtype="torch.bfloat16", kernels=kernels, device=device)


@pytest.mark.parametrize(
    ("quantization", "kernels", "label"),
    [
        (FP8, ("weight-only FP8",), "W8A16KV16"),
        (FP8, ("MarlinFP8ScaledMMLinearKernel", "MARLIN Fp8 MoE backend", "weight-only FP8"), "W8A16KV16"),
        (FP8, ("Marlin backend for FP8 MoE",), "W8A16KV16"),
        (FP8, ("CPUFp8PerTensorScaledMMLinearKernel",), "W8A16KV16"),
        (FP8, ("XPUW8A16FP8LinearKernel",), "W8A16KV16"),
        (FP8, ("CutlassFP8ScaledMMLinearKernel", "TRITON Fp8 MoE backend"), "W8A8KV16"),
        # Of another width than most weights: some layers that are kept wider.
        (MODELOPT_FP4, ("weight-only FP4", "CutlassFP8ScaledMMLinearKernel"), "W4A16KV16"),
        (MODELOPT_FP4, ("NvFp4LinearBackend.MARLIN",), "W4A16KV16"),
        (MODELOPT_FP4, ("FlashInferCuteDslNvFp4W4A16LinearKernel",), "W4A16KV16"),
        (MODELOPT_FP4, ("FlashInferCutlassNvFp4LinearKernel", "VLLM_CUTLASS NvFp4 MoE backend"), "W4A4KV16"),
        (INT8, ("CutlassInt8ScaledMMLinearKernel",), "W8A8KV16"),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, ("MarlinMxfp8LinearKernel",), "W8A16KV16"),
        (None, ("weight-only FP8",), "W16A16KV16"),
    ],
)
def test_kernels_say_in_how_many_bits_activations_are_taken(
    quantization: dict[str, Any] | None, kernels: tuple[str, ...], label: str
) -> None:
    found = read(checkpoint(quantization), by(*kernels))

    assert (found.label, found.unconfirmed) == (label, "")
    if "weight-only FP8" in kernels and quantization:
        assert found.sources["activations"] == f"start-up log ({', '.join(kernels)})"


@pytest.mark.parametrize(
    ("backend", "label"),
    [
        ("MARLIN", "W4A16KV16"),
        ("TRITON_UNFUSED", "W4A16KV16"),
        ("FLASHINFER_TRTLLM_MXFP4_BF16", "W4A16KV16"),
        ("FLASHINFER_TRTLLM_MXFP4_MXFP8", "W4A8KV16"),
        ("AITER_MXFP4_MXFP4", "W4A4KV16"),
        ("XPU", None),
    ],
)
def test_weights_of_four_bits_may_meet_activations_of_fewer_than_the_checkpoint_says(
    backend: str, label: str | None
) -> None:
    assert read(Checkpoint(config=GPT_OSS_20B), by(f"{backend} Mxfp4 MoE backend")).label == label


def test_a_fall_back_counts_for_weights_that_are_quantised_while_loading() -> None:
    log = Startup(dtype="torch.float16", quantization="fp8", kernels=("weight-only FP8",))
    found = read(checkpoint(), log, declared="W8A8KV16")

    assert found.label == "W8A16KV16"
    assert bits_apart("W8A8KV16", found) == (
        "activations: 8 bits declared, 16 read from start-up log (weight-only FP8)"
    )


@pytest.mark.parametrize(
    ("kernels", "why"),
    [
        (
            ("CutlassFP8ScaledMMLinearKernel", "MARLIN Fp8 MoE backend"),
            "the start-up log names kernels that take activations differently: CutlassFP8ScaledMMLinearKernel takes "
            "them in 8 bits, MARLIN Fp8 MoE backend takes them in 16 bits",
        ),
        (
            ("HummingFP8ScaledMMLinearKernel",),
            "the start-up log names HummingFP8ScaledMMLinearKernel, which takes activations in a number of bits that "
            "is not known",
        ),
    ],
)
def test_kernels_that_do_not_tell_leave_activations_unknown(kernels: tuple[str, ...], why: str) -> None:
    found = read(checkpoint(FP8), by(*kernels))

    assert (found.weights, found.activations, found.label) == (8, None, None)
    assert found.missing["activations"] == why
    emulated = read(checkpoint(MODELOPT_FP4), by("EmulationNvFp4LinearKernel"))
    assert "rounded to fewer bits and computed in more" in emulated.missing["activations"]


def test_weights_that_may_be_held_in_more_bits_are_unknown() -> None:
    mxfp8 = checkpoint({"quant_method": "modelopt", "quant_algo": "MXFP8"})
    found = read(mxfp8, by("EmulationMxfp8LinearKernel"))

    assert (found.weights, found.activations) == (None, 16)
    assert "may be held in 16" in found.missing["weights"]


AMPERE = ["NVIDIA A100-SXM4-80GB", "NVIDIA A10", "NVIDIA RTX A6000", "NVIDIA GeForce RTX 3090", "Tesla T4"]
NEWER = ["NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA L4", "NVIDIA L40S", "NVIDIA RTX 6000 Ada Generation"]


@pytest.mark.parametrize("board", [*AMPERE, "Tesla V100-SXM2-16GB", "NVIDIA A40", "NVIDIA A2"])
def test_a_board_without_arithmetic_in_a_format_leaves_a_silent_log_unknown(board: str) -> None:
    for quantization in (FP8, groups(CHANNEL8, {"num_bits": 8, "type": "float"})):
        told = read(checkpoint(quantization))
        found = on_boards(told, ["NVIDIA H200", board])

        assert (told.label, told.unconfirmed) == ("W8A8KV16", "FP8")
        assert (found.weights, found.activations, found.label) == (8, None, None)
        assert "activations" not in found.sources
        assert found.missing["activations"].startswith(
            f"checkpoint (quantization_config) says 8 bits, but {board} (compute capability "
        )


def test_boards_leave_what_they_can_compute_or_the_log_tells() -> None:
    for board in (*NEWER, "NVIDIA B200", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "AMD Instinct MI300X", None):
        assert on_boards(read(checkpoint(FP8)), [board]).label == "W8A8KV16"
    for board in AMPERE:
        assert on_boards(read(checkpoint(INT8)), [board]).label == "W8A8KV16"
        assert on_boards(read(checkpoint(FP8), by("TritonFp8BlockScaledMMKernel")), [board]).label == "W8A8KV16"
        assert on_boards(read(checkpoint(FP8), by("weight-only FP8")), [board]).label == "W8A16KV16"
        assert on_boards(read(checkpoint()), [board]).label == "W16A16KV16"


@pytest.mark.parametrize("board", [*AMPERE, *NEWER])
def test_four_bit_arithmetic_is_newer_still(board: str) -> None:
    assert on_boards(read(checkpoint(MODELOPT_FP4)), [board]).label is None
    assert on_boards(read(checkpoint(MODELOPT_FP4)), ["NVIDIA B200"]).label == "W4A4KV16"


def test_a_cpu_that_names_no_kernel_leaves_activations_unknown() -> None:
    found = read(checkpoint(FP8), by(device="cpu"))

    assert (found.weights, found.activations, found.unconfirmed) == (8, None, "")
    assert found.missing["activations"] == (
        "checkpoint (quantization_config) says 8 bits, but the start-up log of an engine on a CPU names no kernel"
    )
    assert read(checkpoint(INT8), by(device="cpu")).label == "W8A8KV16"


def test_the_embedded_engine_has_a_log_and_no_checkpoint() -> None:
    assert read(NO_CHECKPOINT, BF16, "fp8").label == "W16A16KV8"
    assert read(NO_CHECKPOINT, Startup(dtype="torch.bfloat16", quantization="fp8"), "int4").label == "W8A8KV4"


def test_what_cannot_be_read_has_its_reason() -> None:
    silent = read(NO_CHECKPOINT, cache_dtype=None)
    assert silent.label is None
    assert silent.missing.keys() == {"weights", "activations", "kv", "weights_average", "stored_gib"}
    assert "no config.json" in silent.missing["weights"]
    assert "cache_dtype" in silent.missing["kv"]
    packed = read(NO_CHECKPOINT, Startup(dtype="torch.bfloat16", quantization="compressed-tensors"), "fp8")
    assert (packed.weights, packed.kv, packed.label) == (None, 8, None)
    assert "compressed-tensors" in packed.missing["weights"]
    quark = read(checkpoint({"quant_method": "quark"}))
    assert "quark" in quark.missing["weights"]
    assert quark.kv == 16
    assert "warp9" in read(checkpoint(), BF16, "warp9").missing["kv"]
    assert "posit" in read(checkpoint(), Startup(dtype="posit")).missing["activations"]


def test_the_files_decide_the_width_that_most_weights_have(tmp_path: Path) -> None:
    config = {**QWEN3_8B, "quantization_config": groups(CHANNEL8, {"num_bits": 8, "type": "float"})}
    found = read(
        read_checkpoint([write_model(tmp_path / "m", config, qwen3_8b("F8_E4M3", scales=True))]), cache_dtype="fp8"
    )

    assert found.label == "W8A8KV8"
    assert found.weights_average == 8.0
    assert found.stored_gib == pytest.approx(8.79, abs=0.005)
    assert found.sources == {
        "weights": "checkpoint (quantization_config)",
        "activations": "checkpoint (quantization_config)",
        "kv": "cache_config_info (fp8)",
        "weights_average": "checkpoint",
        "stored_gib": "checkpoint",
    }
    mostly: Tensors = {
        "model.layers.0.mlp.up_proj.weight": ("BF16", (64, 64)),
        "model.layers.0.self_attn.q_proj.weight": ("F8_E4M3", (32, 64)),
    }
    half = read(read_checkpoint([write_model(tmp_path / "half", config, mostly)]))
    assert half.label == "W16A16KV16"
    assert half.weights_average == pytest.approx((64 * 16 + 32 * 8) / 96)


@pytest.mark.parametrize("config", [None, QWEN3_8B])
def test_the_types_of_tensors_tell_weights_and_no_more(tmp_path: Path, config: dict[str, Any] | None) -> None:
    folder = write_model(tmp_path, config, {"layers.0.mlp.up_proj.weight": ("F8_E4M3", (64, 64))})
    found = read(read_checkpoint([folder]), Startup(dtype="torch.float16", quantization="gguf"))

    assert (found.weights, found.activations, found.kv, found.label) == (8, None, 16, None)
    assert found.sources["weights"] == "checkpoint (types of its tensors)"
    assert read(read_checkpoint([folder]), BF16).sources["weights"] == (
        "start-up log (quantization=None; the checkpoint has 8 bits)"
    )


@pytest.mark.parametrize("declared", ["W8A8KV8", "w8a8kv8", " W8 A8 KV8 ", "W8A8-KV8", "w8a8", "KV8", "KV8W8"])
def test_a_declared_label_is_compared_part_by_part(declared: str) -> None:
    assert bits_apart(declared, Precision(weights=8, activations=8.0, kv=8)) is None
    assert bits_apart(declared, Precision()) is None


def test_what_differs_is_named_with_its_source() -> None:
    found = read(checkpoint(), BF16, "fp8", declared="W8A8KV8")

    assert found.declared == "W8A8KV8"
    assert bits_apart("W8A8KV8", found) == (
        "weights: 8 bits declared, 16 read from start-up log (quantization=None); "
        "activations: 8 bits declared, 16 read from start-up log (quantization=None)"
    )
    assert "is no label" in (bits_apart("FP8", found) or "")
    assert "is no label" in (bits_apart("W8W4", found) or "")
    assert declared_bits("W4A16KV4.5") == {"weights": 4, "activations": 16, "kv": 4.5}


ANY = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 40),
    st.text(max_size=6),
    st.sampled_from(["fp8", "gptq", "modelopt", "mxfp4", "compressed-tensors", "NVFP4", "auto-round", "float"]),
)
QUANTISATION_KEYS = (
    "quant_method quant_algo bits act_bits group_size config_groups weights input_activations num_bits strategy "
    "kv_cache_scheme load_in_8bit quantization targets"
)
DEEP = st.recursive(
    ANY,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(
            st.sampled_from(QUANTISATION_KEYS.split()),
            inner,
        ),
    ),
    max_leaves=8,
)
WORDS = st.one_of(
    st.none(), st.sampled_from(["auto", "None", "fp8", "torch.bfloat16", "gptq_marlin"]), st.text(max_size=5)
)


@settings(max_examples=200, deadline=None)
@given(DEEP, st.builds(Startup, dtype=WORDS, quantization=WORDS, kv_cache_dtype=WORDS), WORDS, st.text(max_size=8))
def test_nothing_breaks_the_reading(
    quantization: Any, startup: Startup, cache_dtype: str | None, declared: str
) -> None:
    found = read(Checkpoint(config={**QWEN3_8B, "quantization_config": quantization}), startup, cache_dtype)

    for part, bits in {"weights": found.weights, "activations": found.activations, "kv": found.kv}.items():
        assert (bits is None) == (part in found.missing) == (part not in found.sources)
    assert (found.label is None) == (None in (found.weights, found.activations, found.kv))
    bits_apart(declared, found)

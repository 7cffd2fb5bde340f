"""Sizes of checkpoints and widths of their weights, from headers alone."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import Tensors, header, qwen3_8b, write_model, write_safetensors
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_tokenwatt.engine.modelfiles import model_folders
from pytest_tokenwatt.geometry.checkpoint import Checkpoint, loaded_weights, read_checkpoint
from pytest_tokenwatt.records import Reason
from pytest_tokenwatt.records.profiles import Precision

GIB = 2**30
FP8_DYNAMIC: dict[str, Any] = {
    "model_type": "qwen3",
    "torch_dtype": "bfloat16",
    "quantization_config": {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
                "input_activations": {"num_bits": 8, "type": "float", "dynamic": True},
            }
        },
        "ignore": ["lm_head"],
    },
}


def average(folder: Path, config: dict[str, Any] | None, tensors: Tensors) -> float | str:
    found = read_checkpoint([write_model(folder, config, tensors)])
    return found.missing["weights"] if found.weights is None else found.weights.average


def test_the_reference_checkpoint_has_its_published_size_and_width(tmp_path: Path) -> None:
    found = read_checkpoint([write_model(tmp_path / "fp8", FP8_DYNAMIC, qwen3_8b("F8_E4M3", scales=True))])

    assert found.stored_gib == pytest.approx(8.79, abs=0.005)
    assert found.weights is not None
    assert (found.weights.average, found.weights.most) == (8.0, 8)
    assert found.missing == {}


def test_the_unquantised_one_is_what_an_engine_loads(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "bf16", {"torch_dtype": "bfloat16"}, qwen3_8b("BF16"))
    found = read_checkpoint([folder])

    assert found.loaded_bytes is not None
    assert found.loaded_bytes / GIB == pytest.approx(15.26, abs=0.01)
    assert found.stored_bytes == (folder / "model.safetensors").stat().st_size > found.loaded_bytes
    assert loaded_weights(found, Precision(weights=16)) == (found.loaded_bytes / GIB, "checkpoint")


def test_an_engine_that_changes_the_type_loads_another_size(tmp_path: Path) -> None:
    single = read_checkpoint([write_model(tmp_path / "f32", {"torch_dtype": "float32"}, qwen3_8b("F32"))])
    half = read_checkpoint([write_model(tmp_path / "f16", {"torch_dtype": "bfloat16"}, qwen3_8b("BF16"))])
    served = loaded_weights(single, Precision(weights=16))

    assert not isinstance(served, Reason)
    assert served[0] == pytest.approx(15.26, abs=0.01)
    online = loaded_weights(half, Precision(weights=8))
    assert isinstance(online, Reason)
    assert "8 bits" in online.text


PACKED: list[tuple[str, dict[str, Any], Tensors, float, float]] = [
    (
        "gptq",
        {"quant_method": "gptq", "bits": 4, "group_size": 128},
        {
            "qweight": ("I32", (128, 512)),
            "qzeros": ("I32", (8, 64)),
            "scales": ("F16", (8, 512)),
            "g_idx": ("I32", (1024,)),
        },
        4,
        4,
    ),
    (
        "awq",
        {"quant_method": "awq", "bits": 4, "group_size": 128},
        {"qweight": ("I32", (1024, 64)), "qzeros": ("I32", (8, 64)), "scales": ("F16", (8, 512))},
        4,
        4,
    ),
    (
        "compressed-tensors",
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "g": {"targets": ["Linear"], "weights": {"num_bits": 4, "strategy": "group", "group_size": 32}}
            },
        },
        {"weight_packed": ("I32", (512, 128)), "weight_scale": ("BF16", (512, 32)), "weight_shape": ("I64", (2,))},
        4,
        4,
    ),
    (
        "nvfp4",
        {"quant_method": "modelopt", "quant_algo": "NVFP4"},
        {"weight": ("U8", (512, 512)), "weight_scale": ("F8_E4M3", (512, 64)), "weight_scale_2": ("F32", ())},
        4,
        4,
    ),
    (
        "int8",
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"g": {"weights": {"num_bits": 8, "strategy": "channel"}}},
        },
        {"weight": ("I8", (512, 1024)), "weight_scale": ("BF16", (512, 1))},
        8,
        8,
    ),
    (
        "bitsandbytes",
        {"quant_method": "bitsandbytes", "load_in_4bit": True},
        {
            "weight": ("U8", (262144, 1)),
            "weight.absmax": ("U8", (8192,)),
            "weight.quant_state.bitsandbytes__nf4": ("U8", (90,)),
        },
        4,
        4,
    ),
]


@pytest.mark.parametrize(
    ("method", "tensors", "bits"), [(p[1], p[2], p[3]) for p in PACKED], ids=[p[0] for p in PACKED]
)
def test_packed_weights_count_as_what_they_are_and_scales_do_not(
    tmp_path: Path, method: dict[str, Any], tensors: Tensors, bits: float
) -> None:
    named = {f"model.layers.3.mlp.down_proj.{name}": tensor for name, tensor in tensors.items()}
    config = {"torch_dtype": "bfloat16", "quantization_config": method}

    assert average(tmp_path / "all", config, named) == bits
    # 512 x 1,024 packed weights beside as many of 16 bits.
    mixed = {**named, "model.layers.3.self_attn.q_proj.weight": ("BF16", (512, 1024))}
    assert average(tmp_path / "mixed", config, mixed) == (bits + 16) / 2


def test_packed_experts_of_gpt_oss(tmp_path: Path) -> None:
    experts = "model.layers.0.mlp.experts."
    tensors: Tensors = {
        f"{experts}gate_up_proj_blocks": ("U8", (4, 64, 3, 16)),
        f"{experts}gate_up_proj_scales": ("U8", (4, 64, 3)),
        f"{experts}gate_up_proj_bias": ("BF16", (4, 64)),
        "model.layers.0.self_attn.q_proj.weight": ("BF16", (64, 96)),
    }
    config = {"model_type": "gpt_oss", "num_local_experts": 4, "quantization_config": {"quant_method": "mxfp4"}}
    found = read_checkpoint([write_model(tmp_path / "m", config, tensors)])

    assert found.weights is not None
    assert found.weights.most == 4
    assert found.weights.average == pytest.approx((4 * 4 * 64 * 96 + 16 * 64 * 96) / (5 * 64 * 96))


@pytest.mark.parametrize("config", [None, {}, {"quantization_config": {"quant_method": "quark"}}])
def test_packed_weights_without_their_config_are_not_guessed(tmp_path: Path, config: dict[str, Any] | None) -> None:
    found = read_checkpoint([write_model(tmp_path / "m", config, {"layers.0.mlp.up_proj.qweight": ("I32", (64, 64))})])

    assert found.weights is None
    assert "quant" in found.missing["weights"]
    assert found.loaded_bytes == 64 * 64 * 4


def test_only_the_files_of_the_index_count(tmp_path: Path) -> None:
    sizes = [write_safetensors(tmp_path / f"model-0000{n}-of-00002.safetensors", qwen3_8b("BF16")) for n in (1, 2)]
    write_safetensors(tmp_path / "consolidated.safetensors", qwen3_8b("BF16"))
    (tmp_path / "training_args.bin").write_bytes(b"x" * 99)
    (tmp_path / "pytorch_model.bin").write_bytes(b"x" * 99)
    names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": names}), encoding="utf-8")
    assert read_checkpoint([tmp_path]).loaded_bytes == sum(sizes)

    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    assert "model-00002-of-00002.safetensors" in read_checkpoint([tmp_path]).missing["stored_bytes"]
    index.unlink()
    (tmp_path / "consolidated.safetensors").unlink()
    assert "holds 1 of 2 files" in read_checkpoint([tmp_path]).missing["stored_bytes"]


def test_a_hub_id_is_found_in_the_local_cache(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--org--model"
    blobs, snapshot = repository / "blobs", repository / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc", encoding="utf-8")
    size = write_safetensors(blobs / "0f", {"model.layers.0.mlp.up_proj.weight": ("BF16", (8, 8))})
    (snapshot / "model.safetensors").symlink_to(blobs / "0f")
    (snapshot / "other.safetensors").symlink_to(tmp_path / "gone")

    places = model_folders(None, ["org/model"], tmp_path, {"HF_HOME": str(tmp_path)})
    assert read_checkpoint(places).loaded_bytes == size
    elsewhere = model_folders(None, ["org/other"], tmp_path, {"HF_HOME": str(tmp_path)})
    assert "no weight files are there" in read_checkpoint(elsewhere).missing["stored_bytes"]


def test_the_config_beside_the_weights_explains_them(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}', encoding="utf-8")
    method = {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": -1}}
    folder = write_model(tmp_path / "packed", method, {"model.layers.0.mlp.up_proj.qweight": ("I32", (8, 8))})
    found = read_checkpoint([tmp_path, folder])

    assert found.weights is not None
    assert found.weights.average == 4


def test_without_files_every_reason_is_told(tmp_path: Path) -> None:
    found = read_checkpoint([tmp_path / "org" / "model"])

    assert (found.stored_gib, found.loaded_bytes, found.weights, found.config) == (None, None, None, None)
    assert found.missing.keys() == {"stored_bytes", "loaded_bytes", "weights", "config"}
    assert str(tmp_path / "org" / "model") in found.missing["loaded_bytes"]
    assert isinstance(loaded_weights(found, Precision(weights=16)), Reason)


def test_a_torch_file_tells_its_size_and_not_its_types(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "pytorch_model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", b"never read")
        archive.writestr("archive/data/0", bytes(4000))
        archive.writestr("archive/data/1", bytes(96))
    (tmp_path / "config.json").write_text('{"torch_dtype": "float32"}', encoding="utf-8")
    found = read_checkpoint([tmp_path])

    assert (found.loaded_bytes, found.weights) == (4096, None)
    assert ".bin" in found.missing["weights"]
    assert loaded_weights(found, Precision(weights=16)) == (2048 / GIB, "checkpoint")
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02old pickle")
    assert "torch.save" in read_checkpoint([tmp_path]).missing["loaded_bytes"]


def gguf(tensors: dict[str, tuple[int, tuple[int, ...]]], data: int) -> bytes:
    def text(words: str) -> bytes:
        return struct.pack("<Q", len(words)) + words.encode()

    listed = struct.pack("<IQ", 8, 3) + text("a") + text("bc") + text("")
    settings_ = [text("general.architecture") + struct.pack("<I", 8) + text("gemma3")]
    settings_ += [text("block_count") + struct.pack("<II", 4, 18), text("tokens") + struct.pack("<I", 9) + listed]
    settings_ += [text("scores") + struct.pack("<IIQ", 9, 6, 5) + bytes(20)]
    infos = [
        text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, 0)
        for name, (kind, shape) in tensors.items()
    ]
    start = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(settings_))
    return start + b"".join(settings_) + b"".join(infos) + bytes(data)


GGUF = gguf(
    {
        "blk.0.ffn_up.weight": (12, (256, 8)),
        "blk.0.attn_q.weight": (8, (256, 4)),
        "blk.0.attn_norm.weight": (0, (256,)),
    },
    4000,
)


def test_gguf_types_tell_the_width_without_their_scales(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(GGUF)
    found = read_checkpoint([file])

    assert found.loaded_bytes == 8 * 144 + 4 * 8 * 34 + 1024
    assert found.weights is not None
    assert found.weights.most == 4
    assert found.weights.average == pytest.approx((4 * 8 + 8 * 4) / 12)
    (tmp_path / "other.gguf").write_bytes(GGUF)
    assert "which one is served is not told" in read_checkpoint([tmp_path]).missing["loaded_bytes"]


SAFE = header({"model.layers.0.mlp.up_proj.weight": ("BF16", (8, 8))})[0] + bytes(128)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "too few for a header"),
        (SAFE[:-1], "1 bytes beyond its end"),
        (SAFE[:40], "its header would have"),
        (struct.pack("<Q", 2**63) + b"{}", "its header would have"),
        (struct.pack("<Q", 2) + b"[]", "no mapping"),
        (struct.pack("<Q", 3) + b'{"\xff', "cannot be read"),
        (struct.pack("<Q", 20_000) + b"[" * 20_000, "cannot be read"),
        (struct.pack("<Q", 8) + b'{"a": 1}', "without type, shape or place of a"),
    ],
)
def test_a_broken_header_is_a_reason(tmp_path: Path, raw: bytes, said: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(raw)
    found = read_checkpoint([tmp_path])

    assert said in found.missing["loaded_bytes"]
    assert "model.safetensors" in found.missing["loaded_bytes"]


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """The file cut somewhere, with some bytes changed."""
    raw = bytearray(whole[: draw(st.integers(0, len(whole)))])
    for place in draw(st.lists(st.integers(0, max(0, len(raw) - 1)), max_size=4)):
        if raw:
            raw[place] = draw(st.integers(0, 255))
    return bytes(raw)


@settings(max_examples=120, deadline=None)
@given(
    st.one_of(
        damaged(SAFE), st.binary(max_size=60), st.dictionaries(st.text(max_size=3), st.none()).map(str).map(str.encode)
    )
)
def test_no_safetensors_file_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    holds(tmp_path_factory, "model.safetensors", raw)


@settings(max_examples=120, deadline=None)
@given(damaged(GGUF))
def test_no_gguf_file_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    holds(tmp_path_factory, "model.gguf", raw)


HEADER_VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-5, 2**65), st.floats(), st.sampled_from(["BF16", "I32", "Q4_0", ""])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["dtype", "shape", "x"]), inner)
    ),
    max_leaves=8,
)
TENSOR = st.fixed_dictionaries(
    {"dtype": HEADER_VALUES, "shape": HEADER_VALUES, "data_offsets": st.lists(st.integers(-1, 70), max_size=3)}
)
NAMES = st.sampled_from(["model.layers.0.mlp.up_proj.weight", "h.1.x.qweight", "lm_head.weight", "__metadata__", ""])


@settings(max_examples=120, deadline=None)
@given(st.dictionaries(NAMES, st.one_of(TENSOR, HEADER_VALUES)))
def test_no_header_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, told: dict[str, Any]) -> None:
    text = json.dumps(told).encode()
    holds(tmp_path_factory, "model.safetensors", struct.pack("<Q", len(text)) + text + bytes(64))


def holds(factory: pytest.TempPathFactory, name: str, raw: bytes) -> None:
    file = factory.getbasetemp() / name
    file.write_bytes(raw)
    found = read_checkpoint([file])

    assert isinstance(found, Checkpoint)
    assert (found.loaded_bytes is None) == ("loaded_bytes" in found.missing)
    assert (found.weights is None) == ("weights" in found.missing)
    assert all("\n" not in reason for reason in found.missing.values())
    assert found.loaded_bytes is None or found.loaded_bytes <= len(raw)

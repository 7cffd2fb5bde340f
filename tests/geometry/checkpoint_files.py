"""Writes checkpoints whose headers are whole and whose tensors are empty holes."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BITS = {"F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "I8": 8, "U8": 8, "I32": 32, "I64": 64, "F4": 4}
Tensors = Mapping[str, tuple[str, tuple[int, ...]]]


def header(tensors: Tensors) -> tuple[bytes, int]:
    """The header of a safetensors file, and the bytes of its tensors."""
    told: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in tensors.items():
        elements = 1
        for axis in shape:
            elements *= axis
        size = elements * BITS[dtype] // 8
        told[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(told).encode()
    return struct.pack("<Q", len(text)) + text, at


def write_safetensors(file: Path, tensors: Tensors) -> int:
    """Write the file; returns the bytes of its tensors. The data is a hole, so it takes no room."""
    start, size = header(tensors)
    with file.open("wb") as stream:
        stream.write(start)
    os.truncate(file, len(start) + size)
    return size


def write_model(folder: Path, config: Mapping[str, Any] | None, tensors: Tensors) -> Path:
    """A model directory with one weight file."""
    folder.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


def qwen3_8b(linear: str, scales: bool = False) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The tensors of Qwen3 8B with its linear layers in one type; embedding, head and norms in BF16."""
    shapes = {
        "self_attn.q_proj": (4096, 4096),
        "self_attn.k_proj": (1024, 4096),
        "self_attn.v_proj": (1024, 4096),
        "self_attn.o_proj": (4096, 4096),
        "mlp.gate_proj": (12288, 4096),
        "mlp.up_proj": (12288, 4096),
        "mlp.down_proj": (4096, 12288),
    }
    norms = {"input_layernorm": 4096, "post_attention_layernorm": 4096}
    norms |= {"self_attn.q_norm": 128, "self_attn.k_norm": 128}
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for layer in range(36):
        prefix = f"model.layers.{layer}."
        found |= {f"{prefix}{name}.weight": (linear, shape) for name, shape in shapes.items()}
        found |= {f"{prefix}{name}.weight": ("BF16", (size,)) for name, size in norms.items()}
        if scales:
            found |= {f"{prefix}{name}.weight_scale": ("BF16", (shape[0], 1)) for name, shape in shapes.items()}
    table = ("BF16", (151_936, 4096))
    return found | {"model.embed_tokens.weight": table, "lm_head.weight": table, "model.norm.weight": ("BF16", (4096,))}

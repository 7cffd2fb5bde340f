"""Attention: its weight matrices, and the KV cache that decoding reads.

Biases and norms are left out: less than 0.1 % of the weights.
"""

from __future__ import annotations

from collections import Counter

from pytest_tokenwatt.geometry.dtypes import KV_BITS
from pytest_tokenwatt.geometry.keys import GeometryUnknown, Keys
from pytest_tokenwatt.geometry.matrix import Matrix
from pytest_tokenwatt.geometry.model import KvLayers
from pytest_tokenwatt.geometry.quantisation import quantisation_of
from pytest_tokenwatt.geometry.windows import Window, layer_windows


def is_latent(keys: Keys) -> bool:
    """Whether the cache holds a compressed latent (MLA) rather than keys and values of heads."""
    return bool(keys.whole("kv_lora_rank"))


def cached_values(keys: Keys, tensor_parallel: int) -> tuple[int, float]:
    """Values that a token keeps in the cache of one layer, and how many GPUs of a replica keep each of them.

    GQA: 2 · n_kv · d, at least one KV head on every GPU. MLA: kv_lora_rank + qk_rope_head_dim, whole on every GPU.
    """
    if is_latent(keys):
        return keys.count("kv_lora_rank") + keys.count("qk_rope_head_dim"), float(tensor_parallel)
    heads = _kv_heads(keys)
    return heads * (_head_dim(keys) + _value_dim(keys)), max(1.0, tensor_parallel / heads)


def attention(keys: Keys, layer: int, tensor_parallel: int) -> tuple[Matrix, ...]:
    """The matrices of one layer's attention."""
    prefix = f"layers.{layer}.self_attn"
    return _latent(keys, prefix, tensor_parallel) if is_latent(keys) else _grouped(keys, prefix, tensor_parallel)


def _kv_heads(keys: Keys) -> int:
    return keys.count("num_key_value_heads", "num_kv_heads", "num_attention_heads")


def _head_dim(keys: Keys) -> int:
    if keys.whole("head_dim"):
        return keys.count("head_dim")
    if keys.get("hidden_size") is None:
        raise GeometryUnknown("head_dim is missing, and hidden_size too")
    return max(1, keys.count("hidden_size") // keys.count("num_attention_heads"))


def _value_dim(keys: Keys) -> int:
    return keys.whole("v_head_dim") or _head_dim(keys)


def _grouped(keys: Keys, prefix: str, tensor_parallel: int) -> tuple[Matrix, ...]:
    hidden, heads, kv_heads = keys.count("hidden_size"), keys.count("num_attention_heads"), _kv_heads(keys)
    copies = max(1.0, tensor_parallel / kv_heads)
    return (
        Matrix(f"{prefix}.q_proj", heads * _head_dim(keys), hidden),
        Matrix(f"{prefix}.k_proj", kv_heads * _head_dim(keys), hidden, copies),
        Matrix(f"{prefix}.v_proj", kv_heads * _value_dim(keys), hidden, copies),
        Matrix(f"{prefix}.o_proj", hidden, heads * _value_dim(keys)),
    )


def _latent(keys: Keys, prefix: str, tensor_parallel: int) -> tuple[Matrix, ...]:
    """DeepSeek's multi-head latent attention; the projections down to the latents are whole on every GPU."""
    hidden, heads, latent = keys.count("hidden_size"), keys.count("num_attention_heads"), keys.count("kv_lora_rank")
    nope, rope, value = keys.count("qk_nope_head_dim"), keys.count("qk_rope_head_dim"), keys.count("v_head_dim")
    rank = keys.whole("q_lora_rank")
    query = (
        (
            Matrix(f"{prefix}.q_a_proj", rank, hidden, tensor_parallel),
            Matrix(f"{prefix}.q_b_proj", heads * (nope + rope), rank),
        )
        if rank
        else (Matrix(f"{prefix}.q_proj", heads * (nope + rope), hidden),)
    )
    return (
        *query,
        Matrix(f"{prefix}.kv_a_proj_with_mqa", latent + rope, hidden, tensor_parallel),
        Matrix(f"{prefix}.kv_b_proj", heads * (nope + value), latent),
        Matrix(f"{prefix}.o_proj", hidden, heads * value),
    )


def kv_layers(keys: Keys, tensor_parallel: int, kv_dtype: str | None) -> tuple[KvLayers, ...]:
    """The KV cache, layers alike together; ``kv_bytes_per_token`` (whole model) replaces the count of bytes."""
    stated = keys.size("kv_bytes_per_token")
    if stated is not None and keys.get("num_hidden_layers") is None:
        return (KvLayers(1, stated),)
    layers = keys.count("num_hidden_layers")
    if stated is None:
        values, copies = cached_values(keys, tensor_parallel)
        token_bytes = values * kv_bits(keys, kv_dtype) / 8
    else:
        token_bytes, copies = stated / layers, _stated_copies(keys, tensor_parallel)
    alike: Counter[Window] = Counter(layer_windows(keys, layers))
    return tuple(KvLayers(count, token_bytes, copies, window.tokens, window.chunked) for window, count in alike.items())


def _stated_copies(keys: Keys, tensor_parallel: int) -> float:
    known = is_latent(keys) or keys.get("num_key_value_heads", "num_kv_heads", "num_attention_heads") is not None
    if tensor_parallel == 1 or not known:
        return 1.0
    return float(tensor_parallel) if is_latent(keys) else max(1.0, tensor_parallel / _kv_heads(keys))


def kv_bits(keys: Keys, kv_dtype: str | None) -> float:
    """Bits of a cached value; ``None`` and ``auto``: as the checkpoint asks for, else 16."""
    name = checkpoint_kv(keys) or "bf16" if kv_dtype in (None, "auto") else str(kv_dtype)
    found = KV_BITS.get(name.removeprefix("torch.").lower())
    if found is None:
        raise GeometryUnknown(f"kv_dtype {name!r} is not known; geometry.kv_bytes_per_token can say its bytes")
    return found


def checkpoint_kv(keys: Keys) -> str | None:
    """The type of the KV cache that a quantised checkpoint asks for; ``None`` when it asks for none."""
    quantisation = quantisation_of(keys)
    if quantisation is None:
        return None
    scheme = quantisation.get("kv_cache_scheme", "kv_cache_quant_algo")
    if isinstance(scheme, dict):
        kind = "fp" if scheme.get("type") == "float" else "int"
        return {"fp8": "fp8", "fp4": "nvfp4"}.get(f"{kind}{scheme.get('num_bits')}", f"{kind}{scheme.get('num_bits')}")
    return scheme if isinstance(scheme, str) else None

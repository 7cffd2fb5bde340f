"""Models whose reads are not counted here: whoever has one of these keys gets a reason instead of a guess."""

from __future__ import annotations

from pytest_tokenwatt.geometry.keys import GeometryUnknown, Keys

_STATE = "layers without a KV cache that grows (state space, linear attention, convolution)"
_SPARSE = "sparse attention, which reads a selection of the KV cache"
_SHAPES = "layers with KV heads of different shapes"
_SHARED = "layers that share one KV cache"
_OTHER = "a structure that is not counted"
_KEYS: dict[str, str] = {
    **dict.fromkeys(
        (
            "mamba_d_state",
            "mamba_num_heads",
            "ssm_state_size",
            "ssm_cfg",
            "state_size",
            "linear_num_value_heads",
            "linear_attn_config",
            "full_attention_interval",
            "attn_type_list",
            "hybrid_override_pattern",
            "layers_block_type",
            "block_types",
            "attn_layer_period",
            "lru_width",
            "conv_L_cache",
        ),
        _STATE,
    ),
    **dict.fromkeys(("index_topk", "compress_ratios", "sparse_attention_config"), _SPARSE),
    **dict.fromkeys(("swa_num_key_value_heads", "hybrid_layer_pattern", "global_head_dim"), _SHAPES),
    **dict.fromkeys(("num_kv_shared_layers", "use_cla"), _SHARED),
    **dict.fromkeys(
        (
            "is_encoder_decoder",
            "cross_attention_layers",
            "zero_expert_num",
            "share_q_dim",
            "attn_output_gate",
            "block_configs",
            "prefix_dense_sliding_window_pattern",
        ),
        _OTHER,
    ),
}
_MODEL_TYPES = {"minicpm3": "a latent attention whose cache holds whole heads", "rwkv": _STATE, "gpt2": _OTHER}
_MOST_LAYERS = 4096


def refuse_unmodelled(keys: Keys) -> None:
    """Raises ``GeometryUnknown`` when the model has a structure that is not counted."""
    for name, what in _KEYS.items():
        if keys.get(name):
            raise GeometryUnknown(f"{name} means {what}")
    kind = keys.text("model_type")
    for prefix, what in _MODEL_TYPES.items():
        if kind.startswith(prefix):
            raise GeometryUnknown(f"model_type {kind!r} means {what}")
    if (keys.whole("num_hidden_layers") or 0) > _MOST_LAYERS:
        raise keys.wrong(("num_hidden_layers",), f"at most {_MOST_LAYERS}")

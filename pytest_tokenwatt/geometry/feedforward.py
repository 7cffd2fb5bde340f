"""Feed-forward layers: dense MLPs, routed experts and the experts that all tokens share.

Biases are left out: less than 0.1 % of the weights.
"""

from __future__ import annotations

from pytest_tokenwatt.geometry.keys import GeometryUnknown, Keys
from pytest_tokenwatt.geometry.matrix import Layer, Matrix

_EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
_PICKED = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts", "moe_topk", "moe_k")
_GATED_GELU = ("gemma", "grok")


def expert_count(keys: Keys) -> int:
    """Routed experts of a layer; 0 for a dense model, also when it is written as one expert."""
    experts = keys.whole(*_EXPERTS) or 0
    return experts if experts > 1 else 0


def picked_experts(keys: Keys) -> int:
    """Experts that a token is sent to."""
    picked = keys.count(*_PICKED, "top_k") if keys.get(*_PICKED) is None else keys.count(*_PICKED)
    if picked > expert_count(keys):
        raise GeometryUnknown(f"{_PICKED[0]} is {picked}, more than the {expert_count(keys)} experts")
    return picked


def feed_forward(keys: Keys, layer: int, tensor_parallel: int) -> Layer:
    """The matrices of one layer's MLP, or of its router, shared experts and one routed expert."""
    if not is_sparse(keys, layer):
        return Layer(_mlp(keys, f"layers.{layer}.mlp", _dense_width(keys)))
    prefix = f"layers.{layer}.mlp"
    router = Matrix(f"{prefix}.gate", expert_count(keys), keys.count("hidden_size"), tensor_parallel, plain=True)
    shared = _shared_width(keys)
    return Layer(
        (router, *(_mlp(keys, f"{prefix}.shared_experts", shared) if shared else ())),
        _mlp(keys, f"{prefix}.experts.0", _expert_width(keys), routed=True),
    )


def is_sparse(keys: Keys, layer: int) -> bool:
    """Whether a layer has routed experts."""
    if not expert_count(keys):
        return False
    kinds = keys.sequence("mlp_layer_types")
    if kinds is not None:
        if layer >= len(kinds) or kinds[layer] not in ("sparse", "dense"):
            raise GeometryUnknown(f"mlp_layer_types does not tell about layer {layer}")
        return bool(kinds[layer] == "sparse")
    if layer in (keys.sequence("mlp_only_layers") or ()):
        return False
    listed = keys.sequence("moe_layers")
    if listed:
        return layer in listed
    return layer >= (keys.whole("first_k_dense_replace") or 0) and _in_step(keys, layer)


def _in_step(keys: Keys, layer: int) -> bool:
    """Every n-th layer, counted as each family does, and not outside of what ERNIE names."""
    frequency = keys.get("moe_layer_freq")
    if isinstance(frequency, list):
        if layer >= len(frequency):
            raise GeometryUnknown(f"moe_layer_freq does not tell about layer {layer}")
        return bool(frequency[layer])
    if layer % (keys.whole("moe_layer_freq") or 1):
        return False
    last = keys.get("moe_layer_end_index")
    if layer < (keys.whole("moe_layer_start_index") or 0) or (isinstance(last, int) and 0 <= last < layer):
        return False
    step = keys.whole("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval") or 1
    return (layer + 1) % step == 0


def _dense_width(keys: Keys) -> int:
    return keys.whole("intermediate_size_mlp") or keys.count("intermediate_size", "ffn_dim", "ffn_hidden_size")


def _expert_width(keys: Keys) -> int:
    """``intermediate_size`` where a family has no other word for it (Mixtral, gpt-oss, Llama 4)."""
    return keys.count("moe_intermediate_size", "moe_ffn_hidden_size", "intermediate_size")


def _shared_width(keys: Keys) -> int:
    stated = keys.whole("shared_expert_intermediate_size", "shared_intermediate_size")
    if stated is not None:
        return stated
    shared = keys.whole("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
    if shared is None and keys.text("model_type").startswith("llama4"):
        shared = 1
    if not shared:
        return 0
    return shared * (keys.whole("moe_shared_expert_intermediate_size") or _expert_width(keys))


def _mlp(keys: Keys, prefix: str, width: int, *, routed: bool = False) -> tuple[Matrix, ...]:
    hidden = keys.count("hidden_size")
    names = ("gate_proj", "up_proj") if is_gated(keys) else ("up_proj",)
    inner = tuple(Matrix(f"{prefix}.{name}", width, hidden, routed=routed) for name in names)
    return (*inner, Matrix(f"{prefix}.down_proj", hidden, width, routed=routed))


def is_gated(keys: Keys) -> bool:
    """Whether the MLP has a gate (three matrices): with SiLU always, with GELU in Gemma and Grok."""
    activation = keys.text("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act")
    if activation in ("", "silu", "swish", "swiglu"):
        return True
    return "gelu" in activation and any(family in keys.text("model_type") for family in _GATED_GELU)

"""Reads a model's geometry from its Hugging Face ``config.json`` and the spec's ``model.geometry``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pytest_tokenwatt.geometry.attention import attention, kv_layers
from pytest_tokenwatt.geometry.config_file import find_config, flattened, read_config
from pytest_tokenwatt.geometry.feedforward import expert_count, feed_forward, picked_experts
from pytest_tokenwatt.geometry.keys import GeometryUnknown, Keys
from pytest_tokenwatt.geometry.matrix import Layer
from pytest_tokenwatt.geometry.model import ModelGeometry
from pytest_tokenwatt.geometry.quantisation import Storage, read_storage
from pytest_tokenwatt.geometry.unmodelled import refuse_unmodelled
from pytest_tokenwatt.records import Reason
from pytest_tokenwatt.spec.serving import Model

UNKNOWN = "geometry_unknown"
# Settings that published files leave out because they are the family's defaults.
_FAMILIES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "gemma3_text": {
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "vocab_size": 262_208,
            "hidden_activation": "gelu_pytorch_tanh",
        },
        "llama4_text": {"attention_chunk_size": 8192},
    }
)
_TIED_BY_DEFAULT = ("gemma", "cohere", "starcoder2", "opt", "bloom", "falcon")


def load_geometry(
    model: Model,
    *,
    places: Sequence[Path] = (),
    kv_dtype: str | None = None,
    weight_dtype: str | None = None,
    tensor_parallel: int | None = None,
) -> ModelGeometry | Reason:
    """The geometry of a configuration's model, or a ``Reason`` (``geometry_unknown``) with what is missing.

    ``places`` are ``config.json`` files or model directories; the first that exists is read. Keys of
    ``model.geometry`` have the names of that file and win over it; besides, ``weight_bytes`` (dense weights that a
    step reads), ``expert_bytes`` (one routed expert in all layers) and ``kv_bytes_per_token`` (whole model) replace
    what would be counted, and may suffice without a file. ``kv_dtype``, ``weight_dtype`` and ``tensor_parallel``
    default to the model's; ``None`` and ``auto`` types are the checkpoint's.
    """
    try:
        keys = _settings(model, places)
        refuse_unmodelled(keys)
        return _geometry(
            keys,
            model.tensor_parallel if tensor_parallel is None else tensor_parallel,
            model.kv_dtype if kv_dtype is None else kv_dtype,
            model.weight_dtype if weight_dtype is None else weight_dtype,
            model.data_parallel,
        )
    except GeometryUnknown as problem:
        return Reason(UNKNOWN, f"{problem} (config.json or model.geometry)")


def model_shape(model: Model, places: Sequence[Path] = ()) -> Literal["dense", "MoE"] | None:
    """``dense`` or ``MoE``, also for models whose reads are not counted; ``None`` when nothing tells."""
    try:
        keys = _settings(model, places)
        return "MoE" if expert_count(keys) else "dense"
    except GeometryUnknown:
        return None


def _settings(model: Model, places: Sequence[Path]) -> Keys:
    file = find_config(places)
    if file is None and not model.geometry:
        looked = ", ".join(str(place) for place in places) or "no place to look"
        raise GeometryUnknown(f"there is no config.json ({looked}); name it in model.config or fill in model.geometry")
    merged = flattened({} if file is None else read_config(file)) | flattened(model.geometry)
    return Keys({**_FAMILIES.get(str(merged.get("model_type")), {}), **merged})


def _geometry(
    keys: Keys, tensor_parallel: int, kv_dtype: str | None, weight_dtype: str | None, data_parallel: int
) -> ModelGeometry:
    experts = expert_count(keys)
    weights, expert = keys.size("weight_bytes"), keys.size("expert_bytes")
    if weights is None or (experts and expert is None):
        counted = _count(keys, read_storage(keys, weight_dtype), tensor_parallel)
    else:
        counted = ModelGeometry(weights, ())
    if weights is not None:
        counted = replace(counted, dense_bytes=weights, replicated_bytes=0.0)
    if experts and expert is not None:
        counted = replace(counted, expert_bytes=expert)
    return replace(
        counted,
        kv=kv_layers(keys, tensor_parallel, kv_dtype),
        experts=experts,
        experts_per_token=picked_experts(keys) if experts else 0,
        problem=_problem(experts, data_parallel),
    )


def _problem(experts: int, data_parallel: int) -> Reason | None:
    if not experts or data_parallel == 1:
        return None
    text = f"{experts} experts shared among {data_parallel} data-parallel ranks: which of them a step reads is not told"
    return Reason("unknown_topology", text)


def _count(keys: Keys, storage: Storage, tensor_parallel: int) -> ModelGeometry:
    layers = [_layer(keys, number, tensor_parallel) for number in range(keys.count("num_hidden_layers"))]
    dense = [matrix for layer in layers for matrix in layer.dense]
    table = storage.plain.bytes_of(keys.count("vocab_size"), keys.count("hidden_size"))
    head = storage.head.bytes_of(keys.count("vocab_size"), keys.count("hidden_size"))
    return ModelGeometry(
        dense_bytes=head + sum(storage.bytes_of(matrix) for matrix in dense),
        kv=(),
        embedding_bytes=0.0 if _is_tied(keys) else table,
        replicated_bytes=sum((matrix.copies - 1) * storage.bytes_of(matrix) for matrix in dense if matrix.copies > 1),
        expert_bytes=sum(storage.bytes_of(matrix) for layer in layers for matrix in layer.expert),
    )


def _layer(keys: Keys, number: int, tensor_parallel: int) -> Layer:
    rest = feed_forward(keys, number, tensor_parallel)
    return Layer((*attention(keys, number, tensor_parallel), *rest.dense), rest.expert)


def _is_tied(keys: Keys) -> bool:
    """Whether the output head is the input table; files that do not say it leave it to the family."""
    return keys.flag("tie_word_embeddings", default=keys.text("model_type").startswith(_TIED_BY_DEFAULT))

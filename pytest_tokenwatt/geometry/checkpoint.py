"""A checkpoint on disk: its size, what an engine loads of it, and the width of its weights. No tensor is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_tokenwatt.geometry.config_file import find_config, flattened, read_config
from pytest_tokenwatt.geometry.dtypes import plain_bits
from pytest_tokenwatt.geometry.gguf_header import read_gguf
from pytest_tokenwatt.geometry.keys import GeometryUnknown, Keys
from pytest_tokenwatt.geometry.safetensors_header import BITS, HeaderUnreadable, TensorInfo, read_safetensors
from pytest_tokenwatt.geometry.stored_weights import StoredWeights, is_plain_weight, stored_weights
from pytest_tokenwatt.geometry.torch_archive import archived_bytes
from pytest_tokenwatt.geometry.weight_files import GGUF, SAFETENSORS, TORCH, WeightFiles, find_weights
from pytest_tokenwatt.records import Reason
from pytest_tokenwatt.records.profiles import Precision

GIB = 2**30
SOURCE = "checkpoint"
UNREADABLE = "checkpoint_unreadable"
_READERS = {SAFETENSORS: read_safetensors, GGUF: read_gguf}
_QUANTISED_BELOW = 16


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Sizes in bytes. ``stored_bytes``: the weight files; ``loaded_bytes``: their tensors as they are stored.

    ``plain_bytes`` are those of ``loaded_bytes`` by the width (bits) of their type, for weights that are not quantised.
    ``config`` is the flattened ``config.json``, ``None`` without one. ``missing`` has the reason of every ``None``.
    """

    stored_bytes: int | None = None
    loaded_bytes: int | None = None
    plain_bytes: Mapping[int, int] = field(default_factory=dict)
    weights: StoredWeights | None = None
    config: Mapping[str, Any] | None = None
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def stored_gib(self) -> float | None:
        """Size of the weight files in GiB."""
        return None if self.stored_bytes is None else self.stored_bytes / GIB


def read_checkpoint(places: Sequence[Path]) -> Checkpoint:
    """What is known of the checkpoint from its ``config.json`` and the headers of its weight files.

    ``places`` are directories or files that may hold it, the likeliest first. Nothing is fetched, and nothing raises.
    """
    try:
        found = find_weights(places)
    except HeaderUnreadable as problem:
        return _without(*_config(places), str(problem))
    if found is None:
        looked = ", ".join(str(place) for place in places) or "no place to look"
        return _without(*_config(places), f"no weight files are there ({looked})")
    return _measured(found, *_config([found.files[0].parent, *places]))


def loaded_weights(checkpoint: Checkpoint, read: Precision) -> tuple[float, str] | Reason:
    """GiB that the weights take when they are loaded, and where that is from; else why it cannot be told.

    Weights that are not quantised are counted in the type in which they are served. Weights that an engine quantises
    while it loads them have a size that no file tells.
    """
    if checkpoint.loaded_bytes is None:
        return Reason(UNREADABLE, checkpoint.missing["loaded_bytes"])
    own, served = checkpoint.weights, read.weights
    if served is None or not checkpoint.plain_bytes or (own is not None and own.most < _QUANTISED_BELOW):
        return checkpoint.loaded_bytes / GIB, SOURCE
    if served < _QUANTISED_BELOW:
        text = f"the engine turns the checkpoint's weights into {served:g} bits: what they take then is in no file"
        return Reason("weights_quantised_online", text)
    turned = sum(size * (served / bits - 1) for bits, size in checkpoint.plain_bytes.items())
    return (checkpoint.loaded_bytes + turned) / GIB, SOURCE


def _config(places: Sequence[Path]) -> tuple[dict[str, Any] | None, dict[str, str]]:
    file = find_config(places)
    if file is None:
        return None, {"config": "there is no config.json"}
    try:
        return flattened(read_config(file)), {}
    except GeometryUnknown as problem:
        return None, {"config": str(problem)}


def _without(config: Mapping[str, Any] | None, missing: Mapping[str, str], why: str) -> Checkpoint:
    lost = dict.fromkeys(("stored_bytes", "loaded_bytes", "weights"), why)
    return Checkpoint(config=config, missing={**missing, **lost})


def _measured(found: WeightFiles, config: Mapping[str, Any] | None, missing: Mapping[str, str]) -> Checkpoint:
    try:
        stored = sum(file.stat().st_size for file in found.files)
        if found.kind == TORCH:
            loaded = sum(archived_bytes(file) for file in found.files)
            why = "the types of its weights are not in the table of contents of a .bin file"
            return Checkpoint(stored, loaded, _all_plain(loaded, config), None, config, {**missing, "weights": why})
        tensors = [tensor for file in found.files for tensor in _READERS[found.kind](file)]
    except (OSError, HeaderUnreadable) as problem:
        return _without(config, missing, str(problem))
    return _counted(stored, tensors, config, missing)


def _all_plain(loaded: int, config: Mapping[str, Any] | None) -> dict[int, int]:
    """All bytes by the width of the type that an unquantised ``config.json`` names; empty when it does not."""
    keys = Keys(config or {})
    name = keys.get("torch_dtype", "dtype")
    bits = plain_bits(name) if isinstance(name, str) and keys.get("quantization_config") is None else None
    return {} if bits is None else {bits: loaded}


def _counted(
    stored: int, tensors: Sequence[TensorInfo], config: Mapping[str, Any] | None, missing: Mapping[str, str]
) -> Checkpoint:
    plain: dict[int, int] = {}
    for tensor in filter(is_plain_weight, tensors):
        bits = BITS[tensor.dtype]
        plain[bits] = plain.get(bits, 0) + tensor.stored_bytes
    try:
        weights, why = stored_weights(tensors, Keys(config or {})), {}
    except GeometryUnknown as problem:
        weights, why = None, {"weights": str(problem)}
    loaded = sum(tensor.stored_bytes for tensor in tensors)
    return Checkpoint(stored, loaded, plain, weights, config, {**missing, **why})

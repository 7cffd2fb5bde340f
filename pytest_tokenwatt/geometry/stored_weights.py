"""Bits a weight has as it is stored: by size, over the matrices of a model's layers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pytest_tokenwatt.geometry.exclusions import common_name
from pytest_tokenwatt.geometry.gguf_header import GGML_TYPES
from pytest_tokenwatt.geometry.keys import GeometryUnknown, Keys
from pytest_tokenwatt.geometry.matrix import Matrix
from pytest_tokenwatt.geometry.quantisation import Storage, read_storage
from pytest_tokenwatt.geometry.safetensors_header import BITS, TensorInfo

_IN_A_LAYER = re.compile(r"(?:^|\.)\d+\.")
_MATRIX_AXES = 2
_WIDTHS = {**BITS, **{name: bits for name, bits, _, _ in GGML_TYPES.values()}}
_PLAIN_WEIGHTS = ("BF16", "F16", "F32", "F64")
_CONTAINERS = ("U8", "I8", "I16", "U16", "I32", "U32", "I64", "U64")
# What belongs to a quantised weight and is none: scales, zero points, orders of groups, shapes, look-up tables.
_BESIDE = re.compile(
    r"(?:scales?(?:_inv|_2)?|_scale\w*|qzeros|zeros?|zero_point|weight_zero_point|g_idx|weight_g_idx|weight_shape|"
    r"absmax|nested_absmax|quant_map|nested_quant_map|SCB|weight_format|perm|smooth\w*|bias|tid2eid)$"
    r"|\.(?:absmax|nested_absmax|quant_map|nested_quant_map|quant_state)\b"
)
_LEAVES = re.compile(r"\.(?:weight|qweight|weight_packed|weight_quantized|blocks)$|_blocks$")
_NORM = re.compile(r"norm\w*\.weight$")


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """Bits a weight: ``average`` by size; ``most`` is the width that most of the weights have."""

    average: float
    most: float


def stored_weights(tensors: Iterable[TensorInfo], config: Keys) -> StoredWeights:
    """Of the matrices in numbered layers, each weight counted once by its own width.

    Scales and zero points are storage and no weights; embeddings, output head and norms, which quantisation leaves
    alone, do not count. The width of weights that are packed in integers is that of the quantisation config. Raises
    ``GeometryUnknown``.
    """
    counted: Counter[float] = Counter()
    width = _packed_width(config)
    for tensor in tensors:
        if _is_weight(tensor):
            packed = tensor.dtype in _CONTAINERS
            bits = width(tensor) if packed else _own_width(tensor)
            counted[bits] += round(tensor.stored_bytes * 8 / bits) if packed else tensor.elements
    weights = sum(counted.values())
    if not weights:
        raise GeometryUnknown("the checkpoint has no matrices in numbered layers")
    return StoredWeights(
        average=sum(bits * count for bits, count in counted.items()) / weights,
        most=max(counted, key=lambda bits: (counted[bits], -bits)),
    )


def is_plain_weight(tensor: TensorInfo) -> bool:
    """Whether an engine turns the tensor into its own type when it loads it."""
    return tensor.dtype in _PLAIN_WEIGHTS and not _BESIDE.search(tensor.name)


def _is_weight(tensor: TensorInfo) -> bool:
    name = tensor.name
    if not _IN_A_LAYER.search(name) or _BESIDE.search(name) or _NORM.search(name):
        return False
    if tensor.dtype in _CONTAINERS:  # bitsandbytes stores a packed matrix flat, so the axes tell nothing
        return bool(_LEAVES.search(name))
    return len(tensor.shape) >= _MATRIX_AXES


def _own_width(tensor: TensorInfo) -> float:
    bits = _WIDTHS.get(tensor.dtype)
    if bits is None:
        raise GeometryUnknown(f"{tensor.name} is stored as {tensor.dtype}, which is not known")
    return bits


def _packed_width(config: Keys) -> Callable[[TensorInfo], float]:
    """The width of packed weights by the quantisation config; it is read when there are any."""
    storages: list[Storage] = []

    def width(tensor: TensorInfo) -> float:
        if not storages:
            storages.append(read_storage(config, None))
        module = common_name(_LEAVES.sub("", tensor.name))
        bits = storages[0].linear(Matrix(module, 1, 1, routed="experts" in module)).bits
        if bits > BITS[tensor.dtype] or (bits == storages[0].plain.bits and BITS[tensor.dtype] != bits):
            raise GeometryUnknown(
                f"{tensor.name} is packed in {tensor.dtype}, and quantization_config does not say how"
            )
        return bits

    return width

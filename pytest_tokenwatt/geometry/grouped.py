"""The config groups of compressed-tensors: formats by the modules that they target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pytest_tokenwatt.geometry.exclusions import common_name, matcher
from pytest_tokenwatt.geometry.keys import GeometryUnknown, Keys
from pytest_tokenwatt.geometry.matrix import Matrix
from pytest_tokenwatt.geometry.weight_format import MXFP4, MXFP8, NVFP4, Format

_FLOAT_GROUPS = {(4, 16): NVFP4, (4, 32): MXFP4, (8, 32): MXFP8}


def config_groups(config: Keys, plain: Format) -> Callable[[Matrix], Format]:
    """The format of a matrix by the first group that targets it, ``plain`` by none. Raises ``GeometryUnknown``."""
    sparsity = config.nested("sparsity_config")
    if sparsity is not None and sparsity.text("format") not in ("", "dense"):
        raise GeometryUnknown("quantization_config.sparsity_config is not dense, which is not counted")
    groups = config.nested("config_groups")
    if groups is None:
        raise GeometryUnknown("quantization_config.config_groups is missing")
    found = [_group(Keys(group), plain) for group in groups.values.values() if isinstance(group, Mapping)]

    def choose(matrix: Matrix) -> Format:
        return next((form for targets, form in found if any(hits(matrix.name) for hits in targets)), plain)

    return choose


def _group(group: Keys, plain: Format) -> tuple[list[Callable[[str], bool]], Format]:
    weights = group.nested("weights")
    targets = [_target(target) for target in group.sequence("targets") or ["Linear"]]
    return targets, plain if weights is None else _weights(weights)


def _target(target: Any) -> Callable[[str], bool]:
    """``Linear`` hits every matrix, another name the modules that are called so or lie below it."""
    if target == "Linear":
        return lambda _name: True
    if not isinstance(target, str):
        raise GeometryUnknown("quantization_config.config_groups has a target that is no string")
    if target.startswith("re:") or "*" in target:
        return matcher(target)
    wanted = f".{common_name(target)}."
    return lambda name: wanted in f".{name}."


def _weights(weights: Keys) -> Format:
    bits = weights.count("num_bits")
    strategy = weights.text("strategy") or "tensor"
    floating = weights.text("type") == "float"
    if strategy == "block":
        block = weights.sequence("block_structure") or []
        sizes = Keys(dict(zip(("block_structure", "columns of block_structure"), block, strict=False)))
        return Format(
            f"{bits} bit", bits, sizes.count("block_structure"), sizes.count("columns of block_structure"), 32
        )
    if strategy in ("group", "tensor_group"):
        size = weights.count("group_size")
        if floating and (bits, size) in _FLOAT_GROUPS:
            return _FLOAT_GROUPS[bits, size]
        zero = 0 if weights.flag("symmetric", default=True) else bits
        return Format(f"{bits} bit", bits, 1, size, 16 + zero)
    if strategy not in ("tensor", "channel"):
        raise GeometryUnknown(f"quantization_config.config_groups has the strategy {strategy!r}, which is not known")
    return Format(f"{bits} bit", bits, 1, 0, 16 if strategy == "channel" else 0)

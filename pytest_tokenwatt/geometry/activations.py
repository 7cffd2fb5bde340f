"""In how many bits activations are computed, by a checkpoint's quantisation config."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pytest_tokenwatt.geometry.keys import GeometryUnknown, Keys
from pytest_tokenwatt.geometry.quantisation import quantisation_method

_WEIGHT_ONLY = 16.0
_BY_METHOD: Mapping[str, float] = MappingProxyType(
    {
        **dict.fromkeys(("fp8", "fbgemm-fp8"), 8.0),
        **dict.fromkeys(("gptq", "gptq-marlin", "awq", "awq-marlin", "mxfp4"), _WEIGHT_ONLY),
        "nvfp4": 4.0,
    }
)
_BY_ALGORITHM: Mapping[str, float] = MappingProxyType(
    {
        **dict.fromkeys(("fp8", "fp8_per_channel_per_token", "mxfp8"), 8.0),
        **dict.fromkeys(("fp8_pb_wo", "w4a16_nvfp4"), _WEIGHT_ONLY),
        "nvfp4": 4.0,
    }
)


def activation_bits(quantisation: Keys, weights: float) -> float:
    """Bits of what enters the matrices whose weights have ``weights`` bits. Raises ``GeometryUnknown``.

    16 for methods that quantise weights only: they compute in the model's own type. LLM.int8 quantises both.
    """
    method = quantisation_method(quantisation)
    if method == "compressed-tensors":
        return _of_groups(quantisation, weights)
    if method == "modelopt":
        return _known(_BY_ALGORITHM, quantisation.text("quant_algo"), "quant_algo")
    if method == "bitsandbytes":
        return 8.0 if quantisation.flag("load_in_8bit", default=False) else _WEIGHT_ONLY
    if method == "auto-round":
        return float(quantisation.whole("act_bits") or _WEIGHT_ONLY)
    return _known(_BY_METHOD, method, "quant_method")


def floating(quantisation: Keys) -> bool:
    """Whether activations of less than 16 bits are floating-point numbers: not all hardware computes in those."""
    method = quantisation_method(quantisation)
    if method != "compressed-tensors":
        return method not in ("bitsandbytes", "auto-round")
    groups = quantisation.nested("config_groups")
    each = [Keys(group) for group in (groups.values.values() if groups else ()) if isinstance(group, Mapping)]
    entering = [group.nested("input_activations") for group in each]
    return any(kind is not None and kind.text("type") != "int" for kind in entering)


def _of_groups(quantisation: Keys, weights: float) -> float:
    """Of the first config group with weights of that width."""
    groups = quantisation.nested("config_groups")
    for group in groups.values.values() if groups else ():
        if isinstance(group, Mapping):
            own = Keys(group).nested("weights")
            if own is not None and own.whole("num_bits") == weights:
                entering = Keys(group).nested("input_activations")
                return _WEIGHT_ONLY if entering is None else float(entering.count("num_bits"))
    raise GeometryUnknown(f"quantization_config.config_groups has no group with {weights:g}-bit weights")


def _known(table: Mapping[str, float], name: str, key: str) -> float:
    if name not in table:
        raise GeometryUnknown(f"quantization_config.{key} is {name!r}: what it does to activations is not known")
    return table[name]

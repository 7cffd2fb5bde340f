"""Bytes of stored weights: how a checkpoint is quantised, with its scales, and what of it is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pytest_tokenwatt.geometry.dtypes import plain_bits, weight_bits
from pytest_tokenwatt.geometry.exclusions import Exclusions
from pytest_tokenwatt.geometry.feedforward import expert_count
from pytest_tokenwatt.geometry.grouped import config_groups
from pytest_tokenwatt.geometry.keys import GeometryUnknown, Keys
from pytest_tokenwatt.geometry.matrix import Matrix
from pytest_tokenwatt.geometry.weight_format import MXFP4, MXFP8, NVFP4, Format

_HALF = Format("16 bit", 16)
_SELF_DESCRIBING = {"mxfp4": MXFP4, "nvfp4": NVFP4, "mxfp8": MXFP8}
_PROBES = tuple(Matrix(f"layers.0.{name}", 1, 1, routed=True) for name in ("mlp.experts.0.up_proj", "self_attn.q_proj"))


@dataclass(frozen=True, slots=True)
class Storage:
    """How each matrix of a model is stored.

    ``plain`` is the model's own type. ``linear`` tells the format of a matrix that is neither excluded nor kept plain;
    ``head`` is that of the output head.
    """

    plain: Format
    linear: Callable[[Matrix], Format]
    head: Format
    excluded: Exclusions

    def bytes_of(self, matrix: Matrix) -> float:
        """Stored bytes of a matrix, held once."""
        kept = matrix.plain or self.excluded.holds(matrix.name)
        return (self.plain if kept else self.linear(matrix)).bytes_of(matrix.rows, matrix.cols)


def read_storage(config: Keys, weight_dtype: str | None) -> Storage:
    """By ``quantization_config``, else by the stated type, else all in the model's own type.

    A stated type of another width than the checkpoint's is a contradiction. Raises ``GeometryUnknown``.
    """
    plain = _own_format(config)
    stated = None if weight_dtype in (None, "auto") else weight_dtype
    quantisation = quantisation_of(config)
    if quantisation is None:
        return _stated(plain, stated)
    storage = _read(quantisation, plain)
    _check(storage, quantisation, stated)
    return storage


def quantisation_of(config: Keys) -> Keys | None:
    """The quantization_config of a model; ``None`` when it is not quantised."""
    quantisation = config.nested("quantization_config", "compression_config")
    return None if quantisation is None else quantisation.nested("quantization") or quantisation


def layer_bits(config: Keys) -> float:
    """Bits of the weights of a middle layer's feed-forward part, which is the largest. Raises ``GeometryUnknown``."""
    storage = read_storage(config, None)
    part = "mlp.experts.0" if expert_count(config) else "mlp"
    name = f"layers.{(config.whole('num_hidden_layers') or 0) // 2}.{part}.up_proj"
    kept = storage.excluded.holds(name)
    return (storage.plain if kept else storage.linear(Matrix(name, 1, 1, routed="experts" in part))).bits


def _own_format(config: Keys) -> Format:
    """The model's own type. A float32 checkpoint is served in 16 bits unless the spec says otherwise."""
    name = config.text("torch_dtype", "dtype")
    if name not in ("", "auto") and plain_bits(name) is None:
        raise GeometryUnknown(f"torch_dtype is {name!r}, which is not known")
    return _HALF


def _stated(plain: Format, name: str | None) -> Storage:
    if name is None:
        return _uniform(plain, plain)
    own = plain_bits(name)
    if own is not None:
        return _uniform(Format(name, own), Format(name, own))
    if name.lower() in _SELF_DESCRIBING:
        return _uniform(plain, _SELF_DESCRIBING[name.lower()])
    if weight_bits(name) == 8:
        return _uniform(plain, Format(name, 8))
    raise GeometryUnknown(f"quantization_config is missing, and weight_dtype {name!r} alone does not tell the scales")


def _uniform(plain: Format, linear: Format) -> Storage:
    return Storage(plain, lambda _matrix: linear, plain, Exclusions.read(()))


def _check(storage: Storage, quantisation: Keys, stated: str | None) -> None:
    bits = None if stated is None else weight_bits(stated)
    found = {storage.linear(probe).bits for probe in _PROBES}
    if bits is not None and bits not in found:
        said = " and ".join(f"{width:g}" for width in sorted(found))
        method = quantisation_method(quantisation)
        raise GeometryUnknown(f"quantization_config ({method}) says {said}-bit weights, but weight_dtype is {stated!r}")


def _read(config: Keys, plain: Format) -> Storage:
    excluded = Exclusions.of(config)
    method = quantisation_method(config)
    if method == "compressed-tensors":
        return Storage(plain, config_groups(config, plain), plain, excluded)
    if method == "mxfp4":
        return Storage(plain, lambda matrix: MXFP4 if matrix.routed else plain, plain, excluded)
    if method not in _METHODS:
        raise GeometryUnknown(f"quantization_config.quant_method is {method!r}, which is not known")
    linear = _METHODS[method](config)
    head = linear if config.get("lm_head") is True else plain
    return Storage(plain, lambda _matrix: linear, head, excluded)


def quantisation_method(config: Keys) -> str:
    """The method of a quantization_config, dashes for underscores; empty when it names none."""
    method = config.text("quant_method").replace("_", "-")
    if config.get("quant_algo") is not None:
        return "modelopt"
    return "compressed-tensors" if not method and config.get("config_groups") is not None else method


def _fp8(config: Keys) -> Format:
    block = config.sequence("weight_block_size")
    if block is None:
        return Format("FP8", 8)
    sizes = Keys({"weight_block_size[0]": block[0], "weight_block_size[1]": block[1]} if len(block) == 2 else {})
    rows, cols = sizes.count("weight_block_size[0]"), sizes.count("weight_block_size[1]")
    return Format("FP8", 8, rows, cols, 32)


def _integers(config: Keys) -> Format:
    """GPTQ, AWQ and AutoRound: a 16-bit scale and a zero point of the weights' width for each group of inputs."""
    if config.get("dynamic"):
        raise GeometryUnknown("quantization_config.dynamic gives layers different widths, which is not counted")
    bits = config.count("bits", "w_bit")
    return Format(f"INT{bits}", bits, 1, _group_size(config), 16 + bits)


def _group_size(config: Keys) -> int:
    """Inputs that share a scale; 0: all of a row, which is written as −1."""
    return 0 if config.get("group_size", "q_group_size") == -1 else config.count("group_size", "q_group_size")


def _bitsandbytes(config: Keys) -> Format:
    if config.flag("load_in_4bit", default=False):
        # Blocks of 64 share a 32-bit maximum, which double quantisation stores in 8 bits.
        doubled = config.flag("bnb_4bit_use_double_quant", default=False)
        return Format("4 bit", 4, 1, 64, 8 + 32 / 256 if doubled else 32)
    if config.flag("load_in_8bit", default=False):
        return Format("INT8", 8, 1, 0, 32)
    raise GeometryUnknown("quantization_config has neither load_in_4bit nor load_in_8bit")


def _modelopt(config: Keys) -> Format:
    algorithm = config.text("quant_algo")
    found = {
        "fp8": Format("FP8", 8),
        "fp8_per_channel_per_token": Format("FP8", 8, 1, 0, 32),
        "fp8_pb_wo": Format("FP8", 8, 128, 128, 32),
        "nvfp4": NVFP4,
        "w4a16_nvfp4": NVFP4,
        "mxfp8": MXFP8,
    }.get(algorithm)
    if found is None:
        raise GeometryUnknown(f"quantization_config.quant_algo is {algorithm!r}, which is not known")
    return found


_METHODS: dict[str, Callable[[Keys], Format]] = {
    "fp8": _fp8,
    "fbgemm-fp8": lambda _config: Format("FP8", 8, 1, 0, 32),
    "gptq": _integers,
    "gptq-marlin": _integers,
    "awq": _integers,
    "awq-marlin": _integers,
    "auto-round": _integers,
    "bitsandbytes": _bitsandbytes,
    "modelopt": _modelopt,
    "nvfp4": lambda _config: NVFP4,
}

"""Bits of weights and activations: as the checkpoint has them, and what an engine says it makes of them."""

from __future__ import annotations

from pytest_tokenwatt.geometry.activations import activation_bits, floating
from pytest_tokenwatt.geometry.checkpoint import SOURCE, Checkpoint
from pytest_tokenwatt.geometry.dtypes import plain_bits
from pytest_tokenwatt.geometry.engine_words import Said
from pytest_tokenwatt.geometry.keys import GeometryUnknown, Keys
from pytest_tokenwatt.geometry.quantisation import layer_bits, quantisation_of
from pytest_tokenwatt.geometry.widths import ONLINE, Reading, Widths

_NONE = ("none", "null")
_HALF = 16.0


def served_dtype(checkpoint: Checkpoint, said: Said | None) -> Reading:
    """The model's own type as it is served, in bits."""
    if said is not None:
        bits = plain_bits(said.text)
        return Reading(bits, said.where if bits else f"the {said.where} says dtype={said.text}, which is not known")
    if checkpoint.config is None:
        return Reading(None, f"the engine does not tell its dtype, and {checkpoint.missing['config']}")
    # Engines serve a float32 checkpoint in 16 bits unless they are told otherwise.
    return Reading(_HALF, SOURCE)


def computed_bits(checkpoint: Checkpoint, method: Said | None, dtype: Reading) -> tuple[Reading, Reading]:
    """Weights and activations; ``method`` is the quantisation that the engine names, ``dtype`` the model's own type."""
    own = _stored(checkpoint, dtype)
    if method is None:
        return own
    name = method.text.lower()
    if name in _NONE:
        plain = _at(dtype, _source(method, own[0], dtype.bits))
        return plain, plain
    online, quantised = ONLINE.get(name), _is_quantised(checkpoint)
    if quantised and (online is None or own[0].bits == online.weights):
        return own
    if online is None:
        why = checkpoint.missing.get("config", "the checkpoint's config.json has no quantization_config")
        unknown = Reading(None, f"the {method.where} says quantization={method.text}, not in how many bits, and {why}")
        return unknown, unknown
    return _online(online, dtype, _source(method, own[0], online.weights))


def _online(widths: Widths, dtype: Reading, where: str) -> tuple[Reading, Reading]:
    if widths.activations is None:
        return Reading(widths.weights, where), _at(dtype, where)
    return Reading(widths.weights, where), Reading(widths.activations, where, f"FP{widths.activations:g}")


def _at(reading: Reading, where: str) -> Reading:
    """The same bits from a better source."""
    return reading if reading.bits is None else Reading(reading.bits, where)


def _source(method: Said, own: Reading, bits: float | None) -> str:
    """The engine's words, and what of the checkpoint they contradict."""
    said = f"quantization={method.text}"
    contradicted = own.bits not in (None, bits)
    return (
        f"{method.where} ({said}; the checkpoint has {own.bits:g} bits)" if contradicted else f"{method.where} ({said})"
    )


def _is_quantised(checkpoint: Checkpoint) -> bool:
    if _by_types(checkpoint) is not None:
        return True
    try:
        return checkpoint.config is not None and quantisation_of(Keys(checkpoint.config)) is not None
    except GeometryUnknown:
        return True


def _by_types(checkpoint: Checkpoint) -> float | None:
    """Bits of weights that are of less than 16 by the types of the tensors, as in GGUF files."""
    weights = checkpoint.weights
    return weights.most if weights is not None and weights.most < _HALF else None


def _stored(checkpoint: Checkpoint, dtype: Reading) -> tuple[Reading, Reading]:
    """Weights and activations as the checkpoint has them."""
    bits = _by_types(checkpoint)
    if checkpoint.config is None and bits is not None:
        return _of_types(bits)
    if checkpoint.config is None:
        unknown = Reading(None, checkpoint.missing["config"])
        return unknown, unknown
    keys = Keys(checkpoint.config)
    try:
        quantisation = quantisation_of(keys)
        if quantisation is None:
            return (dtype, dtype) if bits is None else _of_types(bits)
        bits = checkpoint.weights.most if checkpoint.weights is not None else layer_bits(keys)
    except GeometryUnknown as problem:
        unknown = Reading(None, str(problem))
        return unknown, unknown
    weights = Reading(bits, f"{SOURCE} (quantization_config)")
    return weights, dtype if bits >= _HALF else _entering(quantisation, weights, dtype)


def _of_types(bits: float) -> tuple[Reading, Reading]:
    why = "nothing says in how many bits activations are computed"
    return Reading(bits, f"{SOURCE} (types of its tensors)"), Reading(None, why)


def _entering(quantisation: Keys, weights: Reading, dtype: Reading) -> Reading:
    try:
        bits = activation_bits(quantisation, weights.bits or 0)
        claims = f"FP{bits:g}" if floating(quantisation) else ""
    except GeometryUnknown as problem:
        return Reading(None, str(problem))
    return dtype if bits >= _HALF else Reading(bits, weights.where, claims)

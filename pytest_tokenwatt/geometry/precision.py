"""The precision that runs: bits of weights, activations and KV cache, from the checkpoint and the engine's own words.

Where they contradict each other the engine is believed, and the source says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from pytest_tokenwatt.geometry.attention import checkpoint_kv
from pytest_tokenwatt.geometry.capability import without_arithmetic
from pytest_tokenwatt.geometry.checkpoint import SOURCE, Checkpoint
from pytest_tokenwatt.geometry.computed_bits import computed_bits, served_dtype
from pytest_tokenwatt.geometry.engine_words import LOG, EngineWords
from pytest_tokenwatt.geometry.kernels import entering, known_kernels
from pytest_tokenwatt.geometry.keys import GeometryUnknown, Keys
from pytest_tokenwatt.geometry.labels import label_of
from pytest_tokenwatt.geometry.widths import Reading, kv_width
from pytest_tokenwatt.records.profiles import Precision, Startup

_NOTHING: Mapping[str, str] = MappingProxyType({})


def read_precision(
    checkpoint: Checkpoint,
    *,
    cache_config: Mapping[str, str],
    startup: Startup,
    start_args: Mapping[str, str] = _NOTHING,
    declared: str | None = None,
) -> Precision:
    """The bits that a started engine computes with; ``missing`` has the reason of each that is not known.

    ``cache_config`` are the labels of ``vllm:cache_config_info``; ``start_args`` the arguments that the engine tells,
    by name or ``section.name``. Weights are those of the layers' matrices; where their widths differ, the width that
    most of them have. ``weights_average`` and ``stored_gib`` are the checkpoint's own, whatever the engine makes of it.
    """
    words = EngineWords(cache_config, startup, start_args)
    dtype = served_dtype(checkpoint, words.dtype())
    weights, activations = _by_kernels(startup, *computed_bits(checkpoint, words.quantization(), dtype), dtype)
    kv = _kv(checkpoint, words, dtype)
    stored, average = checkpoint.stored_gib, checkpoint.weights
    read = {
        "weights": weights,
        "activations": activations,
        "kv": kv,
        "weights_average": _own(None if average is None else average.average, checkpoint, "weights"),
        "stored_gib": _own(stored, checkpoint, "stored_bytes"),
    }
    return Precision(
        weights=_float(weights.bits),
        activations=_float(activations.bits),
        kv=_float(kv.bits),
        label=label_of(weights.bits, activations.bits, kv.bits),
        weights_average=read["weights_average"].bits,
        stored_gib=stored,
        declared=declared,
        sources={part: found.where for part, found in read.items() if found.bits is not None},
        missing={part: found.where for part, found in read.items() if found.bits is None},
        unconfirmed=activations.claims,
    )


def on_boards(read: Precision, boards: Iterable[str | None]) -> Precision:
    """The precision on accelerators of these names (the driver's), once they are known.

    Activations that nothing but the checkpoint or a setting tells are not known on a board without arithmetic in their
    number format: engines then compute in more bits.
    """
    board = without_arithmetic(boards, read.unconfirmed)
    if board is None or read.activations is None:
        return read
    why = f"{read.sources.get('activations', SOURCE)} says {read.activations:g} bits, but {board} does not compute in "
    why += f"{read.unconfirmed}, and the {LOG} names no kernel"
    sources = {part: where for part, where in read.sources.items() if part != "activations"}
    missing = {**read.missing, "activations": why}
    return replace(read, activations=None, label=None, sources=sources, missing=missing, unconfirmed="")


def _by_kernels(startup: Startup, weights: Reading, activations: Reading, dtype: Reading) -> tuple[Reading, Reading]:
    """Weights and activations, corrected by the kernels that the log names for weights of that width."""
    kernels = [kernel for kernel in known_kernels(startup.kernels) if kernel.weights == weights.bits]
    if not kernels:
        return weights, _on_cpu(activations) if activations.claims and startup.device == "cpu" else activations
    read = replace(entering(kernels, activations, dtype), claims="")
    unpacking = next((kernel.name for kernel in kernels if kernel.unpacks), None)
    if unpacking is not None:
        weights = Reading(None, f"the {LOG} names {unpacking}: weights of 8 bits may be held in 16")
    return weights, read


def _on_cpu(activations: Reading) -> Reading:
    """Few CPUs compute in FP8, and engines do not need it."""
    said = f"{activations.where} says {activations.bits:g} bits"
    return Reading(None, f"{said}, but the {LOG} of an engine on a CPU names no kernel")


def _float(bits: float | None) -> float | None:
    """As a stored record gives it back."""
    return None if bits is None else float(bits)


def _own(figure: float | None, checkpoint: Checkpoint, name: str) -> Reading:
    return Reading(figure, SOURCE if figure is not None else checkpoint.missing.get(name, "not read"))


def _kv(checkpoint: Checkpoint, words: EngineWords, dtype: Reading) -> Reading:
    said = words.cache_type()
    if said is None:
        return Reading(None, "the engine tells no cache_dtype")
    if said.text == "auto":
        return _automatic(checkpoint, dtype, said.where)
    bits = kv_width(said.text)
    if bits is None:
        return Reading(None, f"the {said.where} says {said.text} for the KV cache, whose bits are not known")
    return Reading(bits, f"{said.where} ({said.text}{_but(words.cache_config)})")


def _but(cache_config: Mapping[str, str]) -> str:
    """Layers whose cache keeps the model's own type."""
    skipped = cache_config.get("kv_cache_dtype_skip_layers")
    return "" if skipped in (None, "", "[]", "None") else f"; not in layers {skipped}"


def _automatic(checkpoint: Checkpoint, dtype: Reading, where: str) -> Reading:
    """``auto``: as the checkpoint asks for, else the model's own type."""
    try:
        asked = checkpoint_kv(Keys(checkpoint.config or {}))
    except GeometryUnknown as problem:
        return Reading(None, str(problem))
    if asked is None:
        return dtype if dtype.bits is None else Reading(dtype.bits, f"{where} (auto: the model's dtype)")
    bits = kv_width(asked)
    why = f"the checkpoint asks for a KV cache of {asked}, whose bits are not known"
    return Reading(bits, why if bits is None else f"{SOURCE} ({asked}; {where}: auto)")

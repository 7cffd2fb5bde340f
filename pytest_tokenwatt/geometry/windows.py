"""How far back each layer's attention looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pytest_tokenwatt.geometry.keys import GeometryUnknown, Keys

_FULL = frozenset({"full_attention", "attention", "full"})
# Every n-th layer is global where neither the layers' types nor a pattern are written down.
_GLOBAL_EVERY: Mapping[str, int] = MappingProxyType(
    {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "cohere2": 4, "gpt_oss": 2}
)


@dataclass(frozen=True, slots=True)
class Window:
    """At most ``tokens`` back (``None``: all), or, ``chunked``, to the last multiple of them."""

    tokens: int | None = None
    chunked: bool = False


_ALL = Window()


def layer_windows(keys: Keys, layers: int) -> list[Window]:
    """One entry a layer, from ``layer_types``, Llama 4's chunks, or ``sliding_window`` with its patterns."""
    types = keys.sequence("layer_types")
    if types is not None:
        if len(types) < layers:
            raise GeometryUnknown(f"layer_types names {len(types)} of {layers} layers")
        return [_typed(keys, kind) for kind in types[:layers]]
    if keys.whole("attention_chunk_size"):
        return _chunked(keys, layers)
    window = keys.whole("sliding_window")
    if not window or not keys.flag("use_sliding_window", default=True):
        return [_ALL] * layers
    return [Window(window) if slides else _ALL for slides in _sliding(keys, layers)]


def _typed(keys: Keys, kind: object) -> Window:
    if isinstance(kind, str) and kind in _FULL:
        return _ALL
    if kind == "sliding_attention":
        return Window(keys.count("sliding_window"))
    if kind == "chunked_attention":
        return Window(keys.count("attention_chunk_size"), chunked=True)
    raise GeometryUnknown(f"layer_types has {kind!r}, whose reads are not known")


def _chunked(keys: Keys, layers: int) -> list[Window]:
    """Layers with rotary embeddings look back to the start of their chunk, those without see everything."""
    rotary = keys.sequence("no_rope_layers")
    if not rotary:
        every = keys.whole("no_rope_layer_interval") or 4
        rotary = [(layer + 1) % every for layer in range(layers)]
    if len(rotary) < layers:
        raise GeometryUnknown(f"no_rope_layers names {len(rotary)} of {layers} layers")
    chunk = Window(keys.count("attention_chunk_size"), chunked=True)
    return [chunk if has_rope else _ALL for has_rope in rotary[:layers]]


def _sliding(keys: Keys, layers: int) -> list[bool]:
    if keys.get("use_sliding_window") is not None and keys.get("max_window_layers") is not None:
        first = keys.whole("max_window_layers") or 0
        return [layer >= first for layer in range(layers)]
    pattern = keys.get("sliding_window_pattern", "_sliding_window_pattern")
    if isinstance(pattern, str) and pattern and set(pattern) <= {"L", "G"}:
        return [pattern[layer % len(pattern)] == "L" for layer in range(layers)]
    every = keys.whole("sliding_window_pattern", "_sliding_window_pattern")
    every = _GLOBAL_EVERY.get(keys.text("model_type"), 0) if every is None else every
    return [not every or (layer + 1) % every != 0 for layer in range(layers)]

"""Weight matrices of a model: their sizes, how GPUs share them, and what they are called."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Matrix:
    """One weight matrix of ``rows`` outputs by ``cols`` inputs.

    ``name`` is its module's path below the model, in Llama's or DeepSeek's words (``layers.3.mlp.down_proj``).
    ``copies``: how many GPUs of a replica hold each of its weights (1: sharded or one GPU). ``plain``: never quantised
    (routers). ``routed``: part of a routed expert.
    """

    name: str
    rows: int
    cols: int
    copies: float = 1.0
    plain: bool = False
    routed: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """The matrices of one layer: those that every step reads, and those of one routed expert."""

    dense: tuple[Matrix, ...] = field(default_factory=tuple)
    expert: tuple[Matrix, ...] = field(default_factory=tuple)

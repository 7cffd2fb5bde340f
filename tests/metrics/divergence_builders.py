"""Scorings as an engine would give them, from known distributions."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from pytest_tokenwatt.records.drift import Sequence as Scored
from pytest_tokenwatt.records.drift import TopK

Floats = npt.NDArray[np.float64]


def scored(rows: Iterable[Sequence[float]], k: int, tokens: Sequence[int], *, single: bool = False) -> TopK:
    """The top-``k`` of each distribution (probabilities by token id), in single precision if asked."""
    kind = "f" if single else "d"
    table = TopK(k, array("i"), array(kind), array(kind))
    for row, token in zip(rows, tokens, strict=True):
        with np.errstate(divide="ignore"):
            logp = np.log(np.asarray(row, dtype=np.float64))
        best = np.argsort(-logp, kind="stable")[:k]
        unused = k - len(best)
        table.ids.extend([*best.tolist(), *[-1] * unused])
        table.logprobs.extend([*logp[best].tolist(), *[float("nan")] * unused])
        table.chosen.append(float(logp[token]))
    return table


def one(row: Sequence[float], k: int | None = None, token: int = 0, repeat: int = 1) -> TopK:
    """The same distribution at ``repeat`` positions; ``k`` is its whole vocabulary by default."""
    return scored([row] * repeat, k or len(row), [token] * repeat)


def drawn(*tokens: Sequence[int]) -> list[Scored]:
    """Sequences with one prompt token before the tokens that were drawn."""
    return [Scored(f"s{place}", (1, *ids), 1) for place, ids in enumerate(tokens)]


def exact_kl(p: Floats, q: Floats) -> float:
    """Σ p ln(p/q) over the whole vocabulary."""
    held = p > 0
    return float(np.sum(p[held] * np.log(p[held] / q[held])))

"""A small deterministic language model: the next token's distribution is a hash of the last few ids.

Not a model of language: only of what an engine does with one. Probabilities have a heavy head and a long tail like
those of a real model (rank statistics of ``u ** -sharpness`` with uniform u), the same context always gives the same
ones, and a coarser KV cache perturbs the logits by a fixed amount for each context, so that precisions differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pytest_tokenwatt.sim.hashing import GOLDEN, Hashes, mix, normal, uniform
from pytest_tokenwatt.sim.tokenizer import END_OF_TEXT, Tokenizer

Ids: TypeAlias = npt.NDArray[np.int64]
Logits: TypeAlias = npt.NDArray[np.float64]

ORDER = 3
"""How many ids before a position decide what follows."""

PRECISION_NOISE: Mapping[str, float] = MappingProxyType({"auto": 0.0, "fp8": 0.05, "int4": 0.45})
"""Standard deviation of the logit error by KV cache type; ``auto`` is the model itself."""

_SHARPNESS = 1.6
_BYTE_BIAS = -4.0
_END_BIAS = 2.6
_NEVER = -40.0
_ERROR_SALT = np.uint64(0xD1B54A32D192ED03)


class LanguageModel:
    """Logits for contexts of ``ORDER`` ids; ``seed`` chooses the model and ``precision`` its KV cache type."""

    def __init__(self, tokenizer: Tokenizer, *, seed: int = 0, precision: str = "auto") -> None:
        self.vocab_size = tokenizer.vocab_size
        self.seed = seed
        self._noise = PRECISION_NOISE[precision]
        self._id_hash = mix(np.arange(self.vocab_size, dtype=np.uint64) * GOLDEN)
        self._bias = np.zeros(self.vocab_size)
        self._bias[: tokenizer.first_word] = _BYTE_BIAS
        self._bias[: END_OF_TEXT + 3] = _NEVER
        self._bias[END_OF_TEXT] = _END_BIAS

    def logits(self, contexts: Ids) -> Logits:
        """Unnormalised log-probabilities, ``(n, vocab_size)``, of what follows each of ``(n, ORDER)`` ids."""
        rows = self._context_hash(contexts)
        logits = self._bias - _SHARPNESS * np.log(uniform(mix(rows[:, None] ^ self._id_hash)))
        if self._noise:
            logits += self.errors(rows[:, None], np.arange(self.vocab_size))
        return logits

    def errors(self, rows: Hashes, tokens: Ids) -> Logits:
        """What the precision adds to the logits of tokens after contexts with these hashes; the two broadcast."""
        return self._noise * normal(mix((rows ^ _ERROR_SALT) ^ self._id_hash[tokens]))

    def logprobs(self, contexts: Ids) -> Logits:
        """Natural log-probabilities, ``(n, vocab_size)``."""
        return log_softmax(self.logits(contexts))

    def _context_hash(self, contexts: Ids) -> Hashes:
        rows = np.full(len(contexts), self.seed, dtype=np.uint64)
        for column in range(ORDER):
            rows = mix(rows ^ ((contexts[:, column].astype(np.uint64) + np.uint64(column + 1)) * GOLDEN))
        return rows


def contexts_of(ids: Sequence[int]) -> Ids:
    """The context of every position 0..n of ``n`` ids, ``(n + 1, ORDER)``; before the start stands end-of-text."""
    padded = np.concatenate([np.full(ORDER, END_OF_TEXT, dtype=np.int64), np.asarray(ids, dtype=np.int64)])
    contexts: Ids = np.lib.stride_tricks.sliding_window_view(padded, ORDER)
    return contexts


def log_softmax(logits: Logits) -> Logits:
    """Normalise along the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    normalised: Logits = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return normalised


def sample(logits: Logits, temperatures: npt.NDArray[np.float64], keys: Hashes) -> Ids:
    """One id a row: the most likely at temperature 0, else drawn by the Gumbel-max trick with noise from its key."""
    warm = temperatures > 0
    if warm.any():
        ids = np.arange(logits.shape[1], dtype=np.uint64) * GOLDEN
        gumbel = -np.log(-np.log(uniform(mix(mix(keys[warm])[:, None] ^ ids))))
        logits = logits.copy()
        logits[warm] = logits[warm] / temperatures[warm, None] + gumbel
    chosen: Ids = logits.argmax(axis=1)
    return chosen

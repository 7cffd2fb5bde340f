"""Log-probabilities: of one chosen token, and of all the ids of a prompt."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytest_tokenwatt.sim.lm import LanguageModel, Logits, contexts_of, log_softmax
from pytest_tokenwatt.sim.output import TokenLogprob
from pytest_tokenwatt.sim.skill import Skill

_ROWS = 256


def score_prompt(model: LanguageModel, skill: Skill, prompt: Sequence[int], top: int) -> list[TokenLogprob]:
    """Log-probabilities of the prompt's ids from the second on, each as decoding would have had it."""
    contexts = contexts_of(prompt)
    scored: list[TokenLogprob] = []
    for start in range(1, len(prompt), _ROWS):
        ids = prompt[start : start + _ROWS]
        rows = model.logits(contexts[start : start + len(ids)])
        skill.steer(rows, prompt, start)
        scored += [scored_token(row, token, top) for row, token in zip(rows, ids, strict=True)]
    return scored


def scored_token(logits: Logits, token: int, top: int) -> TokenLogprob:
    """One token's log-probability among ``(vocab,)`` logits, with the ``top`` likeliest."""
    logprobs = log_softmax(logits)
    best = np.argsort(-logprobs, kind="stable")[:top]
    return TokenLogprob(
        token=token,
        logprob=float(logprobs[token]),
        rank=int((logprobs > logprobs[token]).sum()) + 1,
        top=tuple((int(other), float(logprobs[other])) for other in best),
    )

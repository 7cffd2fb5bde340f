"""The estimates against the exact divergence of distributions over 50,000 tokens, of which they see twenty."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from divergence_builders import Floats, drawn

from pytest_tokenwatt.metrics.divergence import divergence
from pytest_tokenwatt.records.drift import Divergence, TopK

VOCABULARY, K = 50_000, 20
SEQUENCES, CONTEXTS, DRAWS = 256, 6, 42

Ids = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Disturbance = Callable[[Floats, np.random.Generator], Floats]


@dataclass(frozen=True)
class Simulated:
    """``found`` of both engines' own twenty, ``fixed`` of the baseline's twenty on both."""

    found: Divergence
    fixed: Divergence
    exact: list[float]


def simulate(disturb: Disturbance, seed: int = 0) -> Simulated:
    """Sequences of some contexts, of each of which the baseline draws several tokens."""
    rng = np.random.default_rng(seed)
    ours, theirs, same, tokens, exact = [], [], [], [], []
    ranks = np.log(np.arange(1, VOCABULARY + 1))
    for _ in range(SEQUENCES):
        pair, fixed, ids, each = (_empty(), _empty()), _empty(), [], []
        for _ in range(CONTEXTS):
            logits = rng.normal(0, 0.5, VOCABULARY) - rng.uniform(1.0, 2.0) * ranks
            logps = (_log_softmax(logits), _log_softmax(disturb(logits, rng)))
            p = np.exp(logps[0])
            each.append(float(np.sum(p * (logps[0] - logps[1]))))
            chosen = np.minimum(np.searchsorted(np.cumsum(p), rng.random(DRAWS)), VOCABULARY - 1)
            ids += chosen.tolist()
            best = [_best(logp) for logp in logps]
            for table, logp, ids_of in zip((*pair, fixed), (*logps, logps[1]), (*best, best[0]), strict=True):
                _score(table, logp, chosen, ids_of)
        ours.append(pair[0])
        theirs.append(pair[1])
        same.append(fixed)
        tokens.append(ids)
        exact.append(float(np.mean(each)))
    found = divergence(ours, theirs, drawn=drawn(*tokens))
    return Simulated(found, divergence(ours, same, drawn=drawn(*tokens), fixed_ids=True), exact)


def _empty() -> TopK:
    return TopK(K, array("i"), array("f"), array("f"))


def _log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


def _best(logp: Floats) -> Ids:
    best = np.argpartition(-logp, K)[:K]
    return best[np.argsort(-logp[best])]


def _score(table: TopK, logp: Floats, chosen: Ids, best: Ids) -> None:
    table.ids.extend(np.tile(best, DRAWS).tolist())
    table.logprobs.extend(np.tile(logp[best], DRAWS).tolist())
    table.chosen.extend(logp[chosen].tolist())


def iid_noise(logits: Floats, rng: np.random.Generator) -> Floats:
    return logits + rng.normal(0, 0.2, VOCABULARY)


def rank_dependent_noise(logits: Floats, rng: np.random.Generator) -> Floats:
    ranks = np.empty(VOCABULARY)
    ranks[np.argsort(-logits)] = np.arange(VOCABULARY)
    return logits + rng.normal(0, 1, VOCABULARY) * 0.05 * np.log1p(ranks)


def temperature_error(logits: Floats, rng: np.random.Generator) -> Floats:
    return logits / 1.1


@pytest.mark.parametrize(
    ("disturb", "agree"),
    [
        (iid_noise, True),
        pytest.param(rank_dependent_noise, False, marks=pytest.mark.slow),
        pytest.param(temperature_error, False, marks=pytest.mark.slow),
    ],
)
def test_estimates_of_50000_tokens_from_twenty(disturb: Disturbance, agree: bool) -> None:
    simulated = simulate(disturb)
    exact = float(np.mean(simulated.exact))
    for found in (simulated.found, simulated.fixed):
        assert found.invalid == ()
        assert all(low < whole for low, whole in zip(found.per_sequence, simulated.exact, strict=True))
        assert found.kl_sampled == pytest.approx(exact, abs=4 * (found.kl_sampled_se or 0.0))
        assert [reason.code for reason in found.doubts] == ([] if agree else ["estimators_disagree"])
        if agree:
            assert found.kl == pytest.approx(exact, rel=0.08)
        else:
            assert found.kl != pytest.approx(exact, rel=0.08)
    assert (simulated.fixed.tail_mass or 0.0) <= (simulated.found.tail_mass or 0.0)

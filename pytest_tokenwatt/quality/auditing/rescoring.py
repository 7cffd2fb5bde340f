"""Outputs scored by the baseline: how likely each token is, and whether it is the likeliest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.metrics.audit import Scored
from pytest_tokenwatt.quality.drift.fitting import fit
from pytest_tokenwatt.quality.drift.scoring import IN_FLIGHT, score
from pytest_tokenwatt.records import Client, drift

TOP_K = 1
"""The likeliest token is all that is needed beside the one that stands there.

The server answers for the whole prompt, too, so each further one costs megabytes. A rank (``0``) would be smaller still
and does not do: vLLM counts tied tokens behind each other.
"""

_REMEDIES = {
    "engine_died": "start the baseline with a smaller --max-num-batched-tokens",
    "engine_unreachable": "start the baseline with a smaller --max-num-batched-tokens",
    "other_tokenizer": "compare models that share a tokenizer, or drop the audit block",
}
"""Instead of those that speak of the settings of drift."""

Text = tuple[tuple[int, ...], tuple[int, ...]]
"""A prompt and what was answered."""


@dataclass(frozen=True, slots=True)
class Rescored:
    """Scores by prompt and output; ``notes`` say what was cut."""

    scores: Mapping[Text, Scored]
    notes: tuple[str, ...] = ()


async def rescore(
    client: Client, texts: Sequence[Text], *, max_model_len: int | None, death: Callable[[], str | None]
) -> Rescored:
    """Score outputs of at least one token, equal ones once. Ends of those that do not fit are cut.

    What was sent before need not be kept apart by a salt: nothing is timed here, timed prompts are drawn anew for each
    configuration, and vLLM does not read its prefix cache for a request that asks for the prompt's log-probabilities.
    Raises ``EngineError`` as ``score`` does, and ``sequences_failed`` when one was not scored.
    """
    different = list(dict.fromkeys(texts))
    sequences = [_sequence(str(place), text) for place, text in enumerate(different)]
    fitted = fit(sequences, max_model_len)
    try:
        found = await score(client, fitted.sequences, TOP_K, in_flight=IN_FLIGHT, death=death)
    except EngineError as error:
        if error.reason not in _REMEDIES:
            raise
        raise EngineError(error.reason, error.what, remedy=_REMEDIES[error.reason]) from error
    if found.failed:
        raise EngineError("sequences_failed", found.notes[0])
    scores = {different[int(each.name)]: _scored(top) for each, top in zip(fitted.sequences, found.tops, strict=True)}
    return Rescored(scores, fitted.notes)


def _sequence(name: str, text: Text) -> drift.Sequence:
    prompt, output = text
    return drift.Sequence(name, (*prompt, *output), len(prompt))


def _scored(top: drift.TopK) -> Scored:
    """A token as likely as the likeliest counts as that."""
    best = top.logprobs[:: top.k]
    return Scored(top.chosen, tuple(chosen >= likeliest for chosen, likeliest in zip(top.chosen, best, strict=True)))

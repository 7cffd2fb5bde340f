"""What the drift block will do, before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pytest_tokenwatt.errors import Problem, SpecError
from pytest_tokenwatt.quality.drift.continuations import IN_FLIGHT
from pytest_tokenwatt.quality.suites import iter_items
from pytest_tokenwatt.spec.model import Drift, Spec, Suite

_CHARACTERS = 1 << 20
_TOKEN_S = 0.03
_SCORED_TOKENS_S = 2000.0
"""Assumed for sampling and scoring: nothing says beforehand how fast an engine is."""


def estimated_s(settings: Drift, *, baseline: bool) -> float:
    """Seconds that one configuration will probably take."""
    tokens = settings.sequences * settings.tokens
    texts = sum(corpus.window * corpus.windows for corpus in settings.perplexity)
    passes = 2 if baseline and settings.control else 1
    generations = int(baseline) + int(settings.prompts is not None)  # continuations, and answers for their lengths
    sampled_s = generations * settings.sequences / IN_FLIGHT * settings.tokens * _TOKEN_S
    return sampled_s + (passes * tokens + texts) / _SCORED_TOKENS_S


def described(settings: Drift, *, baseline: bool) -> Iterator[str]:
    """One line for the divergence and one for each text."""
    size = f"{settings.sequences} sequences of at most {settings.tokens} tokens, top {settings.top_k}"
    if baseline:
        yield f"drift: sample and score {size}" + (", scored again as control" if settings.control else "")
    else:
        yield f"drift: score the baseline's {size}"
    if settings.prompts is not None:
        yield f"answer lengths: at most {settings.sequences} prompts, greedily, up to {settings.tokens} tokens each"
    for corpus in settings.perplexity:
        yield f"perplexity of {corpus.name}: {corpus.windows} windows of {corpus.window} tokens"


def problems(spec: Spec) -> Iterator[Problem]:
    """What is wrong with prompts and texts. An absent file is the spec's own preflight's."""
    if spec.drift is None:
        return
    named = spec.drift.prompts
    suites = spec.accuracy if named is None else (Suite(suite=named),)
    for suite in suites:
        path = spec.resolve(suite.suite)
        if path.is_file():
            yield from _prompts_problems(path, suite)
    for corpus in spec.drift.perplexity:
        path = spec.resolve(corpus.file)
        if path.is_file():
            yield from _text_problems(path)


def _prompts_problems(path: Path, suite: Suite) -> Iterator[Problem]:
    try:
        if not sum(1 for _ in iter_items(path, suite)):
            yield Problem(str(path), None, None, "it has no prompt", "give it at least one line")
    except SpecError as error:
        yield from error.problems


def _text_problems(path: Path) -> Iterator[Problem]:
    try:
        with path.open(encoding="utf-8") as text:
            while text.read(_CHARACTERS):
                pass
    except (OSError, UnicodeDecodeError) as error:
        yield Problem(str(path), None, None, f"the text cannot be read: {error}", "give a file in UTF-8")

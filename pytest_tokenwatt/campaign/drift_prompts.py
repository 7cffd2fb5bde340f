"""The prompts of drift, and the texts that show whether two engines have one tokenizer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import islice

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.quality.suites import iter_items
from pytest_tokenwatt.records import Reason, SuiteItem
from pytest_tokenwatt.spec.model import Spec
from pytest_tokenwatt.spec.quality import Suite

PROBES = 8
_PROBE_CHARACTERS = 400
_UNCHECKED = "whether it has the baseline's tokenizer is not checked"


def drift_prompts(spec: Spec, most: int) -> list[SuiteItem]:
    """Up to ``most`` prompts: those of ``drift.prompts``, else of the suites in turn, whatever their limits.

    Raises ``UsageError`` for a file that cannot be read.
    """
    named = spec.drift.prompts if spec.drift else None
    if named is not None:
        return list(islice(iter_items(spec.resolve(named), Suite(suite=named)), most))
    suites = [iter_items(spec.resolve(suite.suite), suite) for suite in spec.accuracy]
    return list(islice(_in_turn(suites), most))


def _in_turn(suites: Sequence[Iterator[SuiteItem]]) -> Iterator[SuiteItem]:
    left = list(suites)
    while left:
        for suite in tuple(left):
            item = next(suite, None)
            if item is None:
                left.remove(suite)
            else:
                yield item


def probe_texts(prompts: Sequence[SuiteItem]) -> list[str]:
    """Some beginnings of prompts."""
    texts = dict.fromkeys(_text(item)[:_PROBE_CHARACTERS] for item in prompts[:PROBES])
    return [text for text in texts if text]


def _text(item: SuiteItem) -> str:
    if item.prompt is not None:
        return item.prompt
    return "\n".join(str(message.get("content", "")) for message in item.messages or ())


async def tokenised(
    tokenize: Callable[[str], Awaitable[tuple[int, ...]]], texts: Sequence[str]
) -> dict[str, tuple[int, ...]]:
    """The ids of each text; empty when the server does not tokenise."""
    try:
        return {text: await tokenize(text) for text in texts}
    except EngineError:
        return {}


def tokenizer_fault(
    theirs: Mapping[str, tuple[int, ...]], ours: Mapping[str, tuple[int, ...]]
) -> tuple[Reason | None, str | None]:
    """Whether an engine's ids (``ours``) of the baseline's probes differ, and what could not be checked."""
    if not theirs or not ours:
        return None, f"{_UNCHECKED}: {'the baseline' if not theirs else 'the server'} has no /tokenize"
    differing = [text for text, ids in theirs.items() if ours.get(text) != ids]
    if not differing:
        return None, None
    what = f"{len(differing)} of {len(theirs)} prompts have other token ids than the baseline's, such as"
    remedy = "compare models that share a tokenizer, or drop the drift block"
    return Reason("other_tokenizer", f"{what} {' '.join(differing[0].split())[:40]!r}; {remedy}"), None

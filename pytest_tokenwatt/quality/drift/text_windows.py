"""Windows of a text, as token ids, for perplexity."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.records import drift
from pytest_tokenwatt.spec.quality import Perplexity

_LEAST = 2


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows in the order of the text, none with another's tokens; ``notes`` are for the report."""

    sequences: tuple[drift.Sequence, ...]
    notes: tuple[str, ...] = ()


async def text_windows(
    tokenize: Callable[[str], Awaitable[Sequence[int]]],
    text: str,
    settings: Perplexity,
    *,
    bos_id: int | None,
    max_model_len: int | None = None,
) -> Windows:
    """The first ``settings.windows`` whole windows of ``settings.window`` ids, the beginning-of-text id included.

    ``bos_id`` stands before every window once, whether or not the tokenizer puts one before the text; without one
    (``None``) the first token of a window is not scored. Tokenise on the baseline and let all score these ids.
    Raises ``EngineError`` (``text_too_short``) when the text has no whole window.
    """
    room = settings.window if max_model_len is None else min(settings.window, max_model_len - 1)
    start = () if bos_id is None else (bos_id,)
    ids = tuple(await tokenize(text))
    if start and ids[:1] == start:
        ids = ids[1:]
    size = max(room, _LEAST) - len(start)
    count = min(len(ids) // size, settings.windows)
    if count == 0:
        what = f"perplexity {settings.name}: the text has {len(ids)} tokens, and a window {size}"
        raise EngineError("text_too_short", what, remedy="give a longer text, or lower window")
    sequences = tuple(
        drift.Sequence(f"{settings.name}/{number}", (*start, *ids[number * size : (number + 1) * size]), 1)
        for number in range(count)
    )
    return Windows(sequences, tuple(_notes(settings, room, count)))


def _notes(settings: Perplexity, room: int, count: int) -> list[str]:
    notes = []
    if room < settings.window:
        notes.append(f"{settings.name}: windows are of {room} tokens, not {settings.window}, by max_model_len")
    if count < settings.windows:
        notes.append(f"{settings.name}: the text has {count} windows, not {settings.windows}")
    return notes

"""Windows of a text, as token ids, for perplexity."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.records import drift
from pytest_tokenwatt.spec.quality import Perplexity

_LEAST = 2
_PIECE = 4000
_BYTES = 4
"""Bytes that a character may have, and so tokens in the worst case."""
_WORD = re.compile(r"\s*\S+")


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
    size = max(room, _LEAST) - len(start)
    ids = await _tokenised(tokenize, text, size * settings.windows, start, max_model_len)
    count = min(len(ids) // size, settings.windows)
    if count == 0:
        what = f"perplexity {settings.name}: the text has {len(ids)} tokens, and a window {size}"
        raise EngineError("text_too_short", what, remedy="give a longer text, or lower window")
    sequences = tuple(
        drift.Sequence(f"{settings.name}/{number}", (*start, *ids[number * size : (number + 1) * size]), 1)
        for number in range(count)
    )
    return Windows(sequences, tuple(_notes(settings, room, count)))


async def _tokenised(
    tokenize: Callable[[str], Awaitable[Sequence[int]]],
    text: str,
    enough: int,
    start: tuple[int, ...],
    max_model_len: int | None,
) -> tuple[int, ...]:
    """Ids of as much of the text as is needed, piece by piece: servers refuse texts longer than their context."""
    ids: list[int] = []
    for piece in _pieces(text, _PIECE if max_model_len is None else max(1, min(_PIECE, max_model_len // _BYTES))):
        found = tuple(await tokenize(piece))
        ids += found[len(start) :] if start and found[: len(start)] == start else found
        if len(ids) >= enough:
            break
    return tuple(ids)


def _pieces(text: str, most: int) -> Iterator[str]:
    """Pieces of about ``most`` characters that begin with white space, as words in tokenizers do."""
    begin = 0
    for match in _WORD.finditer(text):
        while match.end() - begin > most:
            end = match.start() if match.start() > begin else begin + most
            yield text[begin:end]
            begin = end
    if text[begin:].strip():
        yield text[begin:]


def _notes(settings: Perplexity, room: int, count: int) -> list[str]:
    notes = []
    if room < settings.window:
        notes.append(f"{settings.name}: windows are of {room} tokens, not {settings.window}, by max_model_len")
    if count < settings.windows:
        notes.append(f"{settings.name}: the text has {count} windows, not {settings.windows}")
    return notes

"""Prompts by (key, index): random token ids, random words, or passages of a text file; unique per request."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records import Target

Ids: TypeAlias = npt.NDArray[np.int64]

_FREQUENT = (
    "the of and to in is that it was for on are with as his they at be this from have or by one had not but what all "
    "were when we there can an your which their said if do will each about how up out them then she many some so "
    "these would other into has more her two like him see time could no make than first been its who now people my "
    "made over did down only way find use may water long little very after words called just where most know get "
    "through back much before go good new write our used me man too any day same right look think also around "
    "another came come work three word must because does part even place well such here take why things help put "
    "years different away again off went old number great tell men say small every found still between name should "
    "home big give air line set own under read last never us left end along while might next sound below saw "
    "something thought both few those always looked show large often together asked house world going want school "
    "important until form food keep children feet land side without boy once animals life enough took sometimes four "
    "head above kind began almost live page got earth need far hand high year mother light parts country father let "
    "night following picture being study second eyes soon times story boys since white days ever paper hard near "
)
WORDS = tuple(_FREQUENT.split())
"""Frequent English words: with a leading space each is one token of the usual large vocabularies."""

CHARS_PER_TOKEN = 4
"""English prose under the usual large vocabularies; the server's own count is what gets recorded."""


class PromptSource(Protocol):
    """Makes the prompt of a request, always the same for the same (key, index)."""

    def make(self, key: int, index: int, tokens: int) -> Any:
        """A string, or an integer array of exactly ``tokens`` ids."""
        ...


@dataclass(frozen=True, slots=True)
class RandomIds:
    """Uniformly random ids below a vocabulary's size that are not special."""

    allowed: Ids

    def make(self, key: int, index: int, tokens: int) -> Ids:
        """``tokens`` ids."""
        picked: Ids = self.allowed[_generator(key, index).integers(0, len(self.allowed), tokens)]
        return picked


@dataclass(frozen=True, slots=True)
class RandomWords:
    """Uniformly random frequent words, about a token each, for servers that take no ids."""

    def make(self, key: int, index: int, tokens: int) -> str:
        """About ``tokens`` tokens of text."""
        picked = _generator(key, index).integers(0, len(WORDS), tokens)
        return " ".join([WORDS[word] for word in picked.tolist()])


@dataclass(frozen=True, slots=True)
class Passages:
    """Passages of a text from random places on, each behind a unique heading so that no prefix is shared."""

    text: str

    def make(self, key: int, index: int, tokens: int) -> str:
        """About ``tokens`` tokens of the text, which is repeated when it is too short."""
        generator = _generator(key, index)
        heading = f"[{generator.bytes(6).hex()}] "
        need = max(1, tokens * CHARS_PER_TOKEN - len(heading))
        start = int(generator.integers(0, len(self.text)))
        passage = self.text[start : start + need]
        while len(passage) < need:
            passage += self.text[: need - len(passage)]
        return heading + passage


def prompt_source(target: Target) -> PromptSource:
    """The prompts that ``target`` asks for: a content file's passages, ids, or words where ids cannot be sent.

    Raises ``UsageError`` when ids are asked for without a usable vocabulary or the content file cannot be read.
    """
    if target.content_file is not None:
        return Passages(_content(Path(target.content_file)))
    if target.api == "chat" or target.prompt == "text":
        return RandomWords()
    allowed = np.setdiff1d(np.arange(target.vocab_size), np.fromiter(target.special_ids, dtype=np.int64))
    if len(allowed) < 2:
        raise UsageError(
            f"a vocabulary of {target.vocab_size} ids leaves none to draw prompts from",
            where="model.vocab_size",
            remedy="give model.path or model.vocab_size, or set engine.prompt: text",
        )
    return RandomIds(allowed)


def _content(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read ({error})", where="workload.content", remedy="give UTF-8 text"
        ) from error
    if not text.strip():
        raise UsageError(f"{path} holds no text", where="workload.content", remedy="give a text to cut prompts from")
    return text


def _generator(key: int, index: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([key, index])))

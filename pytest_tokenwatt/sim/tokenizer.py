"""The embedded model's tokenizer: three special tokens, every byte, and some words; fixed for all time."""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Iterable, Mapping, Sequence

END_OF_TEXT = 0
TURN_START = 1
TURN_END = 2
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_FIRST_BYTE = len(_SPECIAL)
_FIRST_WORD = _FIRST_BYTE + 256

_WORDS = """
the of and to in is that it was for on are as with at be this have from or by one had not but what all were when we
there can an your which their said if do will each about how up out them then she many some so these would other into
has more her two like him see time could no make than first been its who now people my made over did down only way find
use may water long little very after words called just where most know get through back much before go good new write
our used me man too any day same right look think also around another came come work three word must because does part
even place well such here take why things help put years different away again off went old number great tell men say
small every found still between name should home big give air line set own under read last never us left end along while
might next sound below saw something thought both few those always looked show large often together asked house world
going want school important until form food keep children feet land side without boy once animals life enough took
sometimes four head above kind began almost live page got earth need far hand high year mother light parts country
father let night following picture being study second eyes soon times story boys since white days ever paper hard near
sentence better best river
"""


class Tokenizer:
    """Text to ids and back; ids below 3 are special, then come 256 bytes, then words with a space before them."""

    def __init__(self) -> None:
        self._words = [f" {word}" for word in dict.fromkeys(_WORDS.split())]
        self._word_ids: Mapping[str, int] = {word: _FIRST_WORD + k for k, word in enumerate(self._words)}
        self._pieces = re.compile(r" [a-z]+(?![a-z])|.", re.DOTALL)
        self._bytes = [
            *(special.encode() for special in _SPECIAL),
            *(bytes([value]) for value in range(256)),
            *(word.encode() for word in self._words),
        ]

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return len(self._bytes)

    @property
    def first_word(self) -> int:
        """The first id that stands for a word; those between the special ones and it are bytes."""
        return _FIRST_WORD

    def encode(self, text: str) -> list[int]:
        """Ids of a text; special tokens in it are plain text."""
        ids: list[int] = []
        for match in self._pieces.finditer(text):
            piece = match.group()
            word = self._word_ids.get(piece)
            if word is None:
                ids.extend(_FIRST_BYTE + value for value in piece.encode("utf-8", "surrogatepass"))
            else:
                ids.append(word)
        return ids

    def encode_chat(self, messages: Iterable[Mapping[str, str]]) -> list[int]:
        """Ids of a conversation, ending where the assistant's turn begins."""
        ids: list[int] = []
        for message in messages:
            ids += [TURN_START, *self.encode(f"{message['role']}\n{message['content']}"), TURN_END, *self.encode("\n")]
        return [*ids, TURN_START, *self.encode("assistant\n")]

    def token_bytes(self, token: int) -> bytes:
        """What one id stands for."""
        return self._bytes[token]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; bytes that are no UTF-8 become U+FFFD, special tokens nothing."""
        return b"".join(self._bytes[token] for token in ids if token >= _FIRST_BYTE).decode("utf-8", "replace")


class Detokenizer:
    """Text token by token: half a character gives nothing until its other half has come."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def feed(self, token: int, *, last: bool = False) -> str:
        """The text that this token completes; with ``last``, whatever is left as well."""
        piece = b"" if token < _FIRST_BYTE else self._tokenizer.token_bytes(token)
        return self._decoder.decode(piece, last)

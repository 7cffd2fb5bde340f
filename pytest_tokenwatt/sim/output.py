"""What one request has generated so far: ids, text, and why it ended."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_tokenwatt.sim.api import GenerationRequest
from pytest_tokenwatt.sim.tokenizer import END_OF_TEXT, Detokenizer, Tokenizer


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The chosen token's natural log-probability and rank (from 1), and the likeliest tokens with theirs."""

    token: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Delta:
    """What a stream has not sent yet: ids, the text that is certain, and the end if this is it."""

    ids: tuple[int, ...]
    text: str
    logprobs: tuple[TokenLogprob, ...]
    finish_reason: str | None
    stop_reason: str | int | None


class Output:
    """Collects tokens and ends at a stop string, a stop id, the end of text or the last token.

    Text that could still become a stop string is held back, as vLLM does.
    """

    def __init__(self, request: GenerationRequest, tokenizer: Tokenizer) -> None:
        self.ids: list[int] = []
        self.logprobs: list[TokenLogprob] = []
        self.text = ""
        self.finish_reason: str | None = None
        self.stop_reason: str | int | None = None
        self._request = request
        self._detokenizer = Detokenizer(tokenizer)
        self._hold = max((len(stop) - 1 for stop in request.stop), default=0)
        self._sent_ids = 0
        self._sent_text = 0

    def accept(self, token: int, *, last: bool, logprob: TokenLogprob | None = None) -> None:
        """Take one token; ``last`` when the length is reached with it."""
        self.ids.append(token)
        if logprob is not None:
            self.logprobs.append(logprob)
        if token in self._request.stop_ids:
            self._finish("stop", token)
        elif token == END_OF_TEXT and not self._request.ignore_eos:
            self._finish("stop", None)
        elif last:
            self._finish("length", None)
        searched = max(0, len(self.text) - self._hold)
        self.text += self._detokenizer.feed(token, last=self.finish_reason is not None)
        self._cut_at_stop(searched)

    def _cut_at_stop(self, searched: int) -> None:
        found = [(self.text.find(stop, searched), stop) for stop in self._request.stop]
        at, stop = min(((at, stop) for at, stop in found if at >= 0), default=(-1, ""))
        if at >= 0:
            self.text = self.text[:at]
            self._finish("stop", stop)

    def _finish(self, reason: str, stop: str | int | None) -> None:
        self.finish_reason = reason
        self.stop_reason = stop

    def take(self) -> Delta:
        """Everything since the last call that may be sent."""
        end = len(self.text) if self.finish_reason else max(self._sent_text, len(self.text) - self._hold)
        delta = Delta(
            ids=tuple(self.ids[self._sent_ids :]),
            text=self.text[self._sent_text : end],
            logprobs=tuple(self.logprobs[self._sent_ids :]),
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
        )
        self._sent_ids = len(self.ids)
        self._sent_text = end
        return delta

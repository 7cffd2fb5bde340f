"""A stream read in full: the token ids of requests that are looked at again later."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

from pytest_tokenwatt.load.stream import MAX_COUNT, StreamReader


class KeepingReader(StreamReader):
    """Reads a stream like any other and keeps its token ids; for the few requests whose ids are asked for.

    vLLM sends the prompt's ids once: beside the choices of the first chunk of a chat, in the first choice of a
    completion.
    """

    __slots__ = ("_output_ids", "_prompt_ids")

    def __init__(self) -> None:
        super().__init__()
        self._prompt_ids: array[int] | None = None
        self._output_ids: array[int] | None = None

    @property
    def prompt_ids(self) -> array[int] | None:
        """The prompt as the server echoed it; ``None`` when it did not."""
        return self._prompt_ids

    @property
    def output_ids(self) -> array[int] | None:
        """What was generated; ``None`` when the server told no ids, or not those of every token that it counted."""
        ids = self._output_ids
        whole = ids is not None and len(ids) == self.tokens and self.output_tokens in (None, len(ids))
        return ids if whole else None

    @staticmethod
    def _glance(data: bytes) -> int | None:  # noqa: ARG004
        return None

    def _chunk(self, event: Mapping[str, Any], stamp_s: float) -> None:
        self._keep_prompt(event)
        choices = event.get("choices")
        if type(choices) is list and choices and type(choices[0]) is dict:
            self._keep_prompt(choices[0])
            self._keep_output(choices[0])
        super()._chunk(event, stamp_s)

    def _keep_prompt(self, where: Mapping[str, Any]) -> None:
        if self._prompt_ids is None:
            self._prompt_ids = _ids(where.get("prompt_token_ids"))

    def _keep_output(self, choice: Mapping[str, Any]) -> None:
        ids = _ids(choice.get("token_ids"))
        if ids is None:
            return
        if self._output_ids is None:
            self._output_ids = ids
        else:
            self._output_ids.extend(ids)


def _ids(value: Any) -> array[int] | None:
    if type(value) is not list or not all(type(each) is int and 0 <= each <= MAX_COUNT for each in value):
        return None
    return array("q", value)

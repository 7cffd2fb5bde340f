"""How an engine is asked when it may be in trouble: passing trouble again, nothing for ever, its death by its cause."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.quality.insisting import HOPELESS, insist, is_refusal

Told = TypeVar("Told")

_LONG_S = 60.0
_SILENCES = 3
"""Requests in a row without an answer for so long, behind which an engine is taken to hang."""


def alive() -> str | None:
    """The death of an engine that nobody watches."""
    return None


@dataclass(slots=True)
class Patience:
    """Asks, and remembers how it went. ``death`` tells how the engine ended, ``None`` while it runs.

    ``burden`` says what the engine is asked to do, ``remedy`` what to do when it dies from that.
    """

    death: Callable[[], str | None]
    burden: str
    remedy: str
    answered: int = 0
    streak: int = 0
    silences: int = 0

    async def ask(self, send: Callable[[], Awaitable[Told]]) -> Told | EngineError:
        """The reply, or why there is none: a refusal, a long silence, or three failures.

        Behind twenty failures in a row, refusals among answers not counted, no more is sent. Raises ``EngineError``:
        ``engine_died`` as soon as the engine is seen to be gone, ``engine_unreachable`` when all was silence, or three
        requests in a row were not answered for a minute or more: each of twenty would take its whole time limit.
        """
        if self.streak >= HOPELESS:
            return EngineError("engine_http_error", f"not asked, since {self.streak} requests failed in a row")
        began_s = time.monotonic()
        answer = await insist(send, self.death)
        if isinstance(answer, EngineError):
            silent = answer.status is None and time.monotonic() - began_s >= _LONG_S
            self.silences = self.silences + 1 if silent else 0
            self._failed(answer)
        else:
            self.answered, self.streak, self.silences = self.answered + 1, 0, 0
        return answer

    def _failed(self, error: EngineError) -> None:
        died = self.death()
        if died is not None:
            raise EngineError("engine_died", f"{died}, while {self.burden}", remedy=self.remedy) from error
        if not self.answered or not is_refusal(error):
            self.streak += 1
        if (self.streak >= HOPELESS and error.status is None) or self.silences >= _SILENCES:
            what = f"{error}; it stopped to answer while {self.burden}"
            raise EngineError("engine_unreachable", what, remedy=self.remedy) from error

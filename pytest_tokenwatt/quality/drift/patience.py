"""How an engine is asked when it may be in trouble: passing trouble again, nothing for ever, its death by its cause."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.records import Reply

Job = TypeVar("Job")

_TRIES = 3
_PAUSE_S = 1.0
_PATIENCE_S = 60.0
_HOPELESS = 20
_SERVER_ERROR = 500


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

    async def ask(self, send: Callable[[], Awaitable[Reply]]) -> Reply | EngineError:
        """The reply, or why there is none: a refusal, a long silence, or three failures.

        Behind twenty failures in a row, refusals among answers not counted, no more is sent. Raises ``EngineError``:
        ``engine_died`` as soon as the engine is seen to be gone, ``engine_unreachable`` when all was silence.
        """
        if self.streak >= _HOPELESS:
            return EngineError("engine_http_error", f"not asked, since {self.streak} requests failed in a row")
        answer = await self._try(send)
        if isinstance(answer, EngineError):
            self._failed(answer)
        else:
            self.answered, self.streak = self.answered + 1, 0
        return answer

    def _failed(self, error: EngineError) -> None:
        died = self.death()
        if died is not None:
            raise EngineError("engine_died", f"{died}, while {self.burden}", remedy=self.remedy) from error
        if not self.answered or not _is_refusal(error):
            self.streak += 1
        if self.streak >= _HOPELESS and error.status is None:
            what = f"{error}; it stopped to answer while {self.burden}"
            raise EngineError("engine_unreachable", what, remedy=self.remedy) from error

    async def _try(self, send: Callable[[], Awaitable[Reply]]) -> Reply | EngineError:
        began_s = time.monotonic()
        for attempt in range(_TRIES):
            try:
                return await send()
            except EngineError as error:
                failure = error
            if _is_refusal(failure) or self.death() is not None or time.monotonic() - began_s > _PATIENCE_S:
                break
            if attempt < _TRIES - 1:
                await asyncio.sleep(_PAUSE_S)
        return failure


def _is_refusal(error: EngineError) -> bool:
    return error.status is not None and error.status < _SERVER_ERROR


async def each(jobs: Iterable[Job], do: Callable[[Job], Awaitable[None]], in_flight: int) -> None:
    """Do all jobs, ``in_flight`` at a time. The first exception ends the others and is raised."""
    waiting = iter(jobs)

    async def work() -> None:
        for job in waiting:
            await do(job)

    workers = [asyncio.create_task(work()) for _ in range(max(1, in_flight))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

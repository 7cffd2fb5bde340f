"""How requests are sent to an engine that may be in trouble: some at a time, passing trouble again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from pytest_tokenwatt.errors import EngineError

Job = TypeVar("Job")
Told = TypeVar("Told")

HOPELESS = 20
"""Failures in a row behind which nothing more is asked."""

_TRIES = 3
_PAUSE_S = 1.0
_PATIENCE_S = 60.0
_SERVER_ERROR, _NOT_IMPLEMENTED = 500, 501


async def insist(send: Callable[[], Awaitable[Told]], death: Callable[[], str | None]) -> Told | EngineError:
    """The reply, or the last error: what may be passing trouble is asked again, a refusal or a long silence is not.

    Nor is an engine that ``death`` tells to be gone.
    """
    began_s = time.monotonic()
    for attempt in range(_TRIES):
        try:
            return await send()
        except EngineError as error:
            failure = error
        if is_refusal(failure) or death() is not None or time.monotonic() - began_s > _PATIENCE_S:
            break
        if attempt < _TRIES - 1:
            await asyncio.sleep(_PAUSE_S)
    return failure


def is_refusal(error: EngineError) -> bool:
    """Whether the server answered that it will not, as opposed to that it cannot."""
    return error.status is not None and (error.status < _SERVER_ERROR or error.status == _NOT_IMPLEMENTED)


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

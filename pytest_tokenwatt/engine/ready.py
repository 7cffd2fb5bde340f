"""Waiting until an engine answers, with an eye on the process, the clock and the reader's patience."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest_tokenwatt.engine.control import ControlClient, PrivateLoop
from pytest_tokenwatt.engine.http import Answer, HttpError
from pytest_tokenwatt.engine.logtail import LogTail
from pytest_tokenwatt.errors import EngineError

PROGRESS_EVERY_S = 5.0
ATTACH_PATIENCE_S = 30.0
_FIRST_PAUSE_S, _PAUSE_GROWTH, _LONGEST_PAUSE_S = 0.05, 1.5, 0.5
_ASK_TIMEOUT_S = 5.0
_NO_SUCH_PAGE = (404, 405)


@dataclass(frozen=True, slots=True)
class Waiting:
    """What the wait needs to know: ``pause`` sleeps up to so many seconds and raises when the engine is lost.

    ``timeout_s`` bounds the whole wait, ``patience_s`` the part in which nothing says that it is loading (by a 5xx).
    """

    what: str
    timeout_s: float
    patience_s: float
    pause: Callable[[float], None]
    progress: Callable[[str], None]
    log: LogTail


def wait_until_ready(client: ControlClient, loop: PrivateLoop, waiting: Waiting) -> list[Any]:
    """Entries of ``/v1/models`` once the engine answers it and is healthy.

    Raises ``EngineError``: ``engine_refused`` when it rejects our credentials, ``engine_start_failed`` when the
    time is up, and whatever ``pause`` raises.
    """
    started = said = time.monotonic()
    pause_s = _FIRST_PAUSE_S
    while True:
        state = loop.call(_ask(client))
        if isinstance(state, list):
            return state
        elapsed = time.monotonic() - started
        if elapsed > waiting.timeout_s or (elapsed > waiting.patience_s and not state.loading):
            raise _too_late(waiting, elapsed, state)
        if time.monotonic() - said >= PROGRESS_EVERY_S:
            said = time.monotonic()
            waiting.progress(_position(waiting, elapsed, state))
        waiting.pause(pause_s)
        pause_s = min(pause_s * _PAUSE_GROWTH, _LONGEST_PAUSE_S)


@dataclass(frozen=True, slots=True)
class _NotYet:
    loading: bool
    text: str


async def _ask(client: ControlClient) -> list[Any] | _NotYet:
    models_url = f"{client.access.endpoint}/models"
    try:
        answer = await client.http.get(models_url, _ASK_TIMEOUT_S)
        if answer.status in (401, 403):
            raise EngineError(
                "engine_refused",
                f"{models_url} answered {answer.status}: {client.http.said(answer)}",
                remedy="name the variable with the engine's key in engine.api_key_env",
            )
        told = answer.json()
        listed = told.get("data") if isinstance(told, dict) else None
        if answer.status != 200 or not isinstance(listed, list):
            return _NotYet(answer.status >= 500, f"{models_url} answered {answer.status}: {client.http.said(answer)}")
        health = await client.http.get(f"{client.access.root}/health", _ASK_TIMEOUT_S)
    except HttpError as error:
        return _NotYet(False, error.what)
    return listed if _is_healthy(health) else _NotYet(True, f"/health answered {health.status}")


def _is_healthy(answer: Answer) -> bool:
    return answer.status < 400 or answer.status in _NO_SUCH_PAGE


def _position(waiting: Waiting, elapsed_s: float, state: _NotYet) -> str:
    line = waiting.log.last()
    said = f"last log line: {line}" if line else state.text
    return f"starting {waiting.what} … {elapsed_s:.0f} s, {said}"


def _too_late(waiting: Waiting, elapsed_s: float, state: _NotYet) -> EngineError:
    remedy = "raise engine.ready_timeout_s, or see the log for what it waits for"
    if waiting.patience_s < waiting.timeout_s and elapsed_s < waiting.timeout_s:
        remedy = "start the engine first, or check engine.endpoint"
    return EngineError(
        "engine_start_failed",
        f"{waiting.what} is not ready after {elapsed_s:.0f} s: {state.text}",
        remedy=remedy,
        log=waiting.log.path,
        tail=waiting.log.lines(12),
    )

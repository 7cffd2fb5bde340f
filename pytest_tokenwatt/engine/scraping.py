"""Fetching an engine's metrics."""

from __future__ import annotations

import asyncio

from pytest_tokenwatt.engine.control import ControlClient
from pytest_tokenwatt.engine.http import HttpError
from pytest_tokenwatt.engine.metrics import ServerMetrics, merge

SCRAPE_TIMEOUT_S = 5.0


async def read_all(client: ControlClient, urls: tuple[str, ...]) -> ServerMetrics:
    """The metrics of all URLs as one reading; its ``problem`` says what kept any of them from being read."""
    return merge(list(await asyncio.gather(*(_read(client, url) for url in urls))))


async def _read(client: ControlClient, url: str) -> ServerMetrics:
    try:
        answer = await client.http.get(url, SCRAPE_TIMEOUT_S)
    except HttpError as error:
        return ServerMetrics(problem=error.what)
    if answer.status != 200:
        return ServerMetrics(problem=f"GET {url} answered {answer.status}: {client.http.said(answer)}")
    return ServerMetrics.parse(answer.text)

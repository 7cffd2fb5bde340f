"""An embedded engine in a process of its own, and the real client."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pytest_tokenwatt.engine.access import Access
from pytest_tokenwatt.engine.control import ControlClient, PrivateLoop
from pytest_tokenwatt.errors import EngineError

T = TypeVar("T")

ROOT = Path(__file__).parents[2]


class Engine:
    """An embedded engine with the real client."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.loop = PrivateLoop()
        self.root = f"http://127.0.0.1:{port}"
        self.client = ControlClient(self.loop, Access(f"{self.root}/v1"), lambda text: text)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.call(work)

    def await_ready(self) -> None:
        deadline_s = time.monotonic() + 60
        while time.monotonic() < deadline_s and self.process.poll() is None:
            try:
                told = json.loads(self.do(self.client.http.get(f"{self.root}/v1/models", 5.0)).text)
                self.client.model = told["data"][0]["id"]
                return
            except EngineError:
                time.sleep(0.05)
        raise AssertionError("the engine did not get ready")

    async def tokenize(self, text: str) -> Sequence[int]:
        told = await self.client.http.ask(f"{self.root}/tokenize", {"prompt": text}, 10.0)
        ids: list[int] = told["tokens"]
        return ids


@contextmanager
def running(*options: str) -> Iterator[Engine]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "pytest_tokenwatt", "simulate", "--port", str(port), *options]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environ)
    engine = Engine(process, port)
    try:
        engine.await_ready()
        yield engine
    finally:
        engine.client.close()
        process.terminate()
        process.wait(60)

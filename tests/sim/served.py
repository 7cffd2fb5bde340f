"""Starts the embedded engine as a process and talks to it over plain HTTP."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class Served:
    """A running engine; ``get`` and ``post`` give (status, text)."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def get(self, path: str) -> tuple[int, str]:
        return self.request("GET", path)

    def post(self, path: str, **body: Any) -> tuple[int, str]:
        return self.request("POST", path, body)

    def complete(self, **body: Any) -> dict[str, Any]:
        status, text = self.post("/v1/completions", **{"temperature": 0, **body})
        assert status == 200, text
        reply: dict[str, Any] = json.loads(text)
        return reply

    def events(self, path: str, **body: Any) -> list[dict[str, Any]]:
        status, text = self.post(path, stream=True, **body)
        assert status == 200, text
        lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
        assert lines.pop() == "[DONE]"
        return [json.loads(line) for line in lines]

    def metric(self, name: str) -> float:
        lines = self.get("/metrics")[1].splitlines()
        return float(next(line for line in lines if line.startswith(name)).rsplit(" ", 1)[1])

    def stop(self) -> tuple[int, str]:
        """End it by SIGTERM; its exit code and its log."""
        self.process.send_signal(signal.SIGTERM)
        log, _ = self.process.communicate(timeout=60)
        return self.process.returncode, log


def launch(*options: str) -> Served:
    """Start an engine without waiting for it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest_tokenwatt", "simulate", "--port", str(port), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return Served(process, port)


@contextmanager
def serving(*options: str) -> Iterator[Served]:
    """An engine that is ready, and ended afterwards if it has not ended by itself."""
    served = launch(*options)
    try:
        await_ready(served)
        yield served
    finally:
        if served.process.poll() is None:
            served.stop()
        if served.process.stdout is not None:
            served.process.stdout.close()


def await_ready(served: Served, within_s: float = 60) -> None:
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s and served.process.poll() is None:
        try:
            if served.get("/health")[0] == 200:
                return
        except OSError:
            time.sleep(0.03)
    raise AssertionError("the engine did not get ready")

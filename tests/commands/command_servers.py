"""Servers for the tests of the companion command, and a way to call it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import pytest_tokenwatt
from pytest_tokenwatt.__main__ import main
from pytest_tokenwatt.engine.listener import answers
from pytest_tokenwatt.engine.ports import claim_free_port

ROOT = str(Path(pytest_tokenwatt.__file__).parents[1])
_FAKE = Path(__file__).parents[1] / "engine" / "fake_engine.py"
EMBEDDED = (sys.executable, "-m", "pytest_tokenwatt", "simulate")


@dataclass(frozen=True, slots=True)
class Called:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


def call(capsys: pytest.CaptureFixture[str], *words: str) -> Called:
    """Run a subcommand in this process."""
    capsys.readouterr()
    code = main(words)
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return Called(code, out, err)


def fake(*options: str) -> tuple[str, ...]:
    """The command of the fake OpenAI-compatible server."""
    return (sys.executable, "-S", str(_FAKE), *options)


@contextmanager
def serving(command: tuple[str, ...], folder: Path) -> Iterator[str]:
    """A server that listens; its URL without a path."""
    claim = claim_free_port()
    environ = {**os.environ, "PYTHONPATH": ROOT}
    with (folder / "server.log").open("ab") as log:
        server = subprocess.Popen([*command, "--port", str(claim.port)], stdout=log, stderr=log, env=environ)
    try:
        deadline = time.monotonic() + 20
        while not answers("127.0.0.1", claim.port):
            assert time.monotonic() < deadline, "the server does not start"
            time.sleep(0.05)
        yield f"http://127.0.0.1:{claim.port}"
    finally:
        server.kill()
        server.wait()
        claim.release()

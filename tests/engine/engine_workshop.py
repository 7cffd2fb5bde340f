"""Helpers of the engine tests: configurations around the fake engine, and a look at what is left of them."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pytest_tokenwatt.engine.listener import answers
from pytest_tokenwatt.engine.ports import claim_free_port
from pytest_tokenwatt.engine.start import EnginePlace, RunningEngine, start_engine
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.spec.model import Configuration

FAKE = str(Path(__file__).with_name("fake_engine.py"))
TAG = "TOKENWATT_TEST_TAG"


def fake(*options: str, model: str = "tiny") -> list[str]:
    """The command of the fake engine."""
    return [sys.executable, "-S", FAKE, "--port", "{port}", "--model", model, *options]


def tagged(tag: str) -> list[int]:
    """Pids of living processes whose environment carries this tag."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            inside = folder.name.isdigit() and f"{TAG}={tag}".encode() in (folder / "environ").read_bytes().split(b"\0")
            if inside and (folder / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def wait_for(condition: Callable[[], object], timeout_s: float = 60.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class Workshop:
    """Builds configurations and starts engines in one temporary place; knows what is left of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tag = uuid.uuid4().hex
        self.news: list[str] = []
        self.environ = {**os.environ, TAG: self.tag}
        self.engines: list[RunningEngine] = []

    @property
    def log(self) -> Path:
        return self.folder / "run" / "engine-baseline.log"

    @property
    def leftovers(self) -> list[int]:
        return tagged(self.tag)

    def configuration(self, weights: dict[str, Any] | None = None, **engine: Any) -> Configuration:
        spec = self.folder / "spec.yaml"
        limits = {"ready_timeout_s": 60, "stop_timeout_s": 4}
        spec.write_text(json.dumps({"engine": {**limits, **engine}, "model": weights or {}}), encoding="utf-8")
        return load_spec(spec, self.environ).configurations[0]

    def free_port(self) -> int:
        claim = claim_free_port()
        claim.release()
        return claim.port

    def wait_for_port(self, port: int) -> None:
        assert wait_for(lambda: answers("127.0.0.1", port))

    def kill_all(self) -> None:
        for pid in self.leftovers:
            os.kill(pid, signal.SIGKILL)
        assert wait_for(lambda: not self.leftovers)

    def place(self) -> EnginePlace:
        return EnginePlace(self.folder / "run", "run7", self.folder, self.environ, self.news.append)

    def start(self, weights: dict[str, Any] | None = None, **engine: Any) -> RunningEngine:
        started = start_engine(self.configuration(weights, **engine), self.place())
        self.engines.append(started)
        return started


@contextmanager
def open_workshop(folder: Path) -> Iterator[Workshop]:
    """A workshop whose engines are stopped at the end; nothing may be left of them then."""
    made = Workshop(folder)
    try:
        yield made
    finally:
        for engine in made.engines:
            engine.stop()
    assert made.leftovers == []

"""Compiles and runs the server of known timing (``known_timing.c`` beside this file)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


def compiler() -> str | None:
    """The C compiler, if there is one; the server needs Linux (epoll, timerfd)."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def compile_server(folder: Path) -> Path:
    """The compiled server, put into ``folder``."""
    found = compiler()
    if found is None:
        raise FileNotFoundError("no C compiler: install gcc or clang")
    binary = folder / "known_timing"
    subprocess.run([found, "-O2", "-o", str(binary), str(SOURCE)], check=True)
    return binary


@dataclass
class KnownTiming:
    """A running server; ``lateness`` holds what it says of itself after its end."""

    port: int
    ttft_ms: float
    itl_ms: float
    lateness: dict[str, float] = field(default_factory=dict)


@contextmanager
def running(binary: Path, ttft_ms: float, itl_ms: float, *, ids: bool, cpu: int | None = None) -> Iterator[KnownTiming]:
    """Run the server, on ``cpu`` alone if given."""
    command = [str(binary), str(ttft_ms), str(itl_ms), *(["ids"] if ids else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if cpu is not None:
            os.sched_setaffinity(process.pid, {cpu})
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the server has no pipes")
        server = KnownTiming(int(process.stdout.readline()), ttft_ms, itl_ms)
        try:
            yield server
        finally:
            process.stdin.close()
            server.lateness = json.loads(process.stdout.readline())

"""Programs that start engines, and how this process was started: signals, CI."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_tokenwatt.commands.doctor.check import Check

_SUMMARY = "GITHUB_STEP_SUMMARY"
_DOCKER_SOCKET = Path("/var/run/docker.sock")


def check_surroundings(environ: Mapping[str, str], socket: Path = _DOCKER_SOCKET) -> Iterator[Check]:
    """vLLM and docker on PATH, SIGINT and SIGTERM, the step summary of GitHub Actions."""
    yield _vllm(environ)
    yield _docker(environ, socket)
    yield _signals()
    yield _summary(environ)


def _which(name: str, environ: Mapping[str, str]) -> str | None:
    return shutil.which(name, path=environ.get("PATH", os.defpath))


def _vllm(environ: Mapping[str, str]) -> Check:
    found = _which("vllm", environ)
    if found is None:
        remedy = "pip install vllm in an environment of its own and give its full path in engine.command"
        return Check("vllm", "missing", "not on PATH", f"{remedy}, or attach to a server by engine.endpoint")
    return Check("vllm", "ok", found)


def _docker(environ: Mapping[str, str], socket: Path) -> Check:
    found = _which("docker", environ)
    if found is None:
        return Check("docker", "missing", "not on PATH: no engines in containers", "install it, if you want those")
    elsewhere = environ.get("DOCKER_HOST")
    if not elsewhere and socket.exists() and not os.access(socket, os.R_OK | os.W_OK):
        return Check("docker", "warning", f"{found}, but {socket} may not be used", "join the group docker")
    if not elsewhere and not socket.exists():
        return Check("docker", "warning", f"{found}, but no daemon at {socket}", "start it, or set DOCKER_HOST")
    return Check("docker", "ok", found)


def _signals() -> Check:
    ignored = [name.name for name in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(name) is signal.SIG_IGN]
    if ignored:
        told = (
            f"{' and '.join(ignored)} ignored, as below nohup or behind & in a script: a run could not be interrupted"
        )
        return Check(
            "signals", "warning", told, "start it in the foreground, or send SIGTERM" if len(ignored) == 1 else None
        )
    return Check("signals", "ok", "a run can be interrupted")


def _summary(environ: Mapping[str, str]) -> Check:
    named = environ.get(_SUMMARY)
    if not named:
        return Check("step summary", "ok", f"{_SUMMARY} is not set, as outside of GitHub Actions: none is written")
    path = Path(named)
    place = path if path.exists() else path.parent
    if path.is_dir() or not os.access(place, os.W_OK):
        return Check("step summary", "warning", f"{_SUMMARY} names {path}, which is not writable", "mount its folder")
    return Check("step summary", "ok", f"written to {path}")

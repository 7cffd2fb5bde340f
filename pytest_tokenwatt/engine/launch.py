"""From a configuration to what will run: every command with its words filled in, its environment, its port, its log."""

from __future__ import annotations

import os
import re
import shutil
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_tokenwatt.engine.access import normalise
from pytest_tokenwatt.engine.guard_plan import Argv, GuardPlan
from pytest_tokenwatt.engine.placeholders import fill, fill_all, uses
from pytest_tokenwatt.engine.ports import PortClaim, claim_free_port, claim_port
from pytest_tokenwatt.engine.scrub import Scrubber
from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.spec.model import Configuration

_PORT_OPTION = re.compile(r"--?(?:port|p)(?:=(\d+))?")


@dataclass(frozen=True, slots=True)
class EnginePlace:
    """Where an engine runs: the run's directory and id, the spec's directory, the environment to inherit.

    ``progress`` takes one line of news for the reader.
    """

    run_dir: Path
    run_id: str
    spec_dir: Path
    environ: Mapping[str, str] = field(repr=False)
    progress: Callable[[str], None]

    def log_of(self, key: str) -> Path:
        """The log file of a configuration's engine."""
        return self.run_dir / f"engine-{key}.log"


@dataclass(frozen=True, slots=True)
class Launch:
    """What will run. ``plan`` is ``None`` when nothing does; ``log`` is what the engine writes, if it is to be had."""

    endpoint: str
    plan: GuardPlan | None
    claim: PortClaim | None
    log: Path | None


def build_launch(configuration: Configuration, place: EnginePlace) -> Launch:
    """The launch of a configuration; claims a port for a command.

    Commands run in the spec's directory, so that relative paths mean what they mean elsewhere in the spec. Raises
    ``EngineError``: ``bad_command`` for a placeholder that does not exist, ``engine_start_failed`` for a program
    that cannot be run, ``endpoint_in_use`` and ``no_free_port`` for the port.
    """
    engine = configuration.engine
    if engine.command is None:
        if engine.endpoint is None:
            raise EngineError(
                "bad_command", f"{configuration.key} has no engine", remedy="set engine.command or engine.endpoint"
            )
        return _finish(configuration, place, normalise(engine.endpoint), None, None)
    claim = _claim(configuration)
    try:
        return _finish(configuration, place, f"http://127.0.0.1:{claim.port}/v1", claim, claim.port)
    except BaseException:
        claim.release()
        raise


def launch_record(configuration: Configuration, scrub: Scrubber) -> dict[str, Any]:
    """What a report may show of the launch: the words as written, variables and placeholders unexpanded.

    Values of variables whose names tell of a secret are masked.
    """
    engine = configuration.engine
    raw = configuration.raw.get("engine") or {}
    shown = {
        name: _scrubbed(raw.get(name, getattr(engine, name)), scrub)
        for name in (
            "command",
            "args",
            "endpoint",
            "up",
            "down",
            "logs",
            "prepare",
            "cleanup",
            "kernels",
            "prompt",
            "api",
        )
        if getattr(engine, name)
    }
    env = {str(name): "" if value is None else str(value) for name, value in (raw.get("env") or engine.env).items()}
    return {"method": engine.method, **shown, "env": scrub.mapping(env)}


def _finish(
    configuration: Configuration, place: EnginePlace, endpoint: str, claim: PortClaim | None, port: int | None
) -> Launch:
    engine = configuration.engine
    values = _values(configuration, place, port)
    env = _environment(configuration, place.environ, values)

    def ready(name: str, argv: Argv | None) -> Argv | None:
        return _runnable(fill_all(argv, values, f"engine.{name}"), env, place.spec_dir) if argv else None

    command = ready("command", (*engine.command, *engine.args) if engine.command else None)
    plan = GuardPlan(
        parent=os.getpid(),
        mark=uuid.uuid4().hex,
        cwd=str(place.spec_dir),
        env=env,
        start_timeout_s=engine.ready_timeout_s,
        stop_timeout_s=engine.stop_timeout_s,
        engine=command,
        prepare=_each(ready, "prepare", engine.prepare),
        up=_each(ready, "up", [engine.up] if engine.up else []),
        logs=None if isinstance(engine.logs, str) else ready("logs", engine.logs),
        down=_each(ready, "down", [engine.down] if engine.down else []),
        cleanup=_each(ready, "cleanup", engine.cleanup),
        lock=(str(claim.lock_path), claim.lock_fd) if claim else None,
    )
    runs = bool(plan.engine or plan.prepare or plan.up or plan.logs or plan.down or plan.cleanup)
    return Launch(endpoint, plan if runs else None, claim, _log(configuration, place, values, runs))


def _each(ready: Callable[[str, Argv | None], Argv | None], name: str, commands: Iterable[Argv]) -> tuple[Argv, ...]:
    return tuple(argv for argv in (ready(name, command) for command in commands) if argv)


def _log(configuration: Configuration, place: EnginePlace, values: Mapping[str, str], runs: bool) -> Path | None:
    told = configuration.engine.logs
    if isinstance(told, str):
        return place.spec_dir / Path(fill(told, values, "engine.logs")).expanduser()
    return place.log_of(configuration.key) if runs else None


def _values(configuration: Configuration, place: EnginePlace, port: int | None) -> dict[str, str]:
    values = {
        "run_id": place.run_id,
        "config": configuration.key,
        "run_dir": str(place.run_dir.absolute()),
        "python": sys.executable,
    }
    name = configuration.model.path or configuration.engine.model
    if name:
        local = place.spec_dir / Path(name).expanduser()
        values["model"] = str(local.absolute()) if local.exists() else name
    port = port or _port_of(configuration.engine.endpoint)
    return values | ({"port": str(port)} if port else {})


def _port_of(endpoint: str | None) -> int | None:
    match = re.match(r"https?://(?:\[[^]]*\]|[^:/]*):(\d+)", endpoint or "")
    return int(match.group(1)) if match else None


def _environment(
    configuration: Configuration, inherited: Mapping[str, str], values: Mapping[str, str]
) -> dict[str, str]:
    env = dict(inherited)
    for name, value in configuration.engine.env.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = fill(value, values, f"engine.env.{name}")
    return env


def _runnable(argv: Argv, env: Mapping[str, str], folder: Path) -> Argv:
    """The command with a program that exists and may be executed; one with a slash is relative to the spec."""
    program = argv[0]
    if os.sep not in program:
        if shutil.which(program, path=env.get("PATH", os.defpath)) is None:
            raise _no_program(f"{program} is not on PATH", "install it, or give its full path")
        return argv
    path = folder / Path(program).expanduser()
    if not path.is_file():
        raise _no_program(f"{path} does not exist", "check the path; relative ones start at the spec file")
    if not os.access(path, os.X_OK):
        raise _no_program(f"{path} is not executable", f"chmod +x {path}")
    return (str(path.absolute()), *argv[1:])


def _no_program(what: str, remedy: str) -> EngineError:
    return EngineError("engine_start_failed", f"the engine's program {what}", remedy=remedy)


def _claim(configuration: Configuration) -> PortClaim:
    engine = configuration.engine
    words = [*(engine.command or ()), *engine.args, *(value for value in engine.env.values() if value)]
    if uses("port", words):
        return claim_free_port()
    port = _written_port(words)
    if port is None:
        raise EngineError(
            "bad_command",
            f"engine.command of {configuration.key} does not say where to listen",
            remedy='add --port, "{port}"',
        )
    claim = claim_port(port)
    if claim is None:
        raise EngineError(
            "endpoint_in_use", f"another run on this machine uses port {port}", remedy="use {port} in the command"
        )
    return claim


def _written_port(words: Iterable[str]) -> int | None:
    listed = list(words)
    for place, word in enumerate(listed):
        match = _PORT_OPTION.fullmatch(word)
        value = match and (match.group(1) or next(iter(listed[place + 1 : place + 2]), ""))
        if value and value.isdigit():
            return int(value)
    return None


def _scrubbed(value: Any, scrub: Scrubber) -> Any:
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, list | tuple):
        return [_scrubbed(part, scrub) for part in value]
    return value

"""``python -m pytest_tokenwatt init``: writes a spec, checks that it loads, and says what to do next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from pytest_tokenwatt.commands.cli import CommandParser, guarded, show, tell
from pytest_tokenwatt.errors import UsageError

DEFAULT_OUT = Path("tokenwatt.yaml")


def main(argv: Sequence[str]) -> int:
    """Write a spec; returns the exit code (4: usage, or a server that cannot be asked)."""
    return guarded(lambda: _init(argv, os.environ))


def _init(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    arguments = _parser().parse_args(argv)
    out: Path = arguments.out
    _refuse_existing(out)
    text = _spec(arguments.endpoint, arguments.model, arguments.api_key_env, out, environ)
    problems = _checked(text, out, environ)
    _write(out, text)
    for problem in problems:
        tell(problem)
    show(f"{out} written; edit it, then")
    show(f"next: pytest --tokenwatt-spec={shlex.quote(str(out))} --tokenwatt-plan")
    return 0


def _parser() -> CommandParser:
    about = "Write a commented spec by asking a running server and the NVIDIA driver."
    parser = CommandParser("init", f"{about} Without --endpoint, one that starts `vllm serve`.")
    parser.add_argument("--endpoint", metavar="URL", help="a running server to ask, such as http://127.0.0.1:8000/v1")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, metavar="FILE", help=f"default {DEFAULT_OUT}")
    parser.add_argument("--model", metavar="ID", help="which model, if the server has several; or the one to start")
    parser.add_argument("--api-key-env", metavar="NAME", help="the variable that holds the server's API key")
    return parser


def _spec(endpoint: str | None, model: str | None, key: str | None, out: Path, environ: Mapping[str, str]) -> str:
    from pytest_tokenwatt.commands.boards import list_gpus
    from pytest_tokenwatt.commands.init.server import Question, ask_server
    from pytest_tokenwatt.commands.init.text import Occasion, server_spec, template_spec

    date = f"{datetime.now().astimezone():%Y-%m-%d}"
    if endpoint is None:
        if key is not None:
            raise UsageError("--api-key-env is for a server that is asked", remedy="add --endpoint URL")
        return template_spec(model, Occasion(out, date, list_gpus(), here=True))
    server = ask_server(Question(endpoint, model, key), environ, tell)
    return server_spec(server, Occasion(out, date, list_gpus(), here=server.here))


def _refuse_existing(out: Path) -> None:
    if out.is_dir():
        raise UsageError("is a directory", where=str(out), remedy="name a file with --out")
    if out.exists() or out.is_symlink():
        raise UsageError("exists, and is not overwritten", where=str(out), remedy="name another with --out, or move it")


def _checked(text: str, out: Path, environ: Mapping[str, str]) -> list[str]:
    """What the preflight says of the spec, as it will before a run. Raises ``SpecError`` when it does not even load."""
    from pytest_tokenwatt.commands.preflight import preflight_of
    from pytest_tokenwatt.spec.load import build_spec
    from pytest_tokenwatt.spec.reader import parse_source

    spec = build_spec(parse_source(text, str(out)), out, environ)
    return [f"note: {problem}" for problem in preflight_of(spec)]


def _write(out: Path, text: str) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Created and never opened for writing: what appeared meanwhile is kept, too.
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        _refuse_existing(out)
        raise

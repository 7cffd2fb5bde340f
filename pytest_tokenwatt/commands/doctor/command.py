"""``python -m pytest_tokenwatt doctor``: one line for each thing that a run depends on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pytest_tokenwatt.commands.cli import CommandParser, guarded, show
from pytest_tokenwatt.commands.doctor.check import Check

NOT_READY = 1


def main(argv: Sequence[str]) -> int:
    """Look at everything and say so; returns the exit code (0: all that is needed works, 1: not, 4: usage)."""
    return guarded(lambda: _doctor(argv))


def _doctor(argv: Sequence[str]) -> int:
    spec = _parser().parse_args(argv).spec
    checks = list(_checks(spec, os.environ))
    width = max(len(check.subject) for check in checks)
    for check in checks:
        show(check.line(width))
    show(_conclusion(checks, spec))
    return NOT_READY if any(check.stops for check in checks) else 0


def _parser() -> CommandParser:
    parser = CommandParser("doctor", "What will work on this machine, what will not, and the remedy.")
    parser.add_argument("spec", nargs="?", type=Path, metavar="SPEC", help="also what this spec needs")
    return parser


def _checks(spec: Path | None, environ: Mapping[str, str]) -> Iterator[Check]:
    """Python first: what the others import may be what is missing."""
    from pytest_tokenwatt.commands.doctor.python import check_python

    found = list(check_python(environ))
    yield from found
    if any(check.stops and check.subject != "plugin" for check in found):
        return
    yield from _here(environ)
    if spec is not None:
        from pytest_tokenwatt.commands.doctor.spec import check_spec

        yield from check_spec(spec)


def _here(environ: Mapping[str, str]) -> Iterator[Check]:
    from pytest_tokenwatt.commands.doctor.gpus import check_gpus
    from pytest_tokenwatt.commands.doctor.machine import check_machine
    from pytest_tokenwatt.commands.doctor.sensors import check_sensors
    from pytest_tokenwatt.commands.doctor.surroundings import check_surroundings

    yield from check_machine(Path.cwd())
    yield from check_gpus()
    yield from check_sensors(environ)
    yield from check_surroundings(environ)


def _conclusion(checks: Sequence[Check], spec: Path | None) -> str:
    stopping = list(dict.fromkeys(check.subject for check in checks if check.stops))
    if stopping:
        return f"not ready: {', '.join(stopping)}"
    less = list(dict.fromkeys(check.subject for check in checks if check.state == "missing"))
    without = f", but for {', '.join(less)}" if less else ""
    return f"ready{f' for {spec}' if spec is not None else ''}: all that is needed works{without}"

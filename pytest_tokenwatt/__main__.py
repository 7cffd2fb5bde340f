"""The companion command: ``python -m pytest_tokenwatt SUBCOMMAND``, also the script ``pytest-tokenwatt``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

USAGE_ERROR = 4
USAGE = """usage: python -m pytest_tokenwatt SUBCOMMAND

  init       write a spec by asking a running server and the NVIDIA driver
  doctor     what will work on this machine, what will not, and the remedy
  report     one lab report out of run records
  compare    judge a candidate's record against a baseline's
  suite      write an accuracy suite from GSM8K, lm-eval logs or CSV
  simulate   serve the embedded engine (simulated)
  schema     print the JSON Schema of a spec, or of the lab report

SUBCOMMAND --help tells more. Exit codes: 0 all enforced gates passed, 1 a gate failed (doctor: something that is needed
does not work), 4 usage, 10 inconclusive, 11 invalid.
"""

# Each loads what it needs, and only that, when it is called.


def _init(arguments: Sequence[str]) -> int:
    from pytest_tokenwatt.commands.init.command import main as init

    return init(arguments)


def _doctor(arguments: Sequence[str]) -> int:
    from pytest_tokenwatt.commands.doctor.command import main as doctor

    return doctor(arguments)


def _report(arguments: Sequence[str]) -> int:
    from pytest_tokenwatt.commands.report import main as report

    return report(arguments)


def _compare(arguments: Sequence[str]) -> int:
    from pytest_tokenwatt.commands.compare import main as compare

    return compare(arguments)


def _suite(arguments: Sequence[str]) -> int:
    from pytest_tokenwatt.quality.convert_command import main as suite

    return suite(arguments)


def _simulate(arguments: Sequence[str]) -> int:
    from pytest_tokenwatt.sim.server import main as simulate

    return simulate(arguments)


def _schema(arguments: Sequence[str]) -> int:
    from pytest_tokenwatt.commands.schema import main as schema

    return schema(arguments)


SUBCOMMANDS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "init": _init,
    "doctor": _doctor,
    "report": _report,
    "compare": _compare,
    "suite": _suite,
    "simulate": _simulate,
    "schema": _schema,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code (4: usage)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    run = SUBCOMMANDS.get(arguments[0]) if arguments else None
    if run is not None:
        return run(arguments[1:])
    asked = arguments[:1] in (["-h"], ["--help"])
    (sys.stdout if asked else sys.stderr).write(USAGE if asked else USAGE + _nearest(arguments))
    return 0 if asked else USAGE_ERROR


def _nearest(arguments: Sequence[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(arguments[0], SUBCOMMANDS, 1) if arguments else []
    return f"\nthere is no subcommand {arguments[0]}; did you mean {near[0]}?\n" if near else ""


if __name__ == "__main__":
    sys.exit(main())

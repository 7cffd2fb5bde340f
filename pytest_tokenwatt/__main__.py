"""The companion command: ``python -m pytest_tokenwatt SUBCOMMAND``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence

USAGE_ERROR = 4
USAGE = """usage: python -m pytest_tokenwatt SUBCOMMAND

  simulate   serve the embedded engine (simulated); see simulate --help
  schema     print the JSON Schema of a spec, for editors
  suite      write an accuracy suite from GSM8K, lm-eval logs or CSV; see suite --help
"""


def _simulate(arguments: Sequence[str]) -> int:
    from pytest_tokenwatt.sim.server import main as simulate

    return simulate(arguments)


def _schema(arguments: Sequence[str]) -> int:
    from pytest_tokenwatt.spec.schema import json_schema

    if arguments:
        sys.stderr.write("usage: python -m pytest_tokenwatt schema\n")
        return USAGE_ERROR
    sys.stdout.write(json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n")
    return 0


def _suite(arguments: Sequence[str]) -> int:
    from pytest_tokenwatt.quality.convert_command import main as suite

    return suite(arguments)


SUBCOMMANDS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "simulate": _simulate,
    "schema": _schema,
    "suite": _suite,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code (4: usage)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    run = SUBCOMMANDS.get(arguments[0]) if arguments else None
    if run is not None:
        return run(arguments[1:])
    asked = arguments[:1] in (["-h"], ["--help"])
    (sys.stdout if asked else sys.stderr).write(USAGE)
    return 0 if asked else USAGE_ERROR


if __name__ == "__main__":
    sys.exit(main())

"""The companion command: ``python -m pytest_tokenwatt SUBCOMMAND``."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code (4: usage)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["simulate"]:
        from pytest_tokenwatt.sim.server import main as simulate

        return simulate(arguments[1:])
    sys.stderr.write("usage: python -m pytest_tokenwatt simulate [options]; see simulate --help\n")
    return 4


if __name__ == "__main__":
    sys.exit(main())

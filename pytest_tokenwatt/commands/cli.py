"""What all subcommands share: arguments whose errors are one line, and output that any terminal takes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import NoReturn, TextIO

from pytest_tokenwatt.errors import TokenwattError, UsageError

USAGE_ERROR = 4
_INTERRUPTED = 130
_PROGRAM = "python -m pytest_tokenwatt"


class CommandParser(argparse.ArgumentParser):
    """The parser of one subcommand. A wrong argument raises ``UsageError``."""

    def __init__(self, name: str, about: str) -> None:
        super().__init__(prog=f"{_PROGRAM} {name}", description=about, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise ``UsageError`` in place of argparse's own exit."""
        raise UsageError(message, where=self.prog, remedy=f"see {self.prog} --help")


def guarded(work: Callable[[], int]) -> int:
    """The exit code of ``work``; what a user can mend becomes one line on stderr and the exit code 4."""
    try:
        return work()
    except TokenwattError as error:
        tell(str(error))
    except BrokenPipeError:
        # The reader (head, a pager) has gone; the interpreter's own last flush would complain once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        tell(f"{named}{error.strerror or error}; check the path and its permissions")
    except KeyboardInterrupt:
        tell("interrupted")
        return _INTERRUPTED
    return USAGE_ERROR


def show(text: str) -> None:
    """One line on stdout."""
    _write(sys.stdout, f"{text}\n")


def show_block(text: str) -> None:
    """Whole lines on stdout."""
    _write(sys.stdout, text)


def tell(text: str) -> None:
    """One line on stderr."""
    _write(sys.stderr, f"{text}\n")


def _write(stream: TextIO, text: str) -> None:
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()

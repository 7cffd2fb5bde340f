"""Power from a command of the user's: it prints watts, as a number or in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.programs import run_program
from pytest_tokenwatt.power.source import Reading
from pytest_tokenwatt.power.watts import NO_SOURCE, READ_FAILED, as_missing, reading, shown
from pytest_tokenwatt.records.power import SensorInfo
from pytest_tokenwatt.spec.serving import PowerSource

if TYPE_CHECKING:
    from pytest_tokenwatt.power.sources import SourceContext

TIMEOUT_S = 5.0
"""A command that takes longer is killed with its process group."""


class CommandSource:
    """Runs ``command`` for every sample; its standard output is watts, or JSON that holds them at ``field``.

    ``field`` is a dotted path of keys and list positions: ``power.total``, ``psu.0.watts``. A program that is named
    by a relative path starts at the spec's directory, which is also the working directory. What the command prints to
    standard error is never shown: it may hold secrets.
    """

    source = "command"
    kind = "other"
    refresh_s: float | None = None
    counter_hz: float | None = None

    def __init__(self, settings: PowerSource, context: SourceContext) -> None:
        if settings.command is None:
            raise PowerError(NO_SOURCE, "power.command is missing", remedy="add a command that prints watts")
        self._argv = _anchored(settings.command, context.spec_dir)
        self._field = settings.field
        self._cwd = context.spec_dir
        self._environ = context.environ
        self._name = Path(self._argv[0]).name
        self.label = f"power as printed by {self._name}"

    @property
    def chosen(self) -> str:
        """How the sensor was found."""
        return f"the command {self._name} of the spec"

    @property
    def notes(self) -> tuple[str, ...]:
        """Statements for the report."""
        return ("what this power covers is for the owner of the command to say",)

    def open(self) -> tuple[SensorInfo, ...]:
        """Runs the command once. Raises ``PowerError`` (``no_power_source``) unless it prints watts or a zero."""
        try:
            self._told()
        except PowerError as error:
            raise as_missing(error) from None
        return (SensorInfo(sensor=self._name, name=self._name),)

    def read(self) -> Sequence[Reading]:
        """The watts that the command prints now. Raises ``PowerError`` when it fails, hangs or prints no number."""
        return [reading(self._name, self._told(), self._name)]

    def read_counters(self) -> Mapping[str, float]:
        """Nothing: a command has no energy counter."""
        return {}

    def close(self) -> None:
        """Nothing to give up."""

    def _told(self) -> object:
        done = run_program(self._argv, cwd=self._cwd, env=self._environ, timeout_s=TIMEOUT_S)
        if done.status != 0:
            ended = f"exit status {done.status}" if done.status > 0 else f"signal {-done.status}"
            raise PowerError(READ_FAILED, f"{self._name} failed ({ended})", remedy="run it by hand to see why")
        text = done.stdout.strip()
        return _at(self._field, text, self._name) if self._field else _number(text, self._name)


def _anchored(command: Sequence[str], spec_dir: Path) -> tuple[str, ...]:
    # As a shell does: a word without a slash is looked up in PATH.
    program = str(command[0])
    first = str(spec_dir / Path(program).expanduser()) if "/" in program else program
    return (first, *(str(word) for word in command[1:]))


def _number(text: str, name: str) -> object:
    try:
        # float() also takes 1_000, which no sensor prints.
        return float(text.replace("_", "?"))
    except ValueError:
        what = f"{name} printed {shown(text)}, which is no number of watts"
        raise PowerError(READ_FAILED, what, remedy="let it print one number, or JSON with power.field") from None


def _at(path: str, text: str, name: str) -> object:
    remedy = "compare power.field with what the command prints"
    try:
        told: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise PowerError(READ_FAILED, f"{name} printed {shown(text)}, which is no JSON", remedy=remedy) from None
    for key in path.split("."):
        if isinstance(told, list) and key.isdigit() and int(key) < len(told):
            told = told[int(key)]
        elif isinstance(told, dict) and key in told:
            told = told[key]
        else:
            raise PowerError(READ_FAILED, f"{name} printed JSON without {path}", remedy=remedy)
    return told

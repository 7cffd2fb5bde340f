"""Power of a whole machine through IPMI's DCMI extension, with the program that is installed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.http import password
from pytest_tokenwatt.power.ipmi_tools import FREEIPMI, IPMITOOL, arguments, config_text, told_watts
from pytest_tokenwatt.power.programs import run_program
from pytest_tokenwatt.power.source import Reading
from pytest_tokenwatt.power.watts import NO_SOURCE, as_missing, reading
from pytest_tokenwatt.records.power import SensorInfo
from pytest_tokenwatt.spec.serving import PowerSource

if TYPE_CHECKING:
    from pytest_tokenwatt.power.sources import SourceContext

TIMEOUT_S = 5.0
"""A program that takes longer is killed."""
# The variable that ipmitool looks at.
_PASSWORD_VARIABLE = "IPMI_PASSWORD"


class IpmiSource:
    """Runs ``ipmitool`` or ``ipmi-dcmi`` for every sample: on this machine, or on ``host`` with a user and password.

    The password reaches the program by its environment (ipmitool) or by a file that only this user can read and that
    is removed at the end (ipmi-dcmi), never by an argument, which every user of the machine could see.
    """

    source = "ipmi"
    kind = "node"
    label = "node power (IPMI DCMI)"
    refresh_s: float | None = 60.0
    counter_hz: float | None = None

    def __init__(self, settings: PowerSource, context: SourceContext) -> None:
        self._settings = settings
        self._environ = context.environ
        self._cwd = context.spec_dir
        self._sensor = settings.host or "localhost"
        self._tool = ""
        self._argv: tuple[str, ...] = ()
        self._child_environ: dict[str, str] = {}
        self._config: Path | None = None

    @property
    def chosen(self) -> str:
        """How the sensor was found."""
        return f"DCMI power of {self._sensor}, read with {self._tool}"

    @property
    def notes(self) -> tuple[str, ...]:
        """Statements for the report."""
        return ()

    def open(self) -> tuple[SensorInfo, ...]:
        """The machine. Raises ``PowerError`` (``no_power_source``) without a program or when it cannot read."""
        self._prepare()
        try:
            self.read()
        except PowerError as error:
            raise as_missing(error) from None
        return (SensorInfo(sensor=self._sensor, name=self._sensor),)

    def read(self) -> Sequence[Reading]:
        """The machine's power now. Raises ``PowerError`` when the program fails, hangs or has no reading."""
        done = run_program(self._argv, cwd=self._cwd, env=self._child_environ, timeout_s=TIMEOUT_S)
        return [reading(self._sensor, told_watts(self._tool, done), self._tool)]

    def read_counters(self) -> Mapping[str, float]:
        """Nothing: DCMI has no energy counter."""
        return {}

    def close(self) -> None:
        """Remove the file with the password."""
        if self._config is not None:
            self._config.unlink(missing_ok=True)
            self._config = None

    def _prepare(self) -> None:
        path = self._environ.get("PATH", os.defpath)
        program = shutil.which(IPMITOOL, path=path) or shutil.which(FREEIPMI, path=path)
        if program is None:
            what = f"neither {IPMITOOL} nor {FREEIPMI} is on PATH"
            raise PowerError(NO_SOURCE, what, remedy="install ipmitool, or use power: {source: redfish}")
        self._tool = Path(program).name
        # What the programs print is told apart by English words.
        self._child_environ = {**self._environ, "LC_ALL": "C"}
        host, username = self._settings.host, self._settings.username
        secret = password(self._settings, self._environ) if host else ""
        if secret and self._tool == IPMITOOL:
            self._child_environ[_PASSWORD_VARIABLE] = secret
        elif secret:
            self._config = _private_file(config_text(secret))
        config = str(self._config) if self._config else None
        self._argv = (program, *arguments(self._tool, host, username, config))


def _private_file(text: str) -> Path:
    # mkstemp's files are for their owner only, from the start.
    descriptor, name = tempfile.mkstemp(prefix="tokenwatt-", suffix=".conf")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return Path(name)

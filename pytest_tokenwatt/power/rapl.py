"""Power of processor packages and their memory from Linux's powercap interface (RAPL)."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.source import Reading
from pytest_tokenwatt.power.watts import NO_SOURCE, READ_FAILED, as_missing, missing, reading
from pytest_tokenwatt.records.base import Reason
from pytest_tokenwatt.records.power import SensorInfo
from pytest_tokenwatt.spec.serving import PowerSource

if TYPE_CHECKING:
    from pytest_tokenwatt.power.sources import SourceContext

ROOT = Path("/sys/class/powercap")
_ZONE = re.compile(r"intel-rapl:(\d+)")
_PART = re.compile(r"intel-rapl:(\d+):\d+")
_UJ_PER_J = 1e6
# No package draws so much: a counter that fell by this much was reset, not wrapped around.
_MOST_W = 5000.0
_SHORTEST_S = 0.005


@dataclass(slots=True)
class _Domain:
    """One counter: its energy without wraps (from its first count on), and what the last reading of power saw."""

    sensor: str
    file: Path
    range_uj: int
    last_uj: int
    last_s: float
    total_j: float
    tick_j: float
    tick_s: float


class RaplSource:
    """Processor packages, and the memory beside them; ``psys`` is left out, since it holds the packages once more.

    The counters are unwrapped at ``max_energy_range_uj``. The watts of a reading are the mean since the one before.
    Counters below a package (``core``, ``uncore``) are part of it; ``dram`` is not, and counts on its own.
    """

    source = "rapl"
    kind = "cpu"
    label = "processor package and memory power (RAPL)"
    refresh_s: float | None = None
    counter_hz: float | None = 1.0

    def __init__(self, settings: PowerSource, context: SourceContext, root: Path = ROOT) -> None:  # noqa: ARG002 - all sources alike
        self._root = root
        self._domains: list[_Domain] = []

    @property
    def chosen(self) -> str:
        """How the sensors were found."""
        return f"RAPL domains {', '.join(domain.sensor for domain in self._domains)}"

    @property
    def notes(self) -> tuple[str, ...]:
        """Statements for the report."""
        return ("RAPL covers processors and their memory; GPUs, fans and losses of the supply are not in it",)

    def open(self) -> tuple[SensorInfo, ...]:
        """The domains. Raises ``PowerError`` (``no_power_source``) when there are none or they may not be read."""
        try:
            self._domains = [_open(sensor, folder) for sensor, folder in self._find()]
        except PowerError as error:
            raise as_missing(error) from None
        if not self._domains:
            what = f"there is no RAPL package in {self._root}"
            raise PowerError(NO_SOURCE, what, remedy="load the module intel_rapl_msr; virtual machines have none")
        return tuple(SensorInfo(sensor=domain.sensor, name=domain.sensor) for domain in self._domains)

    def read(self) -> Sequence[Reading]:
        """Mean watts of each domain since the last reading. Raises ``PowerError`` when a counter cannot be read."""
        return [_tick(domain) for domain in self._domains]

    def read_counters(self) -> Mapping[str, float]:
        """Cumulative joules by domain, without wraps. Raises ``PowerError`` when a counter cannot be read."""
        for domain in self._domains:
            _advance(domain)
        return {domain.sensor: domain.total_j for domain in self._domains}

    def close(self) -> None:
        """Nothing to give up."""

    def _find(self) -> list[tuple[str, Path]]:
        # The kernel lists every domain flat: packages as intel-rapl:N, their parts as intel-rapl:N:M.
        names = {folder.name: _name(folder) for folder in sorted(self._root.glob("intel-rapl:*"))}
        packages = {
            match[1]: name
            for folder, name in names.items()
            if (match := _ZONE.fullmatch(folder)) and name.startswith("package")
        }
        found = [(name, self._root / f"intel-rapl:{number}") for number, name in packages.items()]
        for folder, name in names.items():
            match = _PART.fullmatch(folder)
            if match and name == "dram" and match[1] in packages:
                found.append((f"{packages[match[1]]}/dram", self._root / folder))
        return found


def _name(folder: Path) -> str:
    try:
        return (folder / "name").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _open(sensor: str, folder: Path) -> _Domain:
    file = folder / "energy_uj"
    range_uj = _count(folder / "max_energy_range_uj")
    now_uj, now_s = _count(file), time.monotonic()
    total_j = now_uj / _UJ_PER_J
    return _Domain(sensor, file, range_uj, now_uj, now_s, total_j, total_j, now_s)


def _count(file: Path) -> int:
    try:
        return int(file.read_text())
    except PermissionError:
        remedy = "run as root, or let the user read it: sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj"
        raise PowerError(READ_FAILED, f"{file} may not be read", remedy=remedy) from None
    except (OSError, ValueError) as error:
        what = f"{file} holds no count ({type(error).__name__})"
        raise PowerError(READ_FAILED, what, remedy="check the kernel's powercap interface") from None


def _advance(domain: _Domain) -> bool:
    """Take the counter's progress; ``False`` when it was reset, which starts the total anew."""
    now_uj, now_s = _count(domain.file), time.monotonic()
    step_uj = now_uj - domain.last_uj
    passed_s = now_s - domain.last_s
    domain.last_uj, domain.last_s = now_uj, now_s
    if step_uj < 0:
        step_uj += domain.range_uj
        if step_uj < 0 or step_uj / _UJ_PER_J > _MOST_W * max(passed_s, _SHORTEST_S):
            domain.total_j = domain.tick_j = now_uj / _UJ_PER_J
            domain.tick_s = now_s
            return False
    domain.total_j += step_uj / _UJ_PER_J
    return True


def _tick(domain: _Domain) -> Reading:
    if not _advance(domain):
        why = f"the energy counter of {domain.sensor} went back without reaching its range"
        return Reading(domain.sensor, None, problem=Reason("energy_counter_reset", why))
    passed_s = domain.last_s - domain.tick_s
    if passed_s < _SHORTEST_S:
        return missing(domain.sensor, f"the last reading of {domain.sensor} was only {passed_s * 1e3:.1f} ms ago")
    spent_j = domain.total_j - domain.tick_j
    domain.tick_j, domain.tick_s = domain.total_j, domain.last_s
    return reading(domain.sensor, spent_j / passed_s, f"the counter of {domain.sensor}")

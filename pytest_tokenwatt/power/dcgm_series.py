"""The series of dcgm-exporter, put together by GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_tokenwatt.exposition import Sample, parse_exposition
from pytest_tokenwatt.power.http import HttpFailure
from pytest_tokenwatt.power.watts import number
from pytest_tokenwatt.records.power import SensorInfo

POWER = "DCGM_FI_DEV_POWER_USAGE"
COUNTER = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
# The older name and the one since DCGM 4.
_REASONS = ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
_LIMIT = "DCGM_FI_DEV_POWER_MGMT_LIMIT"
_MEMORY = "DCGM_FI_DEV_FB_TOTAL"
_INSTANCE = "GPU_I_ID"
# DCGM's blank for numbers, which stands for "not known" or "not permitted": dcgm_structs.h.
_BLANK = float(1 << 47)
_MIB_PER_GIB = 1024.0


@dataclass(frozen=True, slots=True)
class Board:
    """One GPU: its labels, the latest value of each series, and how many MIG instances it is split into."""

    uuid: str
    labels: Mapping[str, str]
    values: Mapping[str, float] = field(default_factory=dict)
    instances: int = 0

    @property
    def watts(self) -> float | None:
        """Power of the board."""
        return self.values.get(POWER)

    @property
    def energy_mj(self) -> float | None:
        """Cumulative energy in millijoules; a counter that stands at zero does not count."""
        return self.values.get(COUNTER) or None

    @property
    def reasons(self) -> int | None:
        """NVML's bits of clock-event reasons."""
        value = next((self.values[name] for name in _REASONS if name in self.values), None)
        return int(value) if value is not None and value >= 0 else None

    def label(self, name: str) -> str:
        """A label's value, a question mark without one."""
        return self.labels.get(name, "?")

    def fits(self, match: str | Mapping[str, Any]) -> bool:
        """Whether this is meant by a UUID (or the start of one), or by a mapping of labels."""
        if isinstance(match, str):
            return self.uuid.lower().startswith(match.lower())
        return all(self.labels.get(name) == str(value) for name, value in match.items())

    def info(self) -> SensorInfo:
        """What the labels tell of the GPU."""
        memory_mib = self.values.get(_MEMORY)
        return SensorInfo(
            sensor=self.uuid,
            name=self.labels.get("modelName"),
            memory_gib=memory_mib / _MIB_PER_GIB if memory_mib else None,
            limit_w=self.values.get(_LIMIT) or None,
            driver=self.labels.get("DCGM_FI_DRIVER_VERSION"),
            bus_id=self.labels.get("pci_bus_id"),
        )


@dataclass(frozen=True, slots=True)
class Scrape:
    """What the exporters said at one moment: GPUs in order of UUID, and the failures of those that said nothing."""

    boards: tuple[Board, ...]
    failures: tuple[HttpFailure, ...]

    @classmethod
    def parse(cls, texts: Sequence[str], failures: tuple[HttpFailure, ...] = ()) -> Scrape:
        """GPUs with a power series in the Prometheus texts of several hosts."""
        found: dict[str, list[tuple[str, Sample]]] = {}
        for text in texts:
            for uuid, name, sample in _samples(text):
                found.setdefault(uuid, []).append((name, sample))
        boards = [_board(uuid, found[uuid]) for uuid in sorted(found)]
        return cls(tuple(board for board in boards if POWER in board.values), failures)


def _samples(text: str) -> Iterator[tuple[str, str, Sample]]:
    series, _ = parse_exposition(text)
    for name in (POWER, COUNTER, *_REASONS, _LIMIT, _MEMORY):
        for sample in series.get(name, ()):
            uuid = dict(sample.labels).get("UUID")
            if uuid:
                yield uuid, name, sample


def _board(uuid: str, found: Sequence[tuple[str, Sample]]) -> Board:
    """One board of all its series.

    Time-slicing repeats a GPU for every pod, MIG for every instance; each repeats the board's own power, so the first
    one counts, the whole board's before an instance's.
    """
    values: dict[str, float] = {}
    labels: dict[str, str] = {}
    instances = set()
    for name, sample in sorted(found, key=_whole_first):
        told = dict(sample.labels)
        if _INSTANCE in told:
            instances.add(told[_INSTANCE])
        labels = told | labels
        value = number(sample.value)
        if value is not None and value < _BLANK:
            values.setdefault(name, value)
    if any(name == POWER for name, _ in found):
        # A GPU whose power is not known now is still there.
        values.setdefault(POWER, math.nan)
    return Board(uuid, labels, values, len(instances))


def _whole_first(entry: tuple[str, Sample]) -> tuple[str, str, str]:
    name, sample = entry
    told = dict(sample.labels)
    return told.get(_INSTANCE, ""), told.get("pod", ""), name

"""The power samples of ``power-<config>.csv`` as columns again."""

from __future__ import annotations

import csv
import io
import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records.power import REASONS_UNKNOWN
from pytest_tokenwatt.store.power_csv import COLUMNS


@dataclass(frozen=True, slots=True)
class Readings:
    """Samples of one sensor: parallel columns. ``watts`` may be NaN, ``reasons`` are −1 where they were not read."""

    at_s: array[float] = field(default_factory=lambda: array("d"))
    watts: array[float] = field(default_factory=lambda: array("d"))
    reasons: array[int] = field(default_factory=lambda: array("q"))


def read_power(path: Path) -> dict[str, dict[str, Readings]]:
    """By source and sensor, every power sample; readings of energy counters are left out.

    Raises ``UsageError`` when the file cannot be read or is no such file.
    """
    try:
        text = path.read_text(encoding="utf-8")
        return _read(csv.reader(io.StringIO(text)))
    except OSError as error:
        raise UsageError(f"the power readings cannot be read: {error.strerror or error}", where=str(path)) from error
    except (ValueError, csv.Error) as error:
        remedy = "name a power-<config>.csv"
        raise UsageError(f"damaged, or no file of power readings: {error}", where=str(path), remedy=remedy) from error


def _read(rows: Iterable[Sequence[str]]) -> dict[str, dict[str, Readings]]:
    found: dict[str, dict[str, Readings]] = {}
    lines = iter(rows)
    if tuple(next(lines, ())) != COLUMNS:
        raise ValueError("its first line does not name the columns")
    for source, sensor, at_s, _, watts, energy_j, reasons, _ in lines:
        if energy_j:
            continue
        readings = found.setdefault(source, {}).setdefault(sensor, Readings())
        instant = float(at_s)
        if not math.isfinite(instant):
            raise ValueError(f"{at_s!r} is no instant")
        readings.at_s.append(instant)
        readings.watts.append(float(watts) if watts else math.nan)
        readings.reasons.append(int(reasons, 16) if reasons else REASONS_UNKNOWN)
    return found

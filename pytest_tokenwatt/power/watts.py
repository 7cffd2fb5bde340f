"""The one rule of what counts as a reading: a number of watts above zero that something could draw."""

from __future__ import annotations

import math

from pytest_tokenwatt.errors import PowerError
from pytest_tokenwatt.power.source import Reading
from pytest_tokenwatt.power.validity import credible
from pytest_tokenwatt.records.base import Reason

READ_FAILED = "read_failed"
NO_SOURCE = "no_power_source"
_QUOTED = 60


def reading(sensor: str, told: object, said_by: str, *, stamp: float | None = None) -> Reading:
    """What ``said_by`` told as watts: a reading, or none with why: null, zero, negative, absurd, words."""
    watts = number(told)
    if watts is not None and credible(watts):
        return Reading(sensor, watts, stamp=stamp)
    return missing(sensor, f"{said_by} says {shown(told)}, which is no reading of power")


def missing(sensor: str, why: str) -> Reading:
    """No reading of a sensor, and why."""
    return Reading(sensor, None, problem=Reason(READ_FAILED, why))


def number(told: object) -> float | None:
    """A finite number, or a text that is one; ``None`` for everything else."""
    if isinstance(told, bool) or not isinstance(told, int | float | str):
        return None
    try:
        # float() also takes 1_000, which no sensor writes.
        value = float(told) if not isinstance(told, str) or "_" not in told else math.nan
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def shown(told: object) -> str:
    """A foreign value as a message quotes it: short, on one line, null for nothing."""
    text = "null" if told is None else repr(told) if isinstance(told, str) else " ".join(str(told).split())
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"


def as_missing(error: PowerError) -> PowerError:
    """An error of a reading, said of a source that cannot be opened."""
    return PowerError(NO_SOURCE, error.what, remedy=error.remedy)

"""What all records use: reasons, figures and the clock."""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA = "tokenwatt/1"
DEFAULT_SCENARIO = "default"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is invalid, missing or failed: a stable code and a sentence with the figures in it."""

    code: str
    text: str

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"


@dataclass(frozen=True, slots=True)
class ClockAnchor:
    """One simultaneous reading of the monotonic and the wall clock (seconds)."""

    monotonic_s: float
    wall_s: float


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured number: ``value`` is ``None`` when it was not measured, and ``reason`` says why.

    ``error`` is a 95 % half-width, ``low``/``high`` an interval, ``n`` the sample size; each ``None`` if unknown.
    """

    value: float | None
    unit: str
    error: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    reason: str | None = None

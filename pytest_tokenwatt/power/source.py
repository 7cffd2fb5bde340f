"""The seam between the sampler and what it samples: one protocol for GPU boards, BMCs, exporters and commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from pytest_tokenwatt.records.base import Reason
from pytest_tokenwatt.records.power import SensorInfo


@dataclass(frozen=True, slots=True)
class Reading:
    """What one sensor said at one tick.

    ``watts`` is ``None`` where there was no reading to be had (null, 0, N/A, NotSupported …) and ``problem`` then says
    why: its code is ``read_failed``, or a validity reason such as ``gpu_lost``. A problem may stand beside watts
    (``power_limit_changed``, ``foreign_process``). ``reasons`` are NVML's clock-event bits, ``throttle_ns`` the
    driver's cumulative nanoseconds by reason name. ``stamp`` is the sensor's own time stamp if it has one, in any
    unit: equal stamps mean the same reading. ``since_s``: what the problem says may have been so since then (``None``:
    since this reading). ``looked_s``: when the source looked last at what it does not look at for every reading
    (``None``: there is nothing of the kind). Both are instants of ``time.monotonic()``.
    """

    sensor: str
    watts: float | None
    reasons: int | None = None
    throttle_ns: Mapping[str, int] = field(default_factory=dict)
    problem: Reason | None = None
    stamp: float | None = None
    since_s: float | None = None
    looked_s: float | None = None


class PowerSource(Protocol):
    """One place where power is read. All methods are called in the sampler's thread, ``open`` first and once.

    Implementations inherit from nothing. The five properties are known before ``open``.
    """

    # Properties, so that a plain attribute, a constant of the class and a computed value all fit.
    @property
    def source(self) -> str:
        """The spec's name of the source."""
        ...

    @property
    def kind(self) -> str:
        """One of ``board``, ``node``, ``cpu``, ``other``."""
        ...

    @property
    def label(self) -> str:
        """What a report calls it."""
        ...

    @property
    def refresh_s(self) -> float | None:
        """Longest time in s between distinct readings of a live sensor; ``None``: every read is fresh."""
        ...

    @property
    def counter_hz(self) -> float | None:
        """How often ``read_counters`` should be asked; ``None``: there is no energy counter."""
        ...

    def open(self) -> tuple[SensorInfo, ...]:
        """Find the sensors under test. Raises ``PowerError``."""
        ...

    def read(self) -> Sequence[Reading]:
        """One reading of each sensor. Raises ``PowerError`` when nothing at all can be read now."""
        ...

    def read_counters(self) -> Mapping[str, float]:
        """Cumulative joules by sensor; one without a counter is absent. Raises ``PowerError``."""
        ...

    def close(self) -> None:
        """Give up what was opened. Never raises; may follow a failed ``open``."""
        ...

    @property
    def chosen(self) -> str:
        """After ``open``: how the sensors under test were found, in one phrase."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """After ``open``: statements for the report, such as that power is that of a MIG instance's parent."""
        ...


@runtime_checkable
class Watchful(Protocol):
    """A source that looks at some things only now and then, because looking is dear; its readings have ``looked_s``."""

    def look_soon(self) -> None:
        """Look at all of them at the next reading. From any thread."""
        ...

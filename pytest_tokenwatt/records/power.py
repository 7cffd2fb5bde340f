"""Power: what sensors said over time, and what that makes of a window, a configuration and a scenario.

Instants are seconds of ``time.monotonic()``, the clock of the load's windows.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_tokenwatt.records.base import ClockAnchor, Figure, Reason

REASONS_UNKNOWN = -1
"""Entry of ``SensorTrace.reasons`` where the clock-event reasons could not be read."""

REASON_BITS: Mapping[int, str] = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Names of NVML's clock-event reasons (``nvmlClocksEventReasons``) by bit."""

HARMLESS_REASONS = frozenset({"gpu_idle", "applications_clocks_setting", "display_clock_setting"})
"""Reasons that are no throttling."""


@dataclass(frozen=True, slots=True)
class SensorInfo:
    """What one sensor measures: a GPU board, a node, CPU packages. ``sensor`` identifies it (a GPU's UUID).

    ``memory_gib`` (2**30 bytes) and ``bandwidth_tbs`` (10**12 B/s, from the driver's clock and bus width) are those of
    a GPU, ``limit_w`` its enforced power limit. ``None``: not told. ``averaging_s``: a power reading is the mean of the
    seconds before it (1 on most boards since Ampere), 0 that of the instant.
    """

    sensor: str
    name: str | None = None
    memory_gib: float | None = None
    bandwidth_tbs: float | None = None
    limit_w: float | None = None
    driver: str | None = None
    bus_id: str | None = None
    averaging_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SensorTrace:
    """All readings of one sensor: two groups of parallel arrays, each ascending in time.

    ``power_s``, ``watts``, ``reasons``: the samples (``watts`` is NaN and ``reasons`` is −1 where there was none to be
    had). ``throttle_ns`` maps a reason to its cumulative nanoseconds, parallel to ``power_s`` (−1: not read).
    ``counter_s``, ``counter_j``: readings of the cumulative energy counter, empty without one. ``stamps`` are the
    sensor's own time stamps, parallel to ``power_s`` (NaN: none told); equal ones mean the same reading.
    """

    info: SensorInfo
    power_s: array[float] = field(default_factory=lambda: array("d"))
    watts: array[float] = field(default_factory=lambda: array("d"))
    reasons: array[int] = field(default_factory=lambda: array("q"))
    throttle_ns: Mapping[str, array[int]] = field(default_factory=dict)
    counter_s: array[float] = field(default_factory=lambda: array("d"))
    counter_j: array[float] = field(default_factory=lambda: array("d"))
    stamps: array[float] = field(default_factory=lambda: array("d"))


@dataclass(frozen=True, slots=True)
class PowerEvent:
    """Something that a source noticed; ``sensor`` is ``None`` when it concerns all of them.

    ``at_s`` is when it was noticed or, where a source looks only now and then, the last look at which it was not so.

    ``reason.code`` is one of the validity reasons (``gpu_lost``, ``foreign_process``, ``power_limit_changed`` …) or
    ``read_failed`` for a sample that could not be had, which only matters where the samples then do not suffice.
    One that was noticed again and again is one event that lasts until ``until_s`` (``None``: noticed once).
    """

    at_s: float
    sensor: str | None
    reason: Reason
    until_s: float | None = None

    @property
    def last_s(self) -> float:
        """When it was noticed last."""
        return self.at_s if self.until_s is None else self.until_s


@dataclass(frozen=True, slots=True)
class PowerTrace:
    """What one source gave from its start on.

    ``kind`` is ``board`` (GPU boards), ``node`` (whole machines), ``cpu`` (processor packages) or ``other`` (whatever
    a command reads); ``label`` says it in a report's words. ``refresh_s`` is the longest time that the sensor may need
    between two distinct readings (``None``: every reading is fresh). ``lateness_ms`` has one entry a tick: how long
    after its deadline the reading was complete. ``missed`` counts ticks that passed during an earlier reading.
    """

    source: str
    kind: str
    label: str
    sampling_hz: float
    refresh_s: float | None
    sensors: tuple[SensorTrace, ...]
    lateness_ms: array[float]
    missed: int
    events: tuple[PowerEvent, ...]
    anchor: ClockAnchor


@dataclass(frozen=True, slots=True)
class WindowPower:
    """The energy of one source over one window, over all of its sensors.

    ``energy_j`` is ``None`` when ``invalid`` is not empty. ``method`` is ``energy_counter``, ``trapezoid`` or, when
    sensors differ, ``mixed``; ``cross_check_j`` is what the other method gives (``None``: it cannot be had).
    ``throttle_counts`` counts samples with each throttle reason set, of ``throttle_samples`` in all; without any
    sample of the reasons they are ``None`` and 0. ``throttle_s`` has seconds from the driver's own counters.
    ``sensors`` is how many there are, 0 when none answered.
    """

    source: str
    kind: str
    energy_j: float | None
    method: str | None
    cross_check_j: float | None
    samples: int
    throttle_counts: Mapping[str, int] | None
    throttle_samples: int
    throttle_s: Mapping[str, float]
    invalid: tuple[Reason, ...]
    notes: tuple[str, ...] = ()
    sensors: int = 0


@dataclass(frozen=True, slots=True)
class EnergyRecord:
    """Energy of one scenario over its confirming windows, from the first source of the spec.

    Figures are ``None`` when ``invalid`` is not empty. ``tokens_per_joule`` counts the tokens of requests within the
    SLO, ``output_tokens_per_joule`` all that were delivered. ``variance_band_pct`` is the spread of tokens per joule
    over the repeats. ``gpu_share_pct`` is board energy over node energy when both were measured. ``sensors`` is how
    many there are. ``methods`` are those by which windows were read, in a record from elsewhere that has none.
    """

    source: str
    kind: str
    sensors: int
    energy_j: float | None
    node_power_kw: float | None
    tokens_per_joule: float | None
    output_tokens_per_joule: float | None
    variance_band_pct: float | None
    throttle_counts: Mapping[str, int] | None
    throttle_samples: int
    throttle_s: Mapping[str, float]
    gpu_share_pct: float | None
    invalid: tuple[Reason, ...]
    notes: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PowerRecord:
    """One source on one configuration: what it reads, how well it kept its pace, and idle power.

    ``chosen`` says how the sensors under test were found. ``idle_w`` is the power of all sensors with the model loaded
    and no request. ``ticks`` were due, ``missed`` of them passed during an earlier reading, ``failed`` gave nothing.
    ``file`` holds the samples. ``counted`` is false in a record from elsewhere that does not say how often it was read.
    """

    source: str
    kind: str
    label: str
    sampling_hz: float
    sensors: tuple[SensorInfo, ...]
    chosen: str
    idle_w: Figure
    ticks: int
    missed: int
    failed: int
    lateness_p99_ms: float | None
    invalid: tuple[Reason, ...]
    notes: tuple[str, ...] = ()
    file: str | None = None
    counted: bool = True

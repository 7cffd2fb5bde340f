"""What the figures of a report are drawn from beside the report itself: plain values, raw samples included."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LatencyPoint:
    """A percentile of a window in ms. ``infinite``: it falls on a failed request, and ``value_ms`` is ``None``."""

    value_ms: float | None
    infinite: bool = False


@dataclass(frozen=True, slots=True)
class Probe:
    """One judged window of load at ``rate_rps``.

    ``state`` is ``pass``, ``fail`` or ``invalid``; ``why`` says in one line what broke. ``latencies`` are by name
    (``ttft_p99_ms``). ``start_s`` and ``end_s`` are of the same monotonic clock as the power series.
    """

    label: str
    kind: str
    rate_rps: float
    state: str
    start_s: float
    end_s: float
    latencies: Mapping[str, LatencyPoint] = field(default_factory=dict)
    goodput_tok_s: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Bound:
    """One promise of an SLO: ``metric`` (ttft, tpot, itl, e2e) at ``percentile`` at most ``bound_ms``."""

    metric: str
    percentile: float
    bound_ms: float


@dataclass(frozen=True, slots=True)
class PercentileRow:
    """A percentile at the goodput rate with its 95 % interval in ms, of ``n`` samples; ``None``: not known."""

    metric: str
    percentile: float
    point: LatencyPoint
    low_ms: float | None
    high_ms: float | None
    n: int
    bound_ms: float | None = None


@dataclass(frozen=True, slots=True)
class LatencySample:
    """Latencies of single requests in ms; ``failed`` further ones never answered. ``open`` ones were left out."""

    values_ms: array[float]
    failed: int = 0
    open: int = 0

    @property
    def n(self) -> int:
        """Requests that count, failed ones included."""
        return len(self.values_ms) + self.failed


@dataclass(frozen=True, slots=True)
class Serving:
    """One scenario on one configuration.

    ``samples`` are by metric (``ttft``, ``tpot``) of the windows that the figures are of; empty where the requests are
    not stored, and then ``no_samples`` says why.
    """

    config: str
    scenario: str
    slo: tuple[Bound, ...] = ()
    probes: tuple[Probe, ...] = ()
    percentiles: tuple[PercentileRow, ...] = ()
    samples: Mapping[str, LatencySample] = field(default_factory=dict)
    no_samples: str = ""


@dataclass(frozen=True, slots=True)
class SensorSeries:
    """Power readings of one sensor: parallel arrays of seconds (monotonic) and watts, ascending in time.

    ``throttles`` maps a throttle reason to the instants at which it was set.
    """

    sensor: str
    at_s: array[float]
    watts: array[float]
    throttles: Mapping[str, array[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PowerSeries:
    """One source on one configuration. ``limit_w`` and ``idle_w`` are sums over its sensors; ``None``: not known."""

    config: str
    source: str
    label: str
    sampling_hz: float
    sensors: tuple[SensorSeries, ...]
    limit_w: float | None = None
    idle_w: float | None = None


@dataclass(frozen=True, slots=True)
class GateWords:
    """How the terminal's table words a gate: its value with interval, and its rule."""

    value: str
    rule: str


@dataclass(frozen=True, slots=True)
class Material:
    """All of a run that its report does not hold. Every part may be empty; figures without data are left out.

    ``missing`` are lines that say why something stored could not be read.
    """

    serving: tuple[Serving, ...] = ()
    power: tuple[PowerSeries, ...] = ()
    gates: Mapping[str, GateWords] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

"""What was found of latency and goodput: percentiles, windows, scenarios."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_tokenwatt.records.base import Figure, Reason
from pytest_tokenwatt.records.power import EnergyRecord, WindowPower


@dataclass(frozen=True, slots=True)
class SloBound:
    """One promise: ``metric`` (ttft, tpot, itl, e2e) at ``percentile`` (0-100) at most ``bound_ms``."""

    metric: str
    percentile: float
    bound_ms: float

    @property
    def name(self) -> str:
        """The key in a spec, such as ``ttft_p99_ms``."""
        return f"{self.metric}_p{self.percentile:g}_ms"


@dataclass(frozen=True, slots=True)
class Percentile:
    """A nearest-rank percentile of a latency in ms with its distribution-free 95 % interval.

    ``value_ms`` is ``None`` with ``infinite`` true when the rank falls on a failed request. ``high_ms`` is ``None``
    when the sample is too small for a finite upper end. ``bound_ms`` is ``None`` when no SLO asks for it.
    """

    metric: str
    percentile: float
    value_ms: float | None
    infinite: bool
    n: int
    low_ms: float | None
    high_ms: float | None
    bound_ms: float | None = None

    @property
    def name(self) -> str:
        """The figure's name, such as ``ttft_p99_ms``."""
        return f"{self.metric}_p{self.percentile:g}_ms"

    @property
    def met(self) -> bool:
        """Whether the bound holds (true without one)."""
        return self.bound_ms is None or (self.value_ms is not None and self.value_ms <= self.bound_ms)


@dataclass(frozen=True, slots=True)
class ClientHealth:
    """What the client did to the measurement in one window (``measurement`` §8); ``None``: not known."""

    lag_p99_ms: float | None
    lag_limit_ms: float
    cpu_share_max: float | None
    sent: int
    offered: int
    length_off: int
    finished: int
    usage_missing: int
    prompt_tokens: int
    cached_tokens: int | None
    dispersion: float | None
    capped: int


@dataclass(frozen=True, slots=True)
class WindowResult:
    """One judged window. Counts are requests *scheduled* in it, tokens are those *delivered* in it.

    ``passes`` is the SLO verdict and says nothing when ``invalid`` is not empty. ``misses`` says what broke.
    Latencies of windows that were decided early are of what was known then (``decided`` says why it stopped).
    ``power`` has one entry for each source of the spec; empty where nothing was sampled.
    """

    kind: str
    label: str
    rate_rps: float
    start_s: float
    end_s: float
    planned: int
    ok: int
    failures: Mapping[str, int]
    failure_example: str | None
    percentiles: tuple[Percentile, ...]
    stable: bool
    waiting_growth: float | None
    output_tokens: int
    good_tokens: int
    output_tok_s: float | None
    goodput_tok_s: float | None
    passes: bool
    misses: tuple[str, ...]
    decided: str
    invalid: tuple[Reason, ...]
    client: ClientHealth
    requests_file: str | None = None
    power: tuple[WindowPower, ...] = ()

    @property
    def undecided(self) -> str | None:
        """Why nothing is known of it, if so: the load ended when another window of the run had failed."""
        return None if self.passes or self.misses or self.invalid else "cut short: the rate had failed already"


@dataclass(frozen=True, slots=True)
class GoodputRecord:
    """The outcome of one scenario on one configuration.

    ``rate_rps`` and ``goodput_tok_s`` are ``None`` when no rate passed all repeats (then ``misses`` says why) or the
    measurement is ``invalid``. ``lowest_failing_rps`` is ``None`` with an open bracket or fixed rates.
    ``slo_pass_count`` is ``None`` only in a record from elsewhere, that does not state it.
    ``figures`` holds every number that a rule may name (``ttft_p50_ms``, ``output_tok_s``, ``server:…``).
    ``load_sha256`` is the hash of the workload and SLO; records with another one are not compared (``None``: unknown).
    ``energy`` is ``None`` where the spec asks for no power.
    """

    scenario: str
    mode: str
    slo: tuple[SloBound, ...]
    rate_rps: float | None
    goodput_tok_s: float | None
    output_tok_s: float | None
    percentiles: tuple[Percentile, ...]
    slo_pass_count: int | None
    repeats: int
    highest_passing_rps: float | None
    lowest_failing_rps: float | None
    bracket: str
    backoffs: int
    error_pct: float | None
    variance_band_pct: float | None
    misses: tuple[str, ...]
    invalid: tuple[Reason, ...]
    notes: tuple[str, ...]
    windows: tuple[WindowResult, ...]
    figures: Mapping[str, Figure]
    load_sha256: str | None = None
    energy: EnergyRecord | None = None

    @property
    def confirmed(self) -> bool:
        """Whether a rate passed, of which a record from elsewhere may have the goodput alone."""
        return self.rate_rps is not None or self.goodput_tok_s is not None

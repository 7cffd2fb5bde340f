"""The vocabulary that all layers share: plain frozen records, and the protocols of the seams.

Standard library only. Instants (``…_s`` fields named ``start_s``, ``sent_s`` …) are seconds of
``time.monotonic()``, which all processes of one machine share; ``ClockAnchor`` ties them to the wall clock.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

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


# --- load ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Schedule:
    """Requests laid out before they are sent: parallel arrays, one entry a request.

    ``offset_s`` (``array('d')``, ascending) counts from the schedule's own start; lengths are tokens (``array('q')``).
    ``prompt_key`` seeds the prompts: request i's prompt depends on (prompt_key, i) only and is unique.
    """

    offset_s: array[float]
    input_tokens: array[int]
    output_tokens: array[int]
    prompt_key: int

    def __len__(self) -> int:
        return len(self.offset_s)


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """One unbroken stretch of open-loop load at one rate: warm-up, then ``windows`` windows back to back, then a tail.

    The warm-up schedule spans ``warmup_max_s`` and is cut when the load is level. The measured schedule starts at that
    instant; window k spans [k, k + 1) · ``window_s`` of it, and what lies behind the last window is the tail that
    keeps the load up until the verdict of every window is certain.
    """

    label: str
    rate_rps: float
    warmup: Schedule
    measured: Schedule
    warmup_s: float
    warmup_max_s: float
    window_s: float
    windows: int
    request_timeout_s: float
    max_concurrency: int


@dataclass(frozen=True, slots=True)
class Target:
    """Where and how requests are sent. ``headers`` may hold secrets: never written anywhere, never in a repr."""

    endpoint: str
    model: str
    api: str = "completions"
    prompt: str = "ids"
    vocab_size: int = 0
    special_ids: frozenset[int] = frozenset()
    ignore_eos: bool = True
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: str | None = None
    verify_tls: bool = True
    content_file: str | None = None
    """A text file to cut prompts from (``workload.content``); ``None``: random token ids."""


class ErrorClass(StrEnum):
    """How a request failed; a failed request is +inf in every latency."""

    CONNECT = "connect"
    PORTS_EXHAUSTED = "ports_exhausted"
    HTTP = "http_status"
    STREAM_ERROR = "stream_error"
    TRUNCATED = "stream_truncated"
    PROTOCOL = "protocol"
    TIMEOUT = "timeout"
    ABORTED = "aborted"
    NO_TOKENS = "no_tokens"


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """All that is known of one request. Instants are ``None`` when they did not happen.

    ``index`` is the position in its schedule (``phase`` says which). ``chunk_s`` / ``chunk_tokens`` are parallel:
    receipt stamp of each chunk that carried tokens and how many. ``output_tokens`` is the server's count (usage).
    ``ABORTED`` is our own abort after the verdict was certain, not a failure of the server.
    """

    phase: str
    index: int
    scheduled_s: float
    planned_input_tokens: int
    planned_output_tokens: int
    sent_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    end_s: float | None = None
    chunk_s: array[float] = field(default_factory=lambda: array("d"))
    chunk_tokens: array[int] = field(default_factory=lambda: array("q"))
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    tokens_estimated: bool = False
    finish_reason: str | None = None
    status: int | None = None
    error: ErrorClass | None = None
    error_message: str | None = None
    bytes_received: int = 0
    connection_reused: bool = False

    @property
    def ok(self) -> bool:
        """Whether the stream came to its proper end with at least one token."""
        return self.error is None and self.end_s is not None and self.first_token_s is not None


@dataclass(frozen=True, slots=True)
class RequestProgress:
    """What is known of one request while the load runs; ``tokens`` counts all received so far."""

    index: int
    scheduled_s: float
    sent_s: float | None
    first_token_s: float | None
    first_tokens: int
    last_token_s: float | None
    tokens: int
    ended: bool
    error: ErrorClass | None


@dataclass(frozen=True, slots=True)
class WindowSpan:
    """[start_s, end_s) of one window on the monotonic clock."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """Length in seconds."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class InFlight:
    """A reading of the load's state: requests sent and not ended, and scheduled without a first token yet."""

    at_s: float
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class WorkerTrace:
    """CPU seconds used by one load worker over time (parallel sequences); ``error`` names what ended it early."""

    worker: int
    at_s: tuple[float, ...]
    cpu_s: tuple[float, ...]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What a watch wants: go on, or stop because ``why``; ``abort`` cancels what is in flight."""

    stop: bool = False
    why: str = ""
    abort: bool = False


CONTINUE = Decision()


class LoadWatch(Protocol):
    """Looks at a running load about once a second and decides; supplied by the lab, so that load knows no SLO."""

    def level(self, now_s: float, in_flight: Sequence[InFlight]) -> bool:
        """Whether the warm-up may end (asked from ``warmup_s`` on)."""
        ...

    def decide(self, now_s: float, spans: Sequence[WindowSpan], requests: Sequence[RequestProgress]) -> Decision:
        """Go on or stop; ``requests`` are the measured ones scheduled up to now, tail included, in index order."""
        ...


@dataclass(frozen=True, slots=True)
class LoadRun:
    """What one stretch of load gave: the spans of its windows and every request that belongs to it.

    ``requests`` holds warm-up (phase ``warmup``) and measured ones (phase ``measured``; those behind the last window
    are the tail). ``capped`` counts sends that ``max_concurrency`` delayed. ``stop`` is the watch's reason or the
    generator's own (``deadline``, ``engine_died``). ``warm_level`` is false when the warm-up ran into its maximum.
    """

    plan: LoadPlan
    spans: tuple[WindowSpan, ...]
    requests: tuple[RequestRecord, ...]
    in_flight: tuple[InFlight, ...]
    workers: tuple[WorkerTrace, ...]
    stop: str
    warm_level: bool
    capped: int
    anchor: ClockAnchor
    started_s: float
    ended_s: float


class Loader(Protocol):
    """Offers load by a plan; the HTTP load generator and the stepped model of the embedded engine both do."""

    def run(self, plan: LoadPlan, watch: LoadWatch) -> LoadRun:
        """Run the plan until the watch stops it. Raises ``LoadError`` when the generator itself fails."""
        ...


# --- figures ------------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True, slots=True)
class GoodputRecord:
    """The outcome of one scenario on one configuration.

    ``rate_rps`` and ``goodput_tok_s`` are ``None`` when no rate passed all repeats (then ``misses`` says why) or the
    measurement is ``invalid``. ``lowest_failing_rps`` is ``None`` with an open bracket or fixed rates.
    ``figures`` holds every number that a rule may name (``ttft_p50_ms``, ``output_tok_s``, ``server:…``).
    ``load_sha256`` is the hash of the workload and SLO; records with another one are not compared (``None``: unknown).
    """

    scenario: str
    mode: str
    slo: tuple[SloBound, ...]
    rate_rps: float | None
    goodput_tok_s: float | None
    output_tok_s: float | None
    percentiles: tuple[Percentile, ...]
    slo_pass_count: int
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


# --- engine -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServedIdentity:
    """What a running engine says of itself; every field ``None`` or empty when it does not say.

    ``cache_config`` are the labels of ``vllm:cache_config_info``. ``start_args`` are the start-up arguments as the
    engine tells them. ``simulated`` is true for the embedded engine and makes every report say so.
    """

    model_ids: tuple[str, ...]
    version: str | None = None
    root: str | None = None
    max_model_len: int | None = None
    cache_config: Mapping[str, str] = field(default_factory=dict)
    start_args: Mapping[str, str] = field(default_factory=dict)
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """One contract probe: ``state`` is ``pass``, ``missing`` or ``wrong``; ``cost`` is what a report loses by it."""

    name: str
    required: bool
    state: str
    detail: str
    cost: str = ""


@dataclass(frozen=True, slots=True)
class Contract:
    """The probes that an engine answered before it was measured."""

    probes: tuple[ProbeOutcome, ...]

    @property
    def passed(self) -> bool:
        """Whether all required probes passed."""
        return all(probe.state == "pass" for probe in self.probes if probe.required)


@dataclass(frozen=True, slots=True)
class Reply:
    """A completion: ``token_ids`` is ``None`` when the server does not return ids."""

    text: str
    finish_reason: str | None
    prompt_tokens: int | None
    output_tokens: int | None
    token_ids: tuple[int, ...] | None
    raw: Mapping[str, Any] = field(repr=False, default_factory=dict)


class Client(Protocol):
    """The control-plane client of a running engine; not for timed load."""

    async def complete(self, prompt: str | Sequence[int], *, max_tokens: int = 16, **sampling: Any) -> Reply:
        """``/v1/completions`` without streaming. Raises ``EngineError`` on any HTTP error."""
        ...

    async def chat(self, messages: Sequence[Mapping[str, Any]], *, max_tokens: int = 16, **sampling: Any) -> Reply:
        """``/v1/chat/completions`` without streaming. Raises ``EngineError`` on any HTTP error."""
        ...


# --- configuration and verdicts -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """All that one session measured of one configuration; stored as ``record-<key>.json``.

    ``invalid`` holds reasons that make every measurement of the configuration unusable (a failed start, another
    model, a contract that was not met).
    ``minutes`` maps phase names to their wall-clock minutes. ``spec`` is the spec as written, variables unexpanded, so
    that a replay can judge by its limits.
    """

    key: str
    role: str
    label: str
    like: str | None
    identity: ServedIdentity | None
    fingerprint: str | None
    contract: Contract | None
    scenarios: Mapping[str, GoodputRecord]
    invalid: tuple[Reason, ...]
    not_covered: tuple[str, ...]
    launch: Mapping[str, Any]
    minutes: Mapping[str, float]
    files: tuple[str, ...] = ()
    spec: Mapping[str, Any] = field(default_factory=dict)
    schema: str = SCHEMA


class Verdict(StrEnum):
    """The four outcomes of a gate, and ``-`` for an informational one."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    INVALID = "invalid"
    INFO = "-"


@dataclass(frozen=True, slots=True)
class GateSpec:
    """A gate that will be judged: what the collector turns into a test item.

    ``gate`` is the id without the configuration (``slo``, ``slo[rag]``, ``rule[ttft-p50]``), ``kind`` the part before
    the bracket, ``param`` the part inside. ``needs`` names the measurement (``contract``, ``goodput``) or is ``later``
    for blocks that this version does not measure yet. ``line`` is the line of the spec that asks for it.
    """

    config: str
    gate: str
    kind: str
    param: str | None
    scenario: str | None
    needs: str
    mode: str
    on_inconclusive: str
    line: int | None
    limits: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GateResult:
    """A judged gate: one entry of the report's ``gates`` list.

    ``text`` and ``rule`` are the readable value and bound of the table; ``reasons`` explain anything but a pass.
    """

    id: str
    config: str
    gate: str
    value: float | None
    unit: str | None
    limit: float | None
    error: float | None
    verdict: Verdict
    mode: str
    reasons: tuple[Reason, ...]
    text: str
    rule: str
    on_inconclusive: str = "fail"
    line: int | None = None

"""Load: its plan, its requests, and the protocols of who offers and who watches it."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from pytest_tokenwatt.records.base import ClockAnchor


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
    kept: frozenset[int] = frozenset()
    """Indices of measured requests whose token ids are kept."""


@dataclass(frozen=True, slots=True)
class ClosedPlan:
    """One unbroken stretch of closed-loop load: ``concurrency`` requests are in flight at every moment.

    All requests have the same lengths. The first ``warmup`` of them warm up, the next ``requests`` are measured, and
    further ones keep the load up until the last measured one has ended. With ``at_once`` the measured ones are sent
    together behind the warm-up's end, and nothing follows. Request i's prompt depends on (``prompt_key``, i) only.
    ``kept`` are indices, from the first measured request on, whose token ids are kept. The run is given up when more
    than ``max_failures`` requests have failed.
    """

    label: str
    concurrency: int
    warmup: int
    requests: int
    input_tokens: int
    output_tokens: int
    prompt_key: int
    request_timeout_s: float
    max_failures: int
    kept: frozenset[int] = frozenset()
    at_once: bool = False


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
    prompt_ids: array[int] | None = None
    """The prompt as the server echoed it; only of requests whose ids are kept."""
    output_ids: array[int] | None = None
    """What was served; only of requests whose ids are kept, ``None`` when the server told none."""

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


@dataclass(frozen=True, slots=True)
class ClosedRun:
    """What one stretch of closed-loop load gave.

    ``requests`` have the phases ``warmup``, ``measured`` (indices from 0) and ``tail``. ``span`` reaches from the first
    measured request's sending to the last one's end, ``None`` when the run was stopped before. ``stop`` is ``done``,
    the watch's reason, or the generator's own (``too_many_failures``, ``engine_died``, ``deadline``).
    """

    plan: ClosedPlan
    span: WindowSpan | None
    requests: tuple[RequestRecord, ...]
    workers: tuple[WorkerTrace, ...]
    stop: str
    anchor: ClockAnchor
    started_s: float
    ended_s: float


class ClosedWatch(Protocol):
    """Looks at a running closed loop about four times a second."""

    def __call__(self, now_s: float, ended: int, in_flight: int) -> str | None:
        """A reason to stop, else ``None``; ``ended`` counts measured requests that came to their end."""
        ...


class ClosedLoader(Protocol):
    """Offers closed-loop load; the HTTP load generator does."""

    def run_closed(self, plan: ClosedPlan, watch: ClosedWatch) -> ClosedRun:
        """Run the plan to its end or until the watch stops it. Raises ``LoadError`` when the generator itself fails."""
        ...


class Loader(Protocol):
    """Offers load by a plan; the HTTP load generator and the stepped model of the embedded engine both do."""

    def run(self, plan: LoadPlan, watch: LoadWatch) -> LoadRun:
        """Run the plan until the watch stops it. Raises ``LoadError`` when the generator itself fails."""
        ...

"""A loader that is watched: progress for the reader, the engine's counters at window edges, the time budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_tokenwatt.engine.metrics import ServerMetrics
from pytest_tokenwatt.errors import LoadError
from pytest_tokenwatt.metrics.client import PrefixTokens
from pytest_tokenwatt.records import (
    CONTINUE,
    Decision,
    InFlight,
    Loader,
    LoadPlan,
    LoadRun,
    LoadWatch,
    RequestProgress,
    WindowSpan,
)

PROGRESS_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class EdgeMetrics:
    """The engine's metrics at the start of the first window and behind the end of the last one, with their instants."""

    before: ServerMetrics | None = None
    after: ServerMetrics | None = None
    before_s: float = 0.0
    after_s: float = 0.0

    @property
    def seconds(self) -> float:
        """Between the two readings."""
        return self.after_s - self.before_s


def prefix_growth(grown: Mapping[str, float | None]) -> PrefixTokens | None:
    """Growth of the prefix cache's counters out of that of all; ``None`` when the engine has none or reset them."""
    hits, queries = grown.get("vllm:prefix_cache_hits_total"), grown.get("vllm:prefix_cache_queries_total")
    return None if hits is None or queries is None else PrefixTokens(hits=hits, queries=queries)


@dataclass(slots=True)
class Deadline:
    """The time budget of a run, whatever number of specs it has: ``minutes`` from ``start`` on; ``None``: no limit."""

    minutes: float | None = None
    at_s: float | None = None

    def start(self) -> None:
        """Begin to count, unless that is done."""
        if self.at_s is None and self.minutes is not None:
            self.at_s = time.monotonic() + 60.0 * self.minutes

    def check(self) -> None:
        """Raise ``LoadError`` with the reason ``time_budget`` when the budget is used up."""
        if self.at_s is not None and time.monotonic() > self.at_s:
            raise LoadError(
                "time_budget",
                f"the time budget of {self.minutes:g} minutes is used up",
                remedy="raise --tokenwatt-max-minutes or measure fewer configurations",
            )


@dataclass(slots=True)
class Narrator:
    """Says every ten seconds where a load stands, under ``label``."""

    label: str
    say: Callable[[str], None]
    said_s: float = field(default_factory=time.monotonic)

    def tell(self, now_s: float, text: Callable[[], str]) -> None:
        """Say ``text`` if it is time."""
        if now_s - self.said_s >= PROGRESS_EVERY_S:
            self.said_s = now_s
            self.say(f"{self.label}: {text()}")


class _ObservedWatch:
    """Passes the questions on to the real watch and looks on."""

    def __init__(
        self, watch: LoadWatch, narrator: Narrator, read_metrics: Callable[[], ServerMetrics | None], hold_s: float
    ) -> None:
        self._watch = watch
        self._narrator = narrator
        self._read_metrics = read_metrics
        self._hold_s = hold_s
        self.edges = EdgeMetrics()

    def level(self, now_s: float, in_flight: Sequence[InFlight]) -> bool:
        running = in_flight[-1].running if in_flight else 0
        self._narrator.tell(now_s, lambda: f"warming up, {running} requests in flight")
        return self._watch.level(now_s, in_flight)

    def decide(self, now_s: float, spans: Sequence[WindowSpan], requests: Sequence[RequestProgress]) -> Decision:
        self._read_edges(now_s, spans)
        self._narrator.tell(now_s, lambda: _position(now_s, spans, requests))
        decision = self._watch.decide(now_s, spans, requests)
        if decision.stop and not decision.abort and 0 <= now_s - spans[-1].end_s < self._hold_s:
            return CONTINUE
        if decision.stop and self.edges.after is None and self.edges.before is not None:
            self._read_after()
        return decision

    def _read_edges(self, now_s: float, spans: Sequence[WindowSpan]) -> None:
        if self.edges.before is None and now_s >= spans[0].start_s:
            asked_s = time.monotonic()
            read = self._read_metrics()
            self.edges = EdgeMetrics(before=read, before_s=(asked_s + time.monotonic()) / 2)
        elif self.edges.after is None and now_s >= spans[-1].end_s:
            self._read_after()

    def _read_after(self) -> None:
        asked_s = time.monotonic()
        read = self._read_metrics()
        self.edges = replace(self.edges, after=read, after_s=(asked_s + time.monotonic()) / 2)


def _position(now_s: float, spans: Sequence[WindowSpan], requests: Sequence[RequestProgress]) -> str:
    running = sum(1 for request in requests if request.sent_s is not None and not request.ended)
    for number, span in enumerate(spans, start=1):
        if now_s < span.end_s:
            place = f"window {number} of {len(spans)}, {now_s - span.start_s:.0f} of {span.length_s:.0f} s"
            return f"{place}, {running} requests in flight"
    return f"{running} requests left to finish"


class ObservedLoader:
    """A ``Loader`` around another one; keeps the last run's ``edges`` and refuses to start behind the deadline.

    The load of a window that passed goes on for ``hold_s`` seconds behind it, so that sensors which average over the
    past, and samples at both edges, see nothing but load.
    """

    def __init__(
        self,
        loader: Loader,
        *,
        name: str,
        say: Callable[[str], None],
        read_metrics: Callable[[], ServerMetrics | None],
        deadline: Deadline,
        hold_s: float = 0.0,
    ) -> None:
        self._loader = loader
        self._name = name
        self._say = say
        self._read_metrics = read_metrics
        self._deadline = deadline
        self._hold_s = hold_s
        self.edges = EdgeMetrics()

    def run(self, plan: LoadPlan, watch: LoadWatch) -> LoadRun:
        """Run the plan on the inner loader. Raises ``LoadError`` when it fails or the time is used up."""
        self._deadline.check()
        narrator = Narrator(f"{self._name} {plan.label} at {plan.rate_rps:.3g} req/s", self._say)
        observed = _ObservedWatch(watch, narrator, self._read_metrics, self._hold_s)
        try:
            run = self._loader.run(plan, observed)
        except LoadError as error:
            self._say(f"{narrator.label}: {error}")
            raise
        self.edges = observed.edges
        return run

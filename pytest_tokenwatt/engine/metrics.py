"""What an engine's Prometheus endpoint said at one moment, and how its counters grew between two."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_tokenwatt.exposition import Labels, Sample, parse_exposition

_COUNTER_SUFFIXES = ("_total", "_sum", "_count")
_RESTART_SLACK_S = 1.0
_START_TIME = "process_start_time_seconds"


@dataclass(frozen=True, slots=True)
class ServerMetrics:
    """A reading of one or several metrics endpoints; empty, with ``problem`` set, when there was none to be had."""

    samples: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict, repr=False)
    types: Mapping[str, str] = field(default_factory=dict, repr=False)
    problem: str | None = None

    @classmethod
    def parse(cls, text: str) -> ServerMetrics:
        """The metrics in a Prometheus text; lines that are malformed or longer than 1 MiB are passed over."""
        return cls(*parse_exposition(text))

    def value(self, name: str, labels: Mapping[str, str] | None = None) -> float | None:
        """Sum over the label sets that hold ``labels``; ``None`` when there is none, or the sum is not finite."""
        wanted = set((labels or {}).items())
        values = [sample.value for sample in self.samples.get(name, ()) if wanted <= set(sample.labels)]
        total = sum(values)
        return total if values and math.isfinite(total) else None

    def labels(self, name: str) -> dict[str, str] | None:
        """Labels of the first sample of a metric, such as the settings in an ``…_info`` one."""
        found = self.samples.get(name)
        return dict(found[0].labels) if found else None

    def has_prefix(self, prefix: str) -> bool:
        """Whether any metric's name starts so."""
        return any(name.startswith(prefix) for name in self.samples)

    def counters(self) -> dict[str, float]:
        """Totals, by name, of everything that only grows: counters, and sums and counts of histograms."""
        totals = {name: self.value(name) for name in self.samples if self._only_grows(name)}
        return {name: total for name, total in totals.items() if total is not None}

    def _only_grows(self, name: str) -> bool:
        if self.types.get(name) == "counter":
            return True
        suffix = next((suffix for suffix in _COUNTER_SUFFIXES if name.endswith(suffix)), None)
        if suffix is None:
            return False
        family = self.types.get(name.removesuffix(suffix))
        expected = ("counter", None) if suffix == "_total" else ("histogram", "summary")
        return family in expected and self.types.get(name) != "gauge"


def growth(before: ServerMetrics, after: ServerMetrics) -> dict[str, float | None]:
    """Growth of every counter of ``after`` since ``before``; ``None`` where it was reset or is missing in between.

    A counter or label set that is new counts from zero. A restarted server makes every growth ``None``.
    """
    restarted = _restarted(before, after)
    names = before.counters().keys() | after.counters().keys()
    return {name: None if restarted else _grown(before, after, name) for name in sorted(names)}


def merge(readings: list[ServerMetrics]) -> ServerMetrics:
    """Several endpoints' readings as one; the problem of one makes the whole a problem, since sums would be short."""
    problem = next((reading.problem for reading in readings if reading.problem), None)
    if problem:
        return ServerMetrics(problem=problem)
    samples: dict[str, tuple[Sample, ...]] = {}
    types: dict[str, str] = {}
    for reading in readings:
        types.update(reading.types)
        for name, found in reading.samples.items():
            samples[name] = samples.get(name, ()) + found
    return ServerMetrics(samples, types)


def _grown(before: ServerMetrics, after: ServerMetrics, name: str) -> float | None:
    old, new = _series(before, name), _series(after, name)
    if any(labels not in new or new[labels] < value for labels, value in old.items()):
        return None
    grown = sum(new.values()) - sum(old.values())
    return grown if math.isfinite(grown) else None


def _series(metrics: ServerMetrics, name: str) -> dict[Labels, float]:
    totals: dict[Labels, float] = {}
    for sample in metrics.samples.get(name, ()):
        totals[sample.labels] = totals.get(sample.labels, 0.0) + sample.value
    return totals


def _restarted(before: ServerMetrics, after: ServerMetrics) -> bool:
    first, second = before.value(_START_TIME), after.value(_START_TIME)
    return first is not None and second is not None and abs(second - first) > _RESTART_SLACK_S

"""What an engine's Prometheus endpoint said at one moment, and how its counters grew between two.

The parser takes the text format 0.0.4 and OpenMetrics as servers write them, passes over what it cannot read, and
raises nothing for any input.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_LABEL = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_ESCAPE = re.compile(r"\\(.)")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|infinity|nan)", re.IGNORECASE)
_LONGEST_LINE = 1 << 20
_COUNTER_SUFFIXES = ("_total", "_sum", "_count")
_RESTART_SLACK_S = 1.0
_START_TIME = "process_start_time_seconds"

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of the text: label pairs in name order and the value, which may be NaN or infinite."""

    labels: Labels
    value: float


@dataclass(frozen=True, slots=True)
class ServerMetrics:
    """A reading of one or several metrics endpoints; empty, with ``problem`` set, when there was none to be had."""

    samples: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict, repr=False)
    types: Mapping[str, str] = field(default_factory=dict, repr=False)
    problem: str | None = None

    @classmethod
    def parse(cls, text: str) -> ServerMetrics:
        """The metrics in a Prometheus text; lines that are malformed or longer than 1 MiB are passed over."""
        samples: dict[str, list[Sample]] = {}
        types: dict[str, str] = {}
        for line in text.split("\n"):
            if line.startswith("#"):
                _read_type(line, types)
                continue
            read = _read_sample(line) if len(line) <= _LONGEST_LINE else None
            if read is not None:
                samples.setdefault(read[0], []).append(read[1])
        return cls({name: tuple(found) for name, found in samples.items()}, types)

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


def _read_type(line: str, types: dict[str, str]) -> None:
    words = line.split(maxsplit=4)
    if len(words) >= 4 and words[:2] == ["#", "TYPE"]:
        types[words[2]] = words[3].lower()


def _read_sample(line: str) -> tuple[str, Sample] | None:
    name = _NAME.match(line)
    if name is None:
        return None
    labels, end = _read_labels(line, name.end())
    # What follows the value, a timestamp or an exemplar, is of no use here.
    words = line[end:].split(maxsplit=1) if end >= 0 else []
    if not words or _NUMBER.fullmatch(words[0]) is None:
        return None
    return name.group(), Sample(tuple(sorted(labels.items())), float(words[0]))


def _read_labels(line: str, start: int) -> tuple[dict[str, str], int]:
    """The labels and where they end, which is -1 when the braces hold anything else."""
    labels: dict[str, str] = {}
    if not line.startswith("{", start):
        return labels, start
    place = start + 1
    while match := _LABEL.match(line, place):
        labels[match[1]] = _ESCAPE.sub(_unescape, match[2])
        place = match.end()
    rest = len(line[place:]) - len(line[place:].lstrip())
    return labels, place + rest + 1 if line.startswith("}", place + rest) else -1


def _unescape(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]

"""Reads Prometheus text: the metrics of an engine, and those of a power exporter.

The parser takes the text format 0.0.4 and OpenMetrics as servers write them, passes over what it cannot read, and
raises nothing for any input.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_LABEL = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_ESCAPE = re.compile(r"\\(.)")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|infinity|nan)", re.IGNORECASE)
_LONGEST_LINE = 1 << 20

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of the text: label pairs in name order and the value, which may be NaN or infinite."""

    labels: Labels
    value: float


def parse_exposition(text: str) -> tuple[Mapping[str, tuple[Sample, ...]], Mapping[str, str]]:
    """Samples and types by metric name; lines that are malformed or longer than 1 MiB are passed over."""
    samples: dict[str, list[Sample]] = {}
    types: dict[str, str] = {}
    for line in text.split("\n"):
        if line.startswith("#"):
            _read_type(line, types)
            continue
        read = _read_sample(line) if len(line) <= _LONGEST_LINE else None
        if read is not None:
            samples.setdefault(read[0], []).append(read[1])
    return {name: tuple(found) for name, found in samples.items()}, types


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

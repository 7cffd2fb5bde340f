"""What the baseline said of the sequences that candidates are compared on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_tokenwatt.records import Reason, drift


@dataclass(frozen=True, slots=True)
class Capture:
    """Sequences with the baseline's scores of them; the windows of each corpus by its name, or why there are none."""

    sequences: tuple[drift.Sequence, ...]
    tops: tuple[drift.TopK, ...]
    corpora: Mapping[str, tuple[drift.Sequence, ...] | Reason] = field(default_factory=dict)


@dataclass(slots=True)
class CaptureShelf:
    """Holds the baseline's capture for the candidates of the same run; ``why_none`` says why there is none."""

    held: Capture | None = None
    why_none: str = "the baseline was not captured in this run"

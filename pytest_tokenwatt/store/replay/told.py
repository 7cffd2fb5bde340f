"""What of a stored entry is known to be unknown, and intervals of figures against the baseline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytest_tokenwatt.store.replay.fields import Fields

_ERRORS = (
    *("goodput_error_pct", "variance_band_pct", "slo_pass_count", "length_shift", "kl", "peak_memory"),
    *("anchor_peak_memory", "speed", "speeds", "memory", "memories", "intervals", "score_se"),
)
"""Fields below which a null is an error or a figure that stays unknown."""
_ASIDE = frozenset(("missing", "validity", "notes"))
_RELATIVE = ("length_shift", "speed", "memory")
_BY_PROFILE = ("speeds", "memories")


def unknown(entry: Fields) -> tuple[str, ...]:
    """Key paths of nulls; of an interval, its own path."""
    found = [path for name in _ERRORS if name in entry.data for path in _nulls(name, entry.data[name])]
    hidden = ["intervals.length_shift"] if _hidden(entry) else []
    return tuple(dict.fromkeys(path.removesuffix(".low").removesuffix(".high") for path in [*found, *hidden]))


def _nulls(path: str, value: Any) -> Iterator[str]:
    if value is None:
        yield path
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in _ASIDE:
                yield from _nulls(f"{path}.{key}", inner)


def intervals(entry: Fields) -> dict[str, tuple[float, ...]]:
    """95 % intervals by figure, those without an end left out."""
    block = entry.block("intervals")
    blocks = {name: block.block(name) for name in _RELATIVE}
    blocks |= {f"{group}.{name}": part for group in _BY_PROFILE for name, part in block.block(group).blocks()}
    if _hidden(entry):
        del blocks["length_shift"]
    ends = {name: (part.number("low"), part.number("high")) for name, part in blocks.items()}
    return {name: (low, high) for name, (low, high) in ends.items() if low is not None and high is not None}


def _hidden(entry: Fields) -> bool:
    """Whether most answers were cut, which hides how their lengths would differ."""
    shift = entry.block("intervals").block("length_shift")
    return 2 * (shift.count("truncated") or 0) > (shift.count("n") or 0)

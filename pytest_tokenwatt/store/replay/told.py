"""What of a stored entry is known to be unknown, and intervals of figures against the baseline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytest_tokenwatt.records.stored import AnswerSample
from pytest_tokenwatt.store.replay.fields import Fields

_ERRORS = (
    *("goodput_error_pct", "variance_band_pct", "slo_pass_count", "length_shift", "kl", "peak_memory"),
    *("anchor_peak_memory", "speed", "speeds", "memory", "memories", "intervals", "score_se"),
)
"""Fields below which a null is an error or a figure that stays unknown."""
NOT_STORED = "not stored"
_ASIDE = frozenset(("missing", "validity", "notes"))
_RELATIVE = ("length_shift", "speed", "memory")
_BY_PROFILE = ("speeds", "memories")


def unknown(entry: Fields) -> tuple[str, ...]:
    """Key paths of nulls; of an interval, its own path.

    One that a report of ours took over from elsewhere, where there was no field for it, is none.
    """
    absent = {
        f"{place}.{path}" if place else path
        for place, told in reasons_of_nulls(entry)
        for path, why in told.items()
        if why == NOT_STORED
    }
    nulls = [path for name in _ERRORS if name in entry.data for path in _nulls(name, entry.data[name])]
    found = [path for path in nulls if path not in absent]
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


def answer_sample(entry: Fields) -> AnswerSample | None:
    """Of which answers the shift in length is; ``None`` where that is not stored."""
    shift = entry.block("intervals").block("length_shift")
    n = shift.count("n")
    return AnswerSample(n, shift.count("truncated") or 0, shift.count("left_out") or 0) if n else None


def reasons_of_nulls(entry: Fields) -> Iterator[tuple[str, dict[str, str]]]:
    """Why figures are null, by the place of each block that says so (``""`` for the entry itself)."""
    waiting: list[tuple[str, Any]] = [("", entry.data)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, dict):
            told = value.get("missing")
            found = {path: why for path, why in told.items() if isinstance(why, str)} if isinstance(told, dict) else {}
            if found:
                yield place, found
            inner = ((key, each) for key, each in value.items() if key != "missing")
            waiting += [(f"{place}.{key}" if place else key, each) for key, each in inner]
        elif isinstance(value, list):
            waiting += [(f"{place}[{number}]", each) for number, each in enumerate(value)]


def _hidden(entry: Fields) -> bool:
    """Whether most answers were cut, which hides how their lengths would differ."""
    shift = entry.block("intervals").block("length_shift")
    return 2 * (shift.count("truncated") or 0) > (shift.count("n") or 0)

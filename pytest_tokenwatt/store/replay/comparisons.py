"""What our own reports say of a suite against the baseline, whose answers they do not hold."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_tokenwatt.records.accuracy import DomainDelta, FlipRate, SuiteDelta
from pytest_tokenwatt.store.replay.fields import Fields

_SOURCES = ("control", "observed", "assumed")
_FIGURES = ("flips", "mid_p", "resolvable_drop_pts", "flip_rate", "domains")


def comparison(entry: Fields, items: int | None) -> SuiteDelta | None:
    """Everything but the difference and its interval; ``None`` where nothing of it is stored.

    ``items`` is of how many different ones the suite is. Without a p value answers are not independent, and what they
    are worth is not stored.
    """
    if all(entry.data.get(name) is None for name in _FIGURES):
        return None
    flips, n = entry.block("flips"), entry.count("n")
    mid_p = entry.number("mid_p", least=0.0, most=1.0)
    return SuiteDelta(
        n=n,
        items=items,
        independent=None if mid_p is None or n is None else float(n),
        right_to_wrong=flips.count("right_to_wrong"),
        wrong_to_right=flips.count("wrong_to_right"),
        mid_p=mid_p,
        resolvable_pts=entry.number("resolvable_drop_pts", least=0.0),
        flip_rate=entry.number("flip_rate", least=0.0, most=1.0),
        flip_source=_source(entry),
        domains=dict(_domains(entry.block("domains"))),
    )


def _source(entry: Fields) -> str | None:
    found = entry.text("flip_rate_source")
    if found is not None and found not in _SOURCES:
        raise entry.wrong("flip_rate_source", f"expected one of {', '.join(_SOURCES)}, found {found!r:.60}")
    return found


def _domains(block: Fields) -> Iterator[tuple[str, DomainDelta]]:
    """Those whose difference and interval are stored."""
    for name, domain in block.blocks():
        delta, ends = domain.number("delta_pts", least=-100.0, most=100.0), domain.pair("interval_pts")
        if delta is not None and ends is not None:
            p_value = domain.number("holm_p", least=0.0, most=1.0)
            yield name, DomainDelta(delta, domain.count("n") or 0, ends, p_value)


def control(entry: Fields) -> FlipRate | None:
    """What flipped between two passes over the same items; ``None`` where that is not stored."""
    block = entry.block("control")
    flips, n = block.count("flips"), block.count("n")
    if flips is None or not n:
        return None
    if flips > n:
        raise block.wrong("flips", f"{flips} of {n} answers cannot have flipped")
    return FlipRate(flips, n)

"""Reading single figures of a tool's file, and refusing those that contradict each other."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from pytest_tokenwatt.store.replay.fields import Fields
from pytest_tokenwatt.store.tools.tool_run import Latency


def positive(fields: Fields, key: str) -> float:
    """A number above 0 that must be there. Raises ``UsageError``."""
    value = fields.number(key)
    if value is None:
        raise fields.wrong(key, "the key is missing")
    if value <= 0:
        raise fields.wrong(key, f"expected a number above 0, found {value:g}")
    return value


def needed(fields: Fields, key: str) -> int:
    """A whole number that must be there. Raises ``UsageError``."""
    value = fields.count(key)
    if value is None:
        raise fields.wrong(key, "the key is missing")
    return value


def latency(
    fields: Fields,
    metric: str,
    percentiles: Mapping[float, float],
    *,
    by_request: bool = True,
    with_failed: Mapping[float, float] | None = None,
) -> Latency | None:
    """A latency by its percentiles in ms; ``None`` without any.

    Tools write 0 where they observed nothing, which is no latency. Raises ``UsageError`` where a higher percentile is
    the lower number.
    """
    for told in (percentiles, with_failed or {}):
        _check_order(fields, metric, told)
    observed = {percentile: value for percentile, value in percentiles.items() if value > 0}
    return Latency(observed, by_request=by_request, with_failed=with_failed) if observed else None


def _check_order(fields: Fields, metric: str, percentiles: Mapping[float, float]) -> None:
    ordered = sorted(percentiles.items())
    for (low, below), (high, above) in pairwise(ordered):
        if above < below:
            what = f"p{high:g} is {above:g} ms, below p{low:g} with {below:g} ms"
            raise fields.wrong(metric, what)

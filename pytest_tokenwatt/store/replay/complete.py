"""Whether every measurement of one of our own reports still says if it is to be believed.

Such a report always does; one without it was tampered with or cut, and would be taken for valid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.store.replay.fields import Fields

_ALONE = ("energy", "kl")
_BY_NAME = ("profiles", "budget", "timed_audit", "scenarios")
_MISSING = "missing"


def check_validity(rows: Mapping[str, Fields]) -> None:
    """Raises ``UsageError`` with the key path of the first measurement whose ``validity`` is gone."""
    for row in rows.values():
        for block in (row, *_measured(row)):
            if _tells(block) and block.block("validity").flag("valid") is None:
                raise _lost(block)


def _tells(block: Fields) -> bool:
    """Whether anything was measured: not with nothing but nulls, as of accuracy without a suite."""
    return block.data.get("status") != _MISSING and any(value is not None for value in block.data.values())


def _measured(row: Fields) -> Iterator[Fields]:
    yield from (row.block(name) for name in _ALONE)
    yield from row.rows("accuracy")
    for name in _BY_NAME:
        yield from _values(row.block(name))
    for profile in _values(row.block("profiles")):
        yield from profile.rows("runs")
    yield from _values(row.block("kl").block("ppl"))


def _values(block: Fields) -> list[Fields]:
    return [entry for _, entry in block.blocks()]


def _lost(block: Fields) -> UsageError:
    return block.wrong("validity", "the key is missing, so that nothing says whether this is to be believed")

"""Why figures are null, in the words of the report that an entry was read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_tokenwatt.records import ConfigRecord
from pytest_tokenwatt.report.told import NOT_MEASURED, NOT_STORED

NOBODY_TOLD = frozenset(
    {
        *(NOT_MEASURED, "not measured", "not read", "not known", "no rate was confirmed", "no repeat was measured"),
        *("not known of what was scored", "not known of this profile", "not known of this rerun"),
        *("the decode path was not scored", "the baseline was not scored against itself"),
        *("no start-up log was read", "the start-up log does not tell", "no goodput was measured"),
        *("no request tells", "its requests were not kept", "its error is not known"),
        *("the record does not tell how many items were asked", "no phase was timed", "no probe was sent"),
        *("how many samples there were is not known", "on how many GPUs it ran is not known", "was not audited"),
    }
)
"""What is said of a figure that nothing tells of. Of a record from elsewhere it is only known not to be stored."""
Reasons = Mapping[str, Mapping[str, str]]
"""By the place of a block in the entry, then by the path in the block."""
_ABSENT = object()


def with_stored_reasons(
    entry: Mapping[str, Any], record: ConfigRecord, baseline: ConfigRecord | None
) -> Mapping[str, Any]:
    """The entry of a configuration with the reasons that were stored of what is null still, or that it is not stored.

    What is not known against another baseline than the stored one has reasons of its own. A record of a run keeps all.
    """
    if record.stored is None:
        return entry
    same = baseline is None or baseline.provenance == record.provenance
    found: Mapping[str, Any] = _Words(record.stored.missing, same).block(entry, "")
    return found


@dataclass(frozen=True, slots=True)
class _Words:
    """The stored reasons, and whether those that speak of a baseline are of this one."""

    told: Reasons
    same: bool

    def block(self, value: Any, place: str) -> Any:
        """A value of the entry with the reasons of all that lies within."""
        if isinstance(value, list):
            return [self.block(each, f"{place}[{number}]") for number, each in enumerate(value)]
        if not isinstance(value, Mapping):
            return value
        inner = {
            key: each if key == "missing" else self.block(each, f"{place}.{key}" if place else key)
            for key, each in value.items()
        }
        told = self.told.get(place, {})
        null = {path: why for path, why in told.items() if self.same and _at(inner, path) is None}
        own = inner.get("missing")
        if not isinstance(own, Mapping):
            return {**inner, "missing": null} if null else inner
        # What was known to be unknown must not turn into something that the record has no field for.
        plain = {path: why if told.get(path, NOT_STORED) != NOT_STORED else _plain(why) for path, why in own.items()}
        return {**inner, "missing": {**plain, **null}}


def in_words_of(record: ConfigRecord, reason: str) -> str:
    """A reason as it is of this record."""
    return reason if record.stored is None else _plain(reason)


def _plain(reason: str) -> str:
    return NOT_STORED if reason in NOBODY_TOLD else reason


def _at(block: Any, path: str) -> Any:
    """The value at a path, whose keys may hold dots themselves; something else than ``None`` where there is none."""
    if not isinstance(block, Mapping):
        return _ABSENT
    if path in block:
        return block[path]
    heads = [key for key in block if path.startswith(f"{key}.")]
    found = (_at(block[key], path.removeprefix(f"{key}.")) for key in heads)
    return next((value for value in found if value is not _ABSENT), _ABSENT)

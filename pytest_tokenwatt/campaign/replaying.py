"""Several stored runs as one: a spec to judge them by, and one record for each configuration."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from pytest_tokenwatt.errors import SpecError, UsageError
from pytest_tokenwatt.records import ConfigRecord, GateResult
from pytest_tokenwatt.spec.load import build_spec
from pytest_tokenwatt.spec.model import Spec
from pytest_tokenwatt.spec.reader import parse_source
from pytest_tokenwatt.store.stored_run import StoredRun

_OWN = ("engine", "model", "workload", "power")
"""Blocks that a configuration may have to itself."""
_STAND_INS = ("1", "http://127.0.0.1:9/v1", "unset")
"""What variables that are not set here may stand for: their values were the live run's, and nothing is started."""


@dataclass(frozen=True, slots=True)
class Named:
    """A stored run and the path under which it was given."""

    path: Path
    run: StoredRun


@dataclass(frozen=True, slots=True)
class Merged:
    """What is judged: ``raw`` is the spec's mapping, ``notes`` are lines for the reader.

    ``status`` and ``title`` are the stored ones where all runs share them; ``places`` the directories of the records'
    files by configuration, ``verdicts`` those that reports list, by the gate's id. ``given``: the spec is not theirs.
    """

    raw: Mapping[str, Any]
    records: tuple[ConfigRecord, ...]
    notes: tuple[str, ...]
    status: str | None
    title: str | None
    places: Mapping[str, Path] = field(default_factory=dict)
    verdicts: Mapping[str, str] = field(default_factory=dict)
    given: bool = False


def merge(runs: Sequence[Named], given: Spec | None = None) -> Merged:
    """One session out of several files; with ``given`` its limits win over the stored ones.

    Raises ``UsageError`` when two records are of one configuration, or one is of a configuration that ``given`` lacks.
    """
    records = _unique(runs)
    raw = _raw(runs, records) if given is None else _with_configs(given.raw, records)
    notes = [f"{named.path.name}: {note}" for named in runs for note in named.run.notes]
    if given is not None and given.configs is not None:
        _check_known(given, runs)
    if given is None:
        notes += _differing(runs)
    else:
        notes += _described_otherwise(given, runs)
    statuses, titles = {named.run.status for named in runs}, {named.run.title for named in runs}
    return Merged(
        raw=raw,
        records=tuple(records),
        notes=tuple(dict.fromkeys(notes)),
        status=statuses.pop() if len(statuses) == 1 else None,
        title=titles.pop() if len(titles) == 1 else None,
        places={record.key: _place(named.path) for named in runs for record in named.run.records},
        verdicts={gate: verdict for named in runs for gate, verdict in named.run.verdicts.items()},
        given=given is not None,
    )


def changed_verdicts(stored: Mapping[str, str], results: Iterable[GateResult]) -> Iterator[str]:
    """Lines on gates that a report lists with another verdict than its figures give under the limits of now."""
    for result in results:
        before = stored.get(result.id)
        if before is not None and before != result.verdict:
            yield f"{result.config} {result.gate} is stored as {before}; what is stored of it gives {result.verdict}"


def unjudged_verdicts(stored: Mapping[str, str], known: Container[str]) -> dict[str, str]:
    """Gates that did not pass in their own run and that nothing here judges: those of tests, which no record holds."""
    return {gate: verdict for gate, verdict in stored.items() if verdict != "pass" and gate not in known}


def _place(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def with_roles(runs: Sequence[Named], roles: Sequence[str]) -> list[Named]:
    """The runs as baseline, candidate and so on, whatever they were recorded as; the key becomes the role.

    Raises ``UsageError`` when a run holds more than one configuration.
    """
    return [_in_role(named, role) for named, role in zip(runs, roles, strict=True)]


def _in_role(named: Named, role: str) -> Named:
    if len(named.run.records) != 1:
        keys = ", ".join(record.key for record in named.run.records)
        what = f"holds {len(named.run.records)} configurations ({keys}) where one is wanted"
        raise UsageError(what, where=str(named.path), remedy="name the record-<config>.json of one of them")
    record = named.run.records[0]
    entry = _entry(named.run.spec, record)
    changed = replace(record, key=role, role=role, like=None)
    spec = {**_overridden(named.run.spec, entry), "configs": [_head(changed)]}
    return replace(named, run=replace(named.run, records=(changed,), spec=spec))


def replayed_spec(raw: Mapping[str, Any], path: Path, lines: Spec | None = None) -> Spec:
    """The spec of a mapping that was stored; ``lines`` has the file that the user gave, if any.

    Raises ``UsageError`` when it is no spec.
    """
    text = yaml.safe_dump(dict(raw), sort_keys=False, allow_unicode=True)
    last: SpecError | None = None
    for stand_in in (None, *_STAND_INS):
        try:
            spec = build_spec(parse_source(text, str(path)), path, _Environment(stand_in))
            break
        except SpecError as error:
            last = error
    else:
        first = last.problems[0] if last is not None else None
        what = f"the stored spec cannot be read: {first.what if first else 'unknown'}"
        raise UsageError(what, where=str(path), remedy="give a spec with --tokenwatt-spec")
    # The numbers of its lines are those of a text that nobody has.
    configurations = tuple(each.model_copy(update={"line": None}) for each in spec.configurations)
    known = lines.lines if lines is not None else {}
    return spec.model_copy(update={"lines": known, "configurations": configurations, "raw": dict(raw)})


class _Environment(dict[str, str]):
    """The process's environment, in which variables that are not set have a value, too."""

    def __init__(self, stand_in: str | None) -> None:
        super().__init__(os.environ)
        self._stand_in = stand_in

    def __contains__(self, name: object) -> bool:
        return self._stand_in is not None or super().__contains__(name)

    def __missing__(self, name: str) -> str:
        if self._stand_in is None:
            raise KeyError(name)
        return self._stand_in


def _unique(runs: Sequence[Named]) -> list[ConfigRecord]:
    known: dict[str, Path] = {}
    records: list[ConfigRecord] = []
    for named in runs:
        for record in named.run.records:
            if record.key in known:
                what = f"{known[record.key].name} and {named.path.name} both hold configuration {record.key}"
                remedy = "record one of them with another --tokenwatt-role, or leave one out"
                raise UsageError(what, where=str(named.path), remedy=remedy)
            known[record.key] = named.path
            records.append(record)
    baselines = [record.key for record in records if record.role == "baseline"]
    if len(baselines) > 1:
        what = f"{' and '.join(baselines)} both have the role of the baseline"
        remedy = "compare two of them with `python -m pytest_tokenwatt compare A B`, or give a spec with their keys"
        raise UsageError(what, where=str(runs[0].path), remedy=remedy)
    return records


def _check_known(spec: Spec, runs: Sequence[Named]) -> None:
    keys = [config.key for config in spec.configurations]
    for named in runs:
        for record in named.run.records:
            if record.key not in keys:
                what = f"it holds configuration {record.key}, which {spec.path.name} does not have"
                raise UsageError(what, where=str(named.path), remedy=f"configurations: {', '.join(keys)}")


def _raw(runs: Sequence[Named], records: Sequence[ConfigRecord]) -> dict[str, Any]:
    """One run's own spec; several runs' first one, with what differs between them in each configuration's entry."""
    first = dict(runs[0].run.spec)
    if len(runs) == 1 and first.get("configs") is not None:
        return first
    if any(named.run.spec.get("configs") is not None for named in runs):
        entries = [_entry(named.run.spec, record) for named in runs for record in named.run.records]
        return {**first, "configs": entries}
    unequal = [block for block in _OWN if len({repr(named.run.spec.get(block)) for named in runs}) > 1]
    entries = [
        {**_head(record), **{block: named.run.spec[block] for block in unequal if named.run.spec.get(block)}}
        for named in runs
        for record in named.run.records
    ]
    shared = {key: value for key, value in first.items() if key not in unequal}
    return {**shared, "configs": entries} if len(records) > 1 else first | {"configs": entries}


def _with_configs(raw: Mapping[str, Any], records: Sequence[ConfigRecord]) -> dict[str, Any]:
    if raw.get("configs") is not None:
        return dict(raw)
    return {**raw, "configs": [_head(record) for record in records]}


def _entry(raw: Mapping[str, Any], record: ConfigRecord) -> dict[str, Any]:
    """The configuration's entry as its spec has it, else one of what the record knows."""
    listed = raw.get("configs") or ()
    return next((dict(each) for each in listed if each.get("key") == record.key), _head(record))


def _head(record: ConfigRecord) -> dict[str, Any]:
    like = {"like": record.like} if record.like is not None else {}
    return {"key": record.key, "role": record.role, "label": record.label, **like}


def _overridden(raw: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """A spec's blocks with those of one entry in their place."""
    own = {block: entry[block] for block in (*_OWN, "gates") if entry.get(block) is not None}
    shared = {key: value for key, value in raw.items() if key != "configs"}
    return {**shared, **{block: _deep(shared.get(block), value) for block, value in own.items()}}


def _deep(under: Any, over: Any) -> Any:
    if isinstance(under, Mapping) and isinstance(over, Mapping):
        return {**under, **{key: _deep(under.get(key), value) for key, value in over.items()}}
    return over


_JUDGING = frozenset({"configs", "title", "not_covered", "name", "x-", *_OWN})


def _differing(runs: Sequence[Named]) -> Iterator[str]:
    """Blocks in which the stored specs differ: the first one's are what counts."""
    first = runs[0]
    for named in runs[1:]:
        keys = (first.run.spec.keys() | named.run.spec.keys()) - _JUDGING
        unequal = sorted(key for key in keys if first.run.spec.get(key) != named.run.spec.get(key))
        if unequal:
            yield (
                f"the specs of {first.path.name} and {named.path.name} differ in {', '.join(unequal)}: "
                f"those of {first.path.name} count"
            )


_MEASURED = ("workload", "scenarios", "profiles", "accuracy", "drift")
"""Blocks of a spec that say what was measured, and not only how it is judged."""
_LIMITS = frozenset({"max_drop_pts", "min_score", "max_nats_per_token", "max_dnll", "slo"})
"""What such a block has of limits, which may change; under another SLO the gates themselves say what is not known."""


def _described_otherwise(given: Spec, runs: Sequence[Named]) -> Iterator[str]:
    """Blocks of the given spec that are not what was measured: figures are still of what the record's own spec says."""
    for named in runs:
        pairs = {block: (_settings(given.raw.get(block)), _settings(named.run.spec.get(block))) for block in _MEASURED}
        unequal = [block for block, (now, then) in pairs.items() if now and then and now != then]
        if unequal:
            listed = ", ".join(unequal)
            yield f"{named.path.name} was measured under another {listed} than {given.path.name} asks for, and stays so"


def _settings(block: Any) -> Any:
    """A block without limits and without what is left to the default; a list of one is as good as its only entry."""
    if isinstance(block, Mapping):
        found = {key: _settings(value) for key, value in block.items() if key not in _LIMITS}
        return {key: value for key, value in found.items() if value is not None}
    if isinstance(block, list | tuple):
        return _settings(block[0]) if len(block) == 1 else [_settings(each) for each in block]
    return block

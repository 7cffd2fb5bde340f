"""Stored baselines that a session compares with.

Which of them is the reference, what candidates are scored on, and which gates came or went since.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, TypeVar

from pytest_tokenwatt.campaign.capture import Capture, Corpus, capture_from, drift_file
from pytest_tokenwatt.campaign.promotion import promoted
from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.gates.catalog import list_gates
from pytest_tokenwatt.gates.comparable import OPTION as ALLOW
from pytest_tokenwatt.gates.comparable import Sides, differences
from pytest_tokenwatt.records import ConfigRecord, Reason
from pytest_tokenwatt.records.drift import DriftRecord
from pytest_tokenwatt.report.text import one_line
from pytest_tokenwatt.spec.model import Drift, Perplexity, Spec
from pytest_tokenwatt.store.baselines import SCORES, StoredBaseline, recorded_at

OPTION = "--tokenwatt-baseline"
T = TypeVar("T")
_SAVE_AGAIN = "store the baseline anew"
_LEAST_LIKENESS = 0.7
"""Share of equal characters from which a name is taken for another's successor, of configuration and gate alike."""


@dataclass(frozen=True, slots=True)
class StoredReference:
    """The baseline that is not measured in this session.

    ``record`` has role baseline and the key of the spec's baseline, if it has one. ``baselines`` are all stored ones,
    the newest first and all under this key: how far they differ is the spread between runs. ``chosen`` is the file of
    ``record``. ``notes`` are lines for the reader: which record it is, how old, and which gates came or went since.
    """

    record: ConfigRecord
    baselines: tuple[ConfigRecord, ...]
    chosen: StoredBaseline
    notes: tuple[str, ...]


def stored_baseline(
    spec: Spec, files: Sequence[StoredBaseline], allow: frozenset[str] = frozenset()
) -> StoredReference:
    """What relative gates of ``spec`` compare with: the newest of ``files``, of which there is at least one.

    Of records that are equally old, or of unknown age, the first counts. Files of one and the same run count once:
    between copies there is no spread. Raises ``UsageError`` for files that are not comparable with each other, other
    than in what ``allow`` names.
    """
    newest_first = _measured_once(sorted(files, key=_recorded, reverse=True))
    unlike = [note for pair in itertools.combinations(newest_first, 2) for note in _unlike(*pair, allow)]
    key = _key(spec, newest_first[0].record)
    records = tuple(replace(promoted(each.record), key=key) for each in newest_first)
    return StoredReference(records[0], records, newest_first[0], (*_notes(spec, newest_first), *unlike))


def _unlike(newer: StoredBaseline, older: StoredBaseline, allow: frozenset[str]) -> Iterator[str]:
    """Lines on what two runs differ in although their spread counts. Raises ``UsageError`` where it may not count."""
    alike = newer.path.name == older.path.name
    ours, theirs = (str(each.path) if alike else each.path.name for each in (newer, older))
    both = f"{ours} and {theirs}"
    found = differences(newer.record, older.record, Sides(ours, theirs, both))
    refused = [name for name in found if name not in allow]
    if refused:
        what = f"{both} give no spread between runs: {'; '.join(found[name] for name in refused)}"
        flags = " ".join(f"{ALLOW}={name}" for name in refused)
        remedy = f"leave one out, or compare all the same with {flags}"
        raise UsageError(what, where=OPTION, remedy=remedy)
    if found:
        yield f"{both} differ in {' and '.join(name.replace('_', ' ') for name in found)}; their spread holds that, too"
    versions = [each.record.identity.version if each.record.identity else None for each in (newer, older)]
    if None not in versions and versions[0] != versions[1]:
        yield one_line(f"{both} are of engine {versions[0]} and {versions[1]}; their spread holds that, too")


def _measured_once(files: Sequence[StoredBaseline]) -> list[StoredBaseline]:
    """The files without further copies of one measurement."""
    kept: list[StoredBaseline] = []
    for each in files:
        if not any(same_measurement(each.record, other.record) for other in kept):
            kept.append(each)
    return kept


def same_measurement(one: ConfigRecord, other: ConfigRecord) -> bool:
    """Whether two records are copies of one, whatever role, key and name they were stored under.

    What was measured tells it: two runs never agree in every time and answer. Records without any are never copies.
    """
    kept = [promoted(each) for each in (one, other)]
    parts = [(dict(each.scenarios), dict(each.suites), dict(each.profiles)) for each in kept]
    return any(parts[0]) and parts[0] == parts[1] and one.provenance.recorded == other.provenance.recorded


def reference_for(candidate: ConfigRecord, baseline: ConfigRecord | None) -> ConfigRecord | None:
    """A stored baseline for one candidate. A copy of the candidate's own record is invalid: every ratio to it is 1."""
    if baseline is None or not same_measurement(candidate, baseline):
        return baseline
    text = f"the stored baseline is a copy of the record of {candidate.key}, which cannot be compared with itself"
    return replace(baseline, invalid=(Reason("same_record", text),))


def by_reference(
    records: Sequence[ConfigRecord],
    baseline: ConfigRecord | None,
    deltas: Callable[[ConfigRecord | None], Mapping[str, T]],
) -> dict[str, T]:
    """How each configuration compares with a stored baseline; of a copy of it nothing can be told.

    ``deltas`` compares all of them with one baseline.
    """
    found = dict(deltas(baseline))
    for record in records:
        own = reference_for(record, baseline)
        if own is not baseline:
            found.update({key: delta for key, delta in deltas(own).items() if key == record.key})
    return found


def _recorded(stored: StoredBaseline) -> datetime:
    return recorded_at(stored.record.provenance.recorded) or datetime.min.replace(tzinfo=UTC)


def _key(spec: Spec, record: ConfigRecord) -> str:
    """The baseline's own key in the spec; without one, any that is not a candidate's."""
    if spec.baseline is not None:
        return spec.baseline.key
    taken = {configuration.key for configuration in spec.configurations}
    numbered = (f"stored-baseline-{number}" for number in itertools.count(2))
    wanted = itertools.chain((record.key, "baseline", "stored-baseline"), numbered)
    return next(key for key in wanted if key not in taken)


def _notes(spec: Spec, newest_first: Sequence[StoredBaseline]) -> Iterator[str]:
    chosen, *others = newest_first
    record = chosen.record
    yield f"baseline: {chosen.path.name} ({one_line(record.label)}), {chosen.age_text}"
    if others:
        told = ", ".join(f"{each.path.name} {each.age_text}" for each in others)
        yield f"{len(newest_first)} stored baselines give the spread between runs; beside the newest: {told}"
    if record.role != "baseline":
        yield f"{chosen.path.name}: {record.key} was measured as {record.role}, not as a baseline"
    yield from (note for each in newest_first for note in each.notes)
    if record.provenance.gates:
        now = [f"{gate.config}::{gate.gate}" for gate in list_gates(spec)]
        yield from gates_changed(record.provenance.gates, now)


# --- drift


def captured(stored: StoredBaseline, spec: Spec) -> Capture | Reason:
    """What the stored baseline was captured on, for the candidates of this session; or why they cannot be scored.

    Each text that the spec has and the capture lacks, or has of other windows, is a reason by itself.
    """
    record, settings = promoted(stored.record), spec.drift
    if settings is None:
        return Reason("not_asked", "the spec has no drift block")
    if record.drift is None:
        return Reason("not_captured", f"{stored.path.name} holds no drift: it was stored without a drift block")
    before = _mapping(record.spec.get("drift"))
    what = _differing(before, settings, ("prompts", "tokens", "top_k")) if before else ()
    if what:
        return Reason("other_drift", f"{stored.path.name} was captured with another {' and '.join(what)}")
    try:
        capture = read_capture(record, stored.path.parent)
    except UsageError as error:
        return Reason("not_captured", str(error))
    return capture if isinstance(capture, Reason) else _fitting(capture, before, settings)


def read_capture(record: ConfigRecord, directory: Path) -> Capture | Reason:
    """The capture of a baseline whose files are in ``directory``; or why there is none.

    Raises ``UsageError`` when a file is absent, damaged, or of something else.
    """
    sources = capture_files(record, directory)
    drift = record.drift
    if drift is None or None not in sources:
        own = drift.control.invalid if drift is not None and drift.control is not None else ()
        return own[0] if own else Reason("not_captured", f"there are no scores of {record.key} to compare with")
    return capture_from(sources[None], _tag(drift, record.key), drift, record.fingerprint or "")


def capture_files(record: ConfigRecord, directory: Path) -> dict[str | None, Path]:
    """The files of a baseline's scores: of the sequences (under ``None``) and of each corpus' windows.

    Empty for another role, which was only scored on what the baseline drew, and where none was stored.
    """
    drift = record.drift
    if record.role != "baseline" or drift is None or drift.file is None or Path(drift.file).name != drift.file:
        return {}
    tag = _tag(drift, record.key)
    windows = [name for name, found in drift.perplexity.items() if found.sha256]
    return {None: directory / drift.file, **{name: drift_file(directory, tag, name) for name in windows}}


def _tag(drift: DriftRecord, key: str) -> str:
    """What the files of windows are called after: the baseline file, or in a run directory the configuration."""
    file = drift.file or ""
    return file.removesuffix(SCORES) if file.endswith(SCORES) else key


def _fitting(capture: Capture, before: Mapping[str, Any], settings: Drift) -> Capture:
    """The capture with exactly the texts that the spec asks for now."""
    return replace(capture, corpora={each.name: _corpus(each, capture, before) for each in settings.perplexity})


def _corpus(wanted: Perplexity, capture: Capture, before: Mapping[str, Any]) -> Corpus | Reason:
    if wanted.name not in capture.corpora:
        return Reason("not_captured", f"the stored baseline was not scored on {wanted.name}; {_SAVE_AGAIN}")
    listed = before.get("perplexity")
    entries = [_mapping(each) for each in listed] if isinstance(listed, Sequence) else []
    for entry in entries:
        what = _differing(entry, wanted, ("file", "window", "windows")) if entry.get("name") == wanted.name else ()
        if what:
            text = f"the stored baseline was scored on {wanted.name} with another {' and '.join(what)}"
            return Reason("other_drift", f"{text}; {_SAVE_AGAIN}")
    return capture.corpora[wanted.name]


def _differing(before: Mapping[str, Any], now: Drift | Perplexity, names: Sequence[str]) -> tuple[str, ...]:
    """Settings that were others when the baseline was stored; those with variables in them are not known."""
    fields = type(now).model_fields
    earlier = {name: fields[name].default if before.get(name) is None else before[name] for name in names}
    known = {name: value for name, value in earlier.items() if "${" not in str(value)}
    return tuple(name for name, value in known.items() if str(value) != str(getattr(now, name)))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


# --- gates


def gates_changed(stored: Iterable[str], now: Iterable[str]) -> tuple[str, ...]:
    """Lines on gates that came, went or were renamed since a baseline was stored; ids are ``config::gate``.

    A gate that went and one of the same configuration and kind that came count as one that was renamed, and so do two
    whose names are nearly the same.
    """
    then, today = list(dict.fromkeys(stored)), list(dict.fromkeys(now))
    gone, come = [each for each in then if each not in today], [each for each in today if each not in then]
    successors = _successors(gone, come)
    return (
        *(f"gate {old} was renamed to {successors[old]}" for old in gone if old in successors),
        *(f"new gate {each}" for each in come if each not in successors.values()),
        *(f"gate {each} has vanished" for each in gone if each not in successors),
    )


def _successors(gone: Sequence[str], come: Sequence[str]) -> dict[str, str]:
    """Each gate's new name, the likeliest pairs first and no name twice."""
    pairs = sorted((_unlikeness(old, new), old, new) for old in gone for new in come)
    found: dict[str, str] = {}
    for (other, unlike), old, new in pairs:
        plausible = not other or unlike <= 1 - _LEAST_LIKENESS
        if plausible and old not in found and new not in found.values():
            found[old] = new
    return found


def _unlikeness(old: str, new: str) -> tuple[bool, float]:
    """Whether they are of another configuration or kind, and how little the names are alike."""
    (config, gate), (config_now, gate_now) = _parts(old), _parts(new)
    same = config == config_now and _kind(gate) == _kind(gate_now)
    return not same, max(_differ(config, config_now), _differ(gate, gate_now))


def _differ(one: str, other: str) -> float:
    return 1 - SequenceMatcher(None, one, other, autojunk=False).ratio()


def _parts(identity: str) -> tuple[str, str]:
    config, _, gate = identity.partition("::")
    return config, gate


def _kind(gate: str) -> str:
    return gate.partition("[")[0]

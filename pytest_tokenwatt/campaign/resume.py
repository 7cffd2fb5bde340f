"""Continuing an interrupted run: which of its measurements count, and why the others are taken again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_tokenwatt.campaign.capture import Capture, Corpus
from pytest_tokenwatt.engine.start import RunningEngine
from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.quality.drift.digest import drift_sha256
from pytest_tokenwatt.records import ConfigRecord, GoodputRecord, SensorInfo, SuiteRecord
from pytest_tokenwatt.records.drift import DriftRecord
from pytest_tokenwatt.records.profiles import ProfileRecord
from pytest_tokenwatt.spec.model import Spec, Suite
from pytest_tokenwatt.store.records_json import read_record

_JUDGING = frozenset({"gates", "title", "not_covered", "fleet", "score", "$schema"})
"""Blocks of a spec that only judge or describe; a measurement stays what it is when they change."""
_JUDGING_WITHIN = {"configs": frozenset({"gates", "label"}), "accuracy": frozenset({"max_drop_pts", "min_score"})}
"""The same within the entries of a block."""


def earlier_records(directory: Path, spec: Spec) -> tuple[dict[str, ConfigRecord], list[str]]:
    """What an interrupted run of this spec left in ``directory``, by configuration, and what does not count of it."""
    records: dict[str, ConfigRecord] = {}
    notes: list[str] = []
    for configuration in spec.configurations:
        path = directory / f"record-{configuration.key}.json"
        if not path.exists():
            continue
        try:
            record = read_record(path).record
        except UsageError as error:
            notes.append(f"{path.name} is not continued: {error.what}")
            continue
        if not (record.scenarios or record.suites or record.profiles or record.drift):
            continue
        if _measured_by(record.spec) != _measured_by(spec.raw):
            notes.append(f"{path.name} is not continued: the spec has changed since")
        else:
            records[configuration.key] = record
    return records, notes


def _measured_by(raw: Mapping[str, Any]) -> dict[str, Any]:
    blocks = {key: value for key, value in raw.items() if key not in _JUDGING and not str(key).startswith("x-")}
    return {key: _without(value, _JUDGING_WITHIN.get(key, frozenset())) for key, value in blocks.items()}


def _without(block: Any, keys: frozenset[str]) -> Any:
    """A mapping, or each of a list of mappings, without some of its keys."""
    if isinstance(block, Mapping):
        return {key: value for key, value in block.items() if key not in keys}
    return [_without(each, keys) for each in block] if keys and isinstance(block, list) else block


def differs(record: ConfigRecord, engine: RunningEngine) -> str | None:
    """Why a record is of another engine than the one that runs now; ``None`` when it is of an equal one."""
    if dict(record.launch) != dict(engine.launch):
        return "it was started in another way"
    if record.fingerprint != engine.fingerprint:
        return "the engine has another fingerprint"
    return None


def kept_scenarios(
    record: ConfigRecord, gpus: tuple[SensorInfo, ...], digests: Mapping[str, str]
) -> Iterator[GoodputRecord]:
    """Scenarios that were measured to their end, on the same GPUs: timing on others would be of another machine."""
    if [gpu.sensor for gpu in record.gpus] != [gpu.sensor for gpu in gpus]:
        return
    for name, scenario in record.scenarios.items():
        if not scenario.invalid and scenario.load_sha256 == digests.get(name):
            yield scenario


def kept_profiles(
    record: ConfigRecord, gpus: tuple[SensorInfo, ...], digests: Mapping[str, str]
) -> Iterator[ProfileRecord]:
    """Closed-loop profiles that were measured to their end, on the same GPUs."""
    if [gpu.sensor for gpu in record.gpus] != [gpu.sensor for gpu in gpus]:
        return
    for name, profile in record.profiles.items():
        if not profile.invalid and profile.load_sha256 == digests.get(name):
            yield profile


def kept_suites(record: ConfigRecord, suites: Iterable[Suite]) -> Iterator[SuiteRecord]:
    """Those of ``suites`` that were asked to their end, with every seed; on which GPU does not matter for answers."""
    seeds = {suite.title: suite.seeds for suite in suites}
    return (suite for suite in record.suites.values() if not suite.invalid and suite.seeds == seeds.get(suite.name))


def is_whole(record: DriftRecord) -> bool:
    """Whether everything of a configuration's drift was scored and is to be believed."""
    divergences = [each for each in (record.against, record.control) if each is not None]
    return not record.invalid and not any(each.invalid for each in divergences)


def is_of(record: DriftRecord, capture: Capture) -> bool:
    """Whether a configuration's drift is of what ``capture`` holds: the same ids of continuations and of windows."""
    if not is_whole(record) or record.sha256 != drift_sha256(capture.sequences):
        return False
    for name, corpus in capture.corpora.items():
        found = record.perplexity.get(name)
        if found is None:
            return False
        if isinstance(corpus, Corpus) and (found.invalid or found.sha256 != drift_sha256(corpus.windows)):
            return False
    return True

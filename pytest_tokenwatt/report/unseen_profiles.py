"""What a run did not see of closed-loop profiles: rates, peaks, the driver's figure, speed, and precision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pytest_tokenwatt.records import ConfigRecord
from pytest_tokenwatt.records.profiles import ProfileRecord, SpeedDelta
from pytest_tokenwatt.report.audit import STANDARD
from pytest_tokenwatt.report.lines import grouped
from pytest_tokenwatt.report.memory import why_no_peak
from pytest_tokenwatt.report.profiles import profile_faults
from pytest_tokenwatt.report.subject import NO_PROFILES, Subject
from pytest_tokenwatt.report.told import finite, why
from pytest_tokenwatt.spec.model import Spec
from pytest_tokenwatt.spec.traffic import ONLINE_SLO

_NO_SCORE = "Leaderboard figures: the spec has no score block"


def unseen_profiles(spec: Spec, records: Sequence[ConfigRecord], speeds: Mapping[str, SpeedDelta]) -> Iterator[str]:
    """One line for each thing that is absent and each reason."""
    if spec.score is None:
        yield _NO_SCORE
    yield from _unread_precision(spec, records)
    if not spec.profiles:
        yield f"Closed-loop speed and memory: {NO_PROFILES}"
        return
    asked = {*spec.profiles, *([ONLINE_SLO] if spec.online_slo else [])}
    if left := [name for name in STANDARD if name not in asked]:
        yield f"Profiles that the spec does not have: {', '.join(left)}"
    yield from grouped("Output rate", {record.key: _without_rate(spec, record) for record in records}, len(records))
    yield from grouped("Peak memory", {record.key: _without_peak(record) for record in records}, len(records))
    yield from grouped("Device memory", {record.key: _without_device(record) for record in records}, len(records))
    unknown = {key: _without_error(delta) for key, delta in speeds.items()}
    yield from grouped("Error of the speed", unknown, len(records))


def _without_rate(spec: Spec, record: ConfigRecord) -> dict[str, str]:
    subject = Subject(spec, record)
    found = {name: record.profiles.get(name) for name in subject.profiles}
    return {
        name: why(profile_faults(profile), "no repeat was measured") if profile else subject.why_no_profile(name)
        for name, profile in found.items()
        if profile is None or finite(profile.output_tok_s) is None
    }


def _timed(record: ConfigRecord) -> dict[str, ProfileRecord]:
    return {name: each for name, each in record.profiles.items() if finite(each.output_tok_s) is not None}


def _without_peak(record: ConfigRecord) -> dict[str, str]:
    timed = _timed(record).items()
    return {name: why_no_peak(each.memory, each) for name, each in timed if finite(each.memory.peak_gib) is None}


def _without_device(record: ConfigRecord) -> dict[str, str]:
    """Profiles for which the driver's own figure is not known."""
    return {
        name: each.memory.missing.get("device_peak_gib", "not read")
        for name, each in _timed(record).items()
        if finite(each.memory.device_peak_gib) is None
    }


def _without_error(delta: SpeedDelta) -> dict[str, str]:
    known = {name: ratio for name, ratio in delta.profiles.items() if finite(ratio.value) is not None}
    return {name: each.missing or "not known" for name, each in known.items() if finite(each.error) is None}


def _unread_precision(spec: Spec, records: Sequence[ConfigRecord]) -> Iterator[str]:
    """Configurations that declare a precision which nothing was read of."""
    for record in records:
        read = record.precision
        if spec.configuration(record.key).precision is None or (read is not None and read.label is not None):
            continue
        told = "; ".join(dict.fromkeys(read.missing.values())) if read else why(record.invalid)
        yield f"{record.key}: Precision: {told or 'neither the engine nor its checkpoint tells'}"

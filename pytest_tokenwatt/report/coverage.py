"""What a run did not see, why its report is a draft, and therefore its status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_tokenwatt.records import ConfigRecord, GateResult, GoodputRecord, Verdict
from pytest_tokenwatt.records.accuracy import LengthDelta
from pytest_tokenwatt.report.accuracy import unseen_accuracy
from pytest_tokenwatt.report.audit import unseen_audits
from pytest_tokenwatt.report.budget import unseen_budget
from pytest_tokenwatt.report.context import ReportContext
from pytest_tokenwatt.report.drift import unseen_drift
from pytest_tokenwatt.report.length import unseen_length
from pytest_tokenwatt.report.profiles import profile_faults
from pytest_tokenwatt.report.unseen import unseen
from pytest_tokenwatt.report.unseen_profiles import unseen_profiles
from pytest_tokenwatt.spec.model import Configuration, Spec

UNREAD = ("hardware.accelerator", "hardware.driver", "hardware.rated_bw_source")
SIMULATED = "Simulated engine: the figures are those of a step-time model, not of any hardware"
QUICK = "Quick mode: short windows, few repeats — validation only, not for publishing"


def caveats(spec: Spec, records: Sequence[ConfigRecord], *, interrupted: str | None = None) -> tuple[str, ...]:
    """What a reader must know before any figure: simulated, quick, interrupted."""
    simulated = any(record.identity is not None and record.identity.simulated for record in records)
    said = [SIMULATED if simulated else None, QUICK if spec.is_quick else None]
    stopped = f"Interrupted run: {interrupted}" if interrupted else None
    return tuple(each for each in (*said, stopped) if each)


def status(found: Sequence[str], records: Sequence[ConfigRecord], gates: Sequence[GateResult]) -> str:
    """``draft`` with any caveat or anything invalid, else ``published``."""
    invalid = any(gate.verdict is Verdict.INVALID for gate in gates) or any(
        record.invalid
        or any(_invalid(goodput) for goodput in record.scenarios.values())
        or any(suite.invalid for suite in record.suites.values())
        or _drift_invalid(record)
        or _timed_invalid(record)
        for record in records
    )
    return "draft" if found or invalid or not records else "published"


def _invalid(goodput: GoodputRecord) -> bool:
    return bool(goodput.invalid or (goodput.energy is not None and goodput.energy.invalid))


def _drift_invalid(record: ConfigRecord) -> bool:
    drift = record.drift
    if drift is None:
        return False
    divergences = [each.invalid for each in (drift.against, drift.control) if each is not None]
    return any((drift.invalid, *divergences, *(each.invalid for each in drift.perplexity.values())))


def _timed_invalid(record: ConfigRecord) -> bool:
    profiles = [profile_faults(each) for each in (*record.profiles.values(), *record.again.values())]
    rerun = [each.invalid for each in record.budgets.values()]
    return any((*profiles, *rerun, *(each.invalid for each in record.audits.values())))


def not_covered(
    spec: Spec,
    records: Sequence[ConfigRecord],
    found: Sequence[str],
    blocks: Mapping[str, Mapping[str, Any]],
    context: ReportContext,
) -> list[str]:
    """The spec's own list, what the engines did not answer, what this version does not measure, and the caveats.

    ``blocks`` are those of the report that describe machine, software and model; what is null in them is named.
    """
    own = spec.raw.get("not_covered") or ()
    unmeasured = (
        *_unmeasured(spec, records, context.lengths),
        *unseen_drift(spec, records, context.drift),
        *unseen_profiles(spec, records, context.speeds),
        *unseen_audits(spec, records),
        *unseen_budget(spec, records),
    )
    lines = [*own, *_of_records(records), *unmeasured, *_unsaid(blocks), *found]
    return list(dict.fromkeys(line for line in lines if line))


def _unsaid(blocks: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Null fields that the spec or the engine could have told."""
    places = [f"{block}.{key}" for block, fields in blocks.items() for key, value in fields.items() if value is None]
    told = [place for place in places if place not in UNREAD]
    if told:
        yield f"Said neither by the spec nor by the engine: {', '.join(told)}"


def _of_records(records: Sequence[ConfigRecord]) -> Iterator[str]:
    """Lines that all records share as they are, others with the configurations that they concern."""
    for line in dict.fromkeys(line for record in records for line in record.not_covered):
        keys = [record.key for record in records if line in record.not_covered]
        yield line if len(keys) == len(records) else f"{', '.join(keys)}: {line}"


def _unmeasured(spec: Spec, records: Sequence[ConfigRecord], lengths: Mapping[str, LengthDelta]) -> Iterator[str]:
    """Why fields of the report are null."""
    yield "Image digest: not read by this version"
    yield from unseen(spec, records)
    yield from unseen_accuracy(spec, records)
    yield from unseen_length(spec, records, lengths)
    if spec.fleet is None:
        yield "Fleet figures: the spec has no fleet block"
    if spec.load.backend == "ray":
        yield "Load from several machines (load.backend: ray): not available in this version; all came from this one"
    measured = {record.key for record in records}
    for configuration in spec.configurations:
        if configuration.key not in measured:
            yield f"Configuration {configuration.key}: not measured in this run"
        else:
            yield from (f"Configuration {configuration.key}: {line}" for line in _unsure(configuration))


def _unsure(configuration: Configuration) -> Iterator[str]:
    """What the settings of a measured configuration keep its figures from showing."""
    engine, contents = configuration.engine, {scenario.workload.content for scenario in configuration.scenarios}
    silent = [scenario.name for scenario in configuration.scenarios if not scenario.bounds]
    if silent:
        yield f"no goodput, since there is no slo ({', '.join(silent)})"
    if engine.api == "chat" or engine.prompt == "text" or contents != {"random"}:
        yield "prompts are sent as text, so that their lengths in tokens are near the planned ones, not equal"
    if "random" in contents and any("speculative" in word for word in (*(engine.command or ()), *engine.args)):
        yield "speculative decoding on random content accepts fewer tokens than on real text"

"""What a run did not see, why its report is a draft, and therefore its status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_tokenwatt.records import ConfigRecord, GateResult, GoodputRecord, Verdict
from pytest_tokenwatt.records.accuracy import LengthDelta
from pytest_tokenwatt.records.drift import DriftDelta
from pytest_tokenwatt.report.accuracy import unseen_accuracy
from pytest_tokenwatt.report.drift import unseen_drift
from pytest_tokenwatt.report.length import unseen_length
from pytest_tokenwatt.report.unseen import unseen
from pytest_tokenwatt.spec.model import Configuration, Spec

LATER = "not measured by this version"
UNREAD = ("hardware.accelerator", "hardware.driver", "hardware.rated_bw_source")
SIMULATED = "Simulated engine: the figures are those of a step-time model, not of any hardware"
QUICK = "Quick mode: short windows, few repeats — validation only, not for publishing"
_LATER_BLOCKS = {
    "profiles": "Closed-loop speed and memory (profiles)",
    "audit": "Audit of timed output (audit)",
    "budget": "Rerun with less memory (budget)",
    "score": "Leaderboard figures (score)",
}


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


def not_covered(
    spec: Spec,
    records: Sequence[ConfigRecord],
    found: Sequence[str],
    blocks: Mapping[str, Mapping[str, Any]],
    lengths: Mapping[str, LengthDelta],
    drift: Mapping[str, DriftDelta],
) -> list[str]:
    """The spec's own list, what the engines did not answer, what this version does not measure, and the caveats.

    ``blocks`` are those of the report that describe machine, software and model; what is null in them is named.
    ``lengths`` are those of answers against the baseline's, ``drift`` that of distributions, by configuration.
    """
    own = spec.raw.get("not_covered") or ()
    unmeasured = (*_unmeasured(spec, records, lengths), *unseen_drift(spec, records, drift))
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
    for block, name in _LATER_BLOCKS.items():
        if spec.present(block):
            yield f"{name}: {LATER}"
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

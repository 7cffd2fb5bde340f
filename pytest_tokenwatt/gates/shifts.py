"""The lengths of a configuration's answers against the baseline's: what gates and reports say of the difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_tokenwatt.gates.asked import counts_drift_answers
from pytest_tokenwatt.gates.comparable import other_hardware
from pytest_tokenwatt.gates.deltas import comparison_fault
from pytest_tokenwatt.gates.divergence import drift_faults
from pytest_tokenwatt.gates.stated import stated_length
from pytest_tokenwatt.metrics.length import (
    LEAST_CLUSTERS,
    LEAST_EQUAL,
    LengthPair,
    RelativeShift,
    length_pairs,
    relative_shift,
)
from pytest_tokenwatt.metrics.paired import UnequalItems, pair_items
from pytest_tokenwatt.records import ConfigRecord, ItemResult, Outcome, Reason
from pytest_tokenwatt.records.accuracy import LengthDelta
from pytest_tokenwatt.records.drift import AnswerLength
from pytest_tokenwatt.spec.model import Spec

DRIFT = "drift prompts"
"""What stands for the drift prompts among the names of suites, of which none has a space."""


def length_deltas(
    spec: Spec, records: Sequence[ConfigRecord], baseline: ConfigRecord | None = None
) -> dict[str, LengthDelta]:
    """By configuration, its answers' lengths against those of ``baseline`` (else of the record whose role that is).

    Nothing for a baseline itself, without any, or without suites and drift prompts.
    """
    base = baseline or next((record for record in records if record.role == "baseline"), None)
    names, drift = suite_names(spec), counts_drift_answers(spec)
    if base is None or not (names or drift):
        return {}
    return {
        record.key: length_delta(names, record, base, drift=drift) for record in records if record.role != "baseline"
    }


def suite_names(spec: Spec) -> list[str]:
    """The suites whose answers are compared."""
    return [suite.title for suite in spec.accuracy]


def length_delta(
    names: Sequence[str], candidate: ConfigRecord, baseline: ConfigRecord, *, drift: bool = False
) -> LengthDelta:
    """The answers to all suites ``names`` and with ``drift`` to its prompts, each answer counting the same.

    A suite that cannot be compared leaves no figure: the mean of the others would be one of something else. Of another
    tool's record there is only the shift that it states.
    """
    stated = None if has_answers(candidate) else stated_length(candidate, baseline)
    if stated is not None:
        return stated
    if baseline.invalid:
        return LengthDelta(faults=(Reason("baseline_invalid", f"baseline {baseline.key}: {baseline.invalid[0]}"),))
    found = {name: _suite_pairs(name, candidate, baseline) for name in names}
    if drift:
        found[DRIFT] = _drift_pairs(candidate, baseline)
    faults = {name: each for name, each in found.items() if isinstance(each, Reason)}
    if faults:
        named = (Reason(each.code, f"{name}: {each.text}") for name, each in faults.items())
        return LengthDelta(faults=tuple(named if len(found) > 1 else faults.values()))
    suites = [each for each in found.values() if not isinstance(each, Reason)]
    pairs = [pair for suite, _ in suites for pair in suite]
    return _delta(pairs, sum(left_out for _, left_out in suites), baseline)


def has_answers(config: ConfigRecord) -> bool:
    """Whether single answers are on record, to suites or to drift prompts."""
    return any(suite.items for suite in config.suites.values()) or bool(config.drift and config.drift.answers)


def _suite_pairs(name: str, candidate: ConfigRecord, baseline: ConfigRecord) -> tuple[list[LengthPair], int] | Reason:
    fault = comparison_fault(name, candidate, baseline)
    if fault is not None:
        return fault
    try:
        return length_pairs(baseline.suites[name], candidate.suites[name])
    except UnequalItems as error:
        return Reason(error.reason, str(error))


def drift_answer_faults(config: ConfigRecord) -> tuple[Reason, ...]:
    """Why the lengths of a configuration's answers to drift prompts are not known; empty when they are."""
    faults = drift_faults(config)
    if faults or (config.drift and config.drift.answers):
        return faults
    return (Reason("not_measured", f"{config.key} answered no drift prompt"),)


def _drift_pairs(candidate: ConfigRecord, baseline: ConfigRecord) -> tuple[list[LengthPair], int] | Reason:
    """The pairs by prompt, and how many are left out; or why they cannot be compared."""
    own, theirs = drift_answer_faults(candidate), drift_answer_faults(baseline)
    if own or theirs:
        return own[0] if own else Reason("baseline_invalid", f"baseline {baseline.key}: {theirs[0]}")
    ours, base = candidate.drift, baseline.drift
    if ours is None or base is None or ours.answers_sha256 != base.answers_sha256:
        return Reason("incomparable", f"{candidate.key} and {baseline.key} answered different drift prompts")
    hardware = other_hardware(candidate, baseline)
    if hardware is not None:
        return hardware
    try:
        both = pair_items(drift_items(baseline), drift_items(candidate))
    except UnequalItems as error:
        return Reason(error.reason, str(error))
    pairs = [
        LengthPair(
            base=one.output_tokens,
            candidate=other.output_tokens,
            cluster=f"{DRIFT}/{one.id}",
            base_cut=one.outcome is Outcome.TRUNCATED,
            candidate_cut=other.outcome is Outcome.TRUNCATED,
        )
        for one, other in both
        if one.output_tokens is not None and other.output_tokens is not None
    ]
    return pairs, len(both) - len(pairs)


def drift_items(config: ConfigRecord) -> list[ItemResult]:
    """A configuration's answers to drift prompts in the form of a suite's: nothing but their lengths is known."""
    answers = config.drift.answers if config.drift else ()
    return [ItemResult(answer.id, 0, _outcome(answer), output_tokens=answer.tokens) for answer in answers]


def _outcome(answer: AnswerLength) -> Outcome:
    """Whether there is an answer, and whether it ended by itself."""
    if answer.tokens is None:
        return Outcome.FAILED
    return Outcome.TRUNCATED if answer.cut else Outcome.UNPARSEABLE


def _delta(pairs: Sequence[LengthPair], left_out: int, baseline: ConfigRecord) -> LengthDelta:
    if not pairs:
        return LengthDelta(left_out=left_out, faults=(no_counts(),))
    shift = relative_shift(pairs)
    if shift is None:
        text = f"the answers of baseline {baseline.key} have no tokens to compare with"
        return LengthDelta(left_out=left_out, faults=(Reason("baseline_invalid", text),))
    return LengthDelta(
        shift=shift.value,
        interval=shift.interval(),
        n=shift.n,
        clusters=shift.clusters,
        tokens=sum(pair.candidate for pair in pairs) / shift.n,
        baseline_tokens=sum(pair.base for pair in pairs) / shift.n,
        truncated=sum(pair.base_cut or pair.candidate_cut for pair in pairs),
        left_out=left_out,
        doubts=tuple(_doubts(pairs, shift)),
    )


def no_counts() -> Reason:
    """What stands for a figure where no answer has a count of tokens."""
    return Reason("no_token_counts", "no answer has a count of its tokens; the server must send usage")


def _doubts(pairs: Sequence[LengthPair], shift: RelativeShift) -> Iterator[Reason]:
    """Why the figure decides nothing."""
    both = sum(pair.base_cut and pair.candidate_cut for pair in pairs)
    if 2 * both > len(pairs):
        text = f"{both} of {len(pairs)} answers are cut at max_tokens on both sides, which hides a shift"
        also = any(pair.cluster.startswith(f"{DRIFT}/") for pair in pairs)
        yield Reason("mostly_truncated", f"{text}; raise max_tokens{' and drift.tokens' if also else ''}")
    if shift.interval() is None:
        yield Reason("interval_unknown", _why_no_interval(shift))


def _why_no_interval(shift: RelativeShift) -> str:
    worth = f"{shift.n} answers" if shift.clusters == shift.n else f"{shift.n} answers to {shift.clusters} items"
    if shift.clusters < LEAST_CLUSTERS:
        return f"{worth} are too few for an interval; it takes {LEAST_CLUSTERS} independent items"
    return f"{worth} that all changed by one factor do not show how others vary; it takes {LEAST_EQUAL}"

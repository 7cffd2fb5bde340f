"""From answers to the record of a suite: scoring is pure, so that a replay can score stored answers anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pytest_tokenwatt.metrics.tally import failed_reasons, outcome_counts, score_pct, spread_pts
from pytest_tokenwatt.quality.asking import CONTROL, MAIN, Question
from pytest_tokenwatt.quality.scoring import Scorer, outcome_of
from pytest_tokenwatt.quality.suites import LoadedSuite
from pytest_tokenwatt.records import Reason
from pytest_tokenwatt.records.accuracy import Answer, ItemResult, Outcome, SuiteRecord
from pytest_tokenwatt.spec.quality import Suite

MISSING = Answer(None, error="not asked")


def suite_record(
    settings: Suite,
    loaded: LoadedSuite,
    scorer: Scorer,
    asked: Sequence[Question],
    answers: Mapping[tuple[str, int, str], Answer],
    *,
    invalid: Sequence[Reason] = (),
    answers_file: str | None = None,
) -> SuiteRecord:
    """The record of everything that was ``asked``; a question without an answer counts as failed.

    ``invalid`` are reasons that are known besides (the engine died). Raises ``TokenwattError`` when the scorer fails.
    """
    main = _scored(settings, scorer, [each for each in asked if each.part == MAIN], answers)
    control = _scored(settings, scorer, [each for each in asked if each.part == CONTROL], answers)
    reasons = (*invalid, *failed_reasons(main))
    return SuiteRecord(
        name=settings.title,
        suite=settings.suite,
        sha256=loaded.sha256,
        scorer=settings.scorer,
        api=settings.api,
        shots=settings.shots,
        max_tokens=settings.max_tokens,
        seeds=settings.seeds,
        items=main,
        score=None if reasons else score_pct(main),
        spread_pts=None if reasons else spread_pts(main),
        counts=outcome_counts(main),
        invalid=reasons,
        control=control,
        notes=(*loaded.notes, *_remarks(main, asked, answers)),
        answers_file=answers_file,
        domains=loaded.domains,
    )


def unmeasured_suite(settings: Suite, sha256: str, reason: Reason) -> SuiteRecord:
    """The record of a suite that could not be asked, for ``reason``."""
    return SuiteRecord(
        name=settings.title,
        suite=settings.suite,
        sha256=sha256,
        scorer=settings.scorer,
        api=settings.api,
        shots=settings.shots,
        max_tokens=settings.max_tokens,
        seeds=settings.seeds,
        items=(),
        score=None,
        spread_pts=None,
        counts={},
        invalid=(reason,),
    )


def _scored(
    settings: Suite, scorer: Scorer, asked: Sequence[Question], answers: Mapping[tuple[str, int, str], Answer]
) -> tuple[ItemResult, ...]:
    return tuple(_result(settings, scorer, question, answers.get(question.key, MISSING)) for question in asked)


def _result(settings: Suite, scorer: Scorer, question: Question, answer: Answer) -> ItemResult:
    scored = outcome_of(scorer, question.item, answer, stops=settings.stop, max_tokens=settings.max_tokens)
    return ItemResult(
        id=question.item.id,
        seed=question.seed,
        outcome=scored.outcome,
        parsed=scored.parsed,
        output_tokens=answer.output_tokens,
        cluster=question.item.template,
        detail=scored.detail,
    )


def _remarks(
    items: Sequence[ItemResult], asked: Sequence[Question], answers: Mapping[tuple[str, int, str], Answer]
) -> Iterator[str]:
    """What a reader should know of how the server answered."""
    found = [answers[each.key] for each in asked if each.key in answers]
    silent = sum(1 for answer in found if answer.text is not None and answer.finish_reason is None)
    if silent:
        yield f"{silent} answers came without a finish reason: those of max_tokens tokens count as cut"
    thinking = sum(1 for answer in found if answer.reasoning_only)
    if thinking:
        yield f"{thinking} answers had reasoning alone; raise max_tokens, or switch thinking off in extra_body"
    empty = sum(1 for item in items if item.outcome is Outcome.UNPARSEABLE)
    if empty * 2 > len(items):
        yield f"{empty} of {len(items)} answers hold nothing that the scorer can read: check prompts, stop and template"

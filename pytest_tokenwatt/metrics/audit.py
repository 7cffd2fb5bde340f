"""The audit's figures: what the baseline thinks of a candidate's served outputs, beside what it thinks of its own.

An engine that serves what the model says serves tokens about as likely as the baseline's own. Text that is fast because
nobody computed it (canned, repeated, random) is unlikely under the baseline, and shows as a gap.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pytest_tokenwatt.records.audit import AuditRecord
from pytest_tokenwatt.records.base import Reason

AUDITED, INVALID = "audited", "invalid"

LEAST_LOGPROB = -9999.0
"""Counts for a token of probability 0: what vLLM says of one. The true value is lower still, so the gap is a bound."""

_LARGEST_LOGPROB = 1e-3
"""Log-probabilities above this are none; what is below is rounding."""


@dataclass(frozen=True, slots=True)
class Scored:
    """The baseline's view of one output, token by token; it may end before the output when that had to be cut.

    ``logprobs`` are in nats, −inf for a probability of 0, NaN where it was not scored. ``top1`` says whether no other
    token is likelier.
    """

    logprobs: Sequence[float]
    top1: Sequence[bool]


@dataclass(frozen=True, slots=True)
class AuditSample:
    """One prompt: how many tokens the candidate and the baseline answered, and how these score.

    ``engine`` and ``bf16`` are ``None`` where there are no tokens.
    """

    engine_tokens: int
    bf16_tokens: int
    engine: Scored | None
    bf16: Scored | None


@dataclass(frozen=True, slots=True)
class _Pair:
    """The means over the tokens of one prompt's two outputs."""

    engine: float
    bf16: float
    engine_top1: float
    bf16_top1: float

    @property
    def gap(self) -> float:
        return self.bf16 - self.engine


def audit_record(run: str, samples: Sequence[AuditSample], notes: Sequence[str] = ()) -> AuditRecord:
    """All figures of the run ``run``; each mean is over samples of a sample's own mean over its tokens.

    Means, shares and gaps are of the prompts that both answered. Lengths are of all prompts: candidate / max(1,
    baseline), so that an empty output counts 0 even where the baseline's is empty too. Where all of the candidate's
    outputs are empty and the baseline's are not, there are counts and lengths, no gaps, and nothing is invalid.
    Reasons of invalid ones: ``no_outputs``, ``positions_invalid``, ``not_probabilities``, ``zero_probability`` (of the
    baseline's own tokens), ``nothing_scored``. Nothing is raised.
    """
    counted = replace(_counted(run, samples), notes=tuple(notes))
    both = [(each.engine, each.bf16) for each in samples if each.engine is not None and each.bf16 is not None]
    invalid = tuple(_faults(counted, both))
    if invalid:
        return replace(counted, status=INVALID, invalid=invalid)
    more = (*counted.notes, *_impossible(both), *_unpaired(counted, len(both)))
    pairs = [_pair(engine, bf16) for engine, bf16 in both]
    return replace(_with_means(counted, pairs) if pairs else counted, notes=more)


def _counted(run: str, samples: Sequence[AuditSample]) -> AuditRecord:
    empty = sum(1 for each in samples if not each.engine_tokens)
    ratios = [each.engine_tokens / max(1, each.bf16_tokens) for each in samples]
    return AuditRecord(
        run=run,
        status=AUDITED,
        picked=len(samples),
        samples=len(samples) - empty,
        empty=empty,
        empty_alone=sum(1 for each in samples if not each.engine_tokens and each.bf16_tokens),
        empty_reference=sum(1 for each in samples if not each.bf16_tokens),
        length_ratio=statistics.median(ratios) if ratios else None,
        length_ratio_min=min(ratios, default=None),
    )


def _faults(counted: AuditRecord, both: Sequence[tuple[Scored, Scored]]) -> Iterator[Reason]:
    """What forbids the figures. A token that the baseline finds impossible is one only where the baseline chose it."""
    scored = [value for pair in both for each in pair for value in each.logprobs]
    unscored = sum(1 for value in scored if math.isnan(value))
    above = sum(1 for value in scored if value > _LARGEST_LOGPROB)
    impossible = sum(1 for _, bf16 in both for value in bf16.logprobs if value <= LEAST_LOGPROB)
    if not counted.picked:
        yield Reason("no_outputs", "no output was kept")
    elif 2 * len(both) < counted.samples or (not both and not counted.empty_alone):
        yield Reason("nothing_scored", f"the baseline answers {len(both)} of {counted.samples} prompts with anything")
    if unscored:
        yield Reason("positions_invalid", f"{unscored} of {len(scored)} tokens have no valid log-probability")
    if above:
        text = f"{above} tokens are likelier than 1; the server seems to return logits"
        yield Reason("not_probabilities", text)
    if impossible:
        text = f"{impossible} tokens that the baseline generated have probability 0 when it scores them"
        yield Reason("zero_probability", text)


def _impossible(both: Sequence[tuple[Scored, Scored]]) -> Iterator[str]:
    count = sum(1 for engine, _ in both for value in engine.logprobs if value <= LEAST_LOGPROB)
    if count:
        yield f"{count} served tokens have probability 0 under the baseline; each counts {LEAST_LOGPROB:g} nats"


def _unpaired(counted: AuditRecord, pairs: int) -> Iterator[str]:
    if pairs < counted.samples:
        yield f"{counted.samples - pairs} of {counted.samples} outputs have no gap: the baseline's own is empty"


def _pair(engine: Scored, bf16: Scored) -> _Pair:
    return _Pair(_mean(engine.logprobs), _mean(bf16.logprobs), _share(engine.top1), _share(bf16.top1))


def _mean(logprobs: Sequence[float]) -> float:
    return math.fsum(max(value, LEAST_LOGPROB) for value in logprobs) / len(logprobs)


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags)


def _with_means(counted: AuditRecord, pairs: Sequence[_Pair]) -> AuditRecord:
    engine, bf16 = statistics.fmean(each.engine for each in pairs), statistics.fmean(each.bf16 for each in pairs)
    engine_top1 = statistics.fmean(each.engine_top1 for each in pairs)
    bf16_top1 = statistics.fmean(each.bf16_top1 for each in pairs)
    return replace(
        counted,
        engine_mean=engine,
        bf16_mean=bf16,
        gap=bf16 - engine,
        gap_median=statistics.median(each.gap for each in pairs),
        gap_max=max(each.gap for each in pairs),
        engine_top1=engine_top1,
        bf16_top1=bf16_top1,
        top1_gap=bf16_top1 - engine_top1,
    )

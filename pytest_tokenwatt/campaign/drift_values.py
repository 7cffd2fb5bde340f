"""Divergence and perplexity as values for tests."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_tokenwatt.errors import GateFailed, NotMeasured, UsageError
from pytest_tokenwatt.gates.divergence import kl_delta, perplexity_delta, perplexity_faults, perplexity_of
from pytest_tokenwatt.gates.finding import unusable
from pytest_tokenwatt.records import ConfigRecord, Reason
from pytest_tokenwatt.spec.model import Spec
from pytest_tokenwatt.values import KlDrift, PerplexityChange

_UNASKED = "nothing was scored: nothing that was selected needs it"


def kl_value(candidate: ConfigRecord, baseline: ConfigRecord, *, control: bool) -> KlDrift:
    """The divergence from the baseline; ``control`` says that the baseline's from itself was to be measured.

    Raises ``GateFailed`` when it is invalid, ``NotMeasured`` when nothing was scored.
    """
    _check_asked(f"{candidate.key} kl_drift", candidate, baseline)
    delta = kl_delta(candidate, baseline, control=control)
    found = candidate.drift.against if candidate.drift else None
    if delta.faults or found is None:
        raise _failed(f"{candidate.key} kl_drift", delta.faults)
    return KlDrift(candidate.key, found, delta)


def perplexity_value(name: str, candidate: ConfigRecord, baseline: ConfigRecord | None) -> PerplexityChange:
    """The corpus ``name``; without a ``baseline`` by itself.

    Raises ``GateFailed`` when it is invalid, ``NotMeasured`` when nothing was scored.
    """
    what = f"{candidate.key} perplexity of {name}"
    _check_asked(what, *(each for each in (candidate, baseline) if each is not None))
    change = perplexity_delta(name, candidate, baseline) if baseline is not None else None
    faults = perplexity_faults(name, candidate) if change is None else change.invalid
    found = perplexity_of(name, candidate)
    if faults or found is None:
        raise _failed(what, faults)
    return PerplexityChange(candidate.key, found, change)


def corpus_name(spec: Spec, corpus: str | None) -> str:
    """The corpus that is meant; ``None`` means the only one.

    Raises ``NotMeasured`` without corpora, ``UsageError`` for one that there is not.
    """
    known = [each.name for each in spec.drift.perplexity] if spec.drift else []
    if not known:
        raise NotMeasured("perplexity", "the spec has no drift.perplexity")
    if corpus is None and len(known) == 1:
        return known[0]
    if corpus is None or corpus not in known:
        what = "there are several corpora" if corpus is None else f"there is no corpus {corpus!r}"
        raise UsageError(what, remedy=f"use tokenwatt.perplexity(corpus) with one of {', '.join(known)}")
    return corpus


def _check_asked(what: str, *records: ConfigRecord) -> None:
    if not all(record.drift or record.invalid for record in records):
        raise NotMeasured(what, _UNASKED)


def _failed(what: str, faults: Sequence[Reason]) -> GateFailed:
    verdict = unusable(faults).verdict
    return GateFailed(f"{what} is {verdict.value}: {'; '.join(map(str, faults))}", verdict)

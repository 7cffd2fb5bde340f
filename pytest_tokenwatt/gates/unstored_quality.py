"""What the gates of accuracy and drift need of a stored run and do not find."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_tokenwatt.gates.deltas import stated_mean
from pytest_tokenwatt.gates.lacking import Sides, both, lacks
from pytest_tokenwatt.gates.shifts import has_answers
from pytest_tokenwatt.gates.stated import stated_delta, stated_length, stated_perplexity
from pytest_tokenwatt.records import ConfigRecord
from pytest_tokenwatt.records.accuracy import AccuracyDelta


def accuracy(sides: Sides) -> Iterator[str]:
    """Scores on both sides, or the difference."""
    gate, candidate, baseline = sides
    if "max_mean_drop_pts" in gate.limits:
        yield from _mean(sides)
        return
    name = gate.param or ""
    if _has_score(name, candidate) and (baseline is None or _has_score(name, baseline)):
        return
    stated = baseline is not None and stated_delta(name, candidate, baseline) is not None
    if gate.limits.get("min_score") is not None or not stated:
        lacking = candidate if baseline is None or not _has_score(name, candidate) else baseline
        yield lacks(f"the score on {name}", lacking)


def _has_score(name: str, config: ConfigRecord) -> bool:
    """One that is there but not to be believed is judged."""
    record = config.suites.get(name)
    return record is not None and (config.stored is None or record.score is not None or bool(record.invalid))


def _mean(sides: Sides) -> Iterator[str]:
    gate, candidate, baseline = sides
    if baseline is not None and stated_mean(AccuracyDelta({}), candidate, baseline, {}).mean_drop_pts is not None:
        return
    names = gate.limits.get("suites") or ()
    if not names:
        yield lacks("the mean drop", candidate)
    for config in both(candidate, baseline):
        yield from (lacks(f"the score on {name}", config) for name in names if not _has_score(name, config))


def length(sides: Sides) -> Iterator[str]:
    """Answers on both sides, or the shift."""
    gate, candidate, baseline = sides
    if baseline is not None and not has_answers(candidate) and stated_length(candidate, baseline) is not None:
        return
    for config in both(candidate, baseline):
        asked = gate.limits.get("suites") or ()
        lacking = [name for name in asked if name not in config.suites or _only_scored(name, config)]
        drift = gate.limits.get("drift") and not (config.drift and (config.drift.answers or config.drift.invalid))
        if lacking or drift:
            yield lacks(f"the length of answers{f' to {lacking[0]}' if lacking else ''}", config)


def _only_scored(name: str, config: ConfigRecord) -> bool:
    return config.stored is not None and not config.suites[name].items and not config.suites[name].invalid


def kl(sides: Sides) -> Iterator[str]:
    """The divergence."""
    _, candidate, baseline = sides
    drift = candidate.drift
    if drift is None or (candidate.stored is not None and drift.against is None and not drift.invalid):
        yield lacks("kl", candidate)
    elif candidate.stored is not None and drift.against is not None:
        found = drift.against
        if found.kl is None and found.kl_lower is None and not found.invalid:
            yield lacks("kl", candidate)
    if baseline is not None and baseline.drift is None and candidate.stored is None:
        yield lacks("what drift is measured from", baseline)


def perplexity(sides: Sides) -> Iterator[str]:
    """Likelihoods on both sides, or their difference."""
    gate, candidate, baseline = sides
    name = gate.param or ""
    if baseline is not None:
        stated = stated_perplexity(name, candidate, baseline)
        if stated is not None and (stated.dnll is not None or stated.invalid):
            return
    for config in both(candidate, baseline):
        record = config.drift.perplexity.get(name) if config.drift else None
        broken = config.drift is not None and bool(config.drift.invalid)
        if not broken and (record is None or not (record.nll or record.invalid)):
            yield lacks(f"the perplexity on {name}", config)

"""A configuration's accuracy suites against the baseline's: what gates and reports say of the difference."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_tokenwatt.errors import TokenwattError
from pytest_tokenwatt.gates.comparable import other_hardware, other_questions
from pytest_tokenwatt.gates.stated import same_source, stated_delta, states
from pytest_tokenwatt.metrics.domains import compare_by_domain, holm, summarise, tier_of
from pytest_tokenwatt.metrics.paired import Comparison, UnequalItems, compare
from pytest_tokenwatt.metrics.resolution import resolution
from pytest_tokenwatt.records import ConfigRecord, ItemResult, Reason, SuiteRecord
from pytest_tokenwatt.records.accuracy import AccuracyDelta, DomainDelta, FlipRate, Outcome, SuiteDelta
from pytest_tokenwatt.spec.model import Spec

RULE_LEVEL = 0.90


def accuracy_deltas(
    spec: Spec, records: Sequence[ConfigRecord], baseline: ConfigRecord | None = None
) -> dict[str, AccuracyDelta]:
    """By configuration, all its suites against those of ``baseline`` (else of the record whose role that is).

    Without any baseline there are only the controls. A baseline itself has no differences either.
    """
    base = baseline or next((record for record in records if record.role == "baseline"), None)
    limits = {suite.title: suite.limit for suite in spec.accuracy}
    tiers = spec.score.tiers if spec.score is not None else {}
    return {record.key: _accuracy_delta(record, base, limits, tiers) for record in records}


def _accuracy_delta(
    record: ConfigRecord, baseline: ConfigRecord | None, limits: Mapping[str, int], tiers: Mapping[str, float]
) -> AccuracyDelta:
    found = {name: control_flips(suite) for name, suite in record.suites.items()}
    controls = {**states(record).controls, **{name: flips for name, flips in found.items() if flips is not None}}
    if baseline is None or record.role == "baseline":
        return AccuracyDelta({}, controls)
    names = list(dict.fromkeys([*limits, *record.suites]))
    suites = {name: suite_delta(name, record, baseline, limits.get(name)) for name in names}
    return stated_mean(mean_of(suites, tiers, controls), record, baseline, tiers)


def stated_mean(
    found: AccuracyDelta, candidate: ConfigRecord, baseline: ConfigRecord, tiers: Mapping[str, float]
) -> AccuracyDelta:
    """The mean drop as it is stored, where a record has none of the suites that it is of."""
    stated = states(candidate)
    if found.mean_drop_pts is not None or stated.mean_drop_pts is None or not same_source(candidate, baseline):
        return found
    tier = tier_of(stated.mean_drop_pts, tiers)
    return replace(found, mean_drop_pts=stated.mean_drop_pts, tier=tier, valid_domains=stated.valid_domains or 0)


def mean_of(
    suites: Mapping[str, SuiteDelta], tiers: Mapping[str, float], controls: Mapping[str, FlipRate] | None = None
) -> AccuracyDelta:
    """The mean drop over the suites that can be compared, with the worst of them and the tier."""
    summary = summarise({name: suite.delta_pts for name, suite in suites.items()}, tiers)
    return AccuracyDelta(
        suites,
        controls or {},
        summary.mean_drop_pts,
        summary.worst,
        summary.worst_drop_pts,
        summary.tier,
        summary.valid_domains,
        summary.left_out,
    )


def suite_delta(name: str, candidate: ConfigRecord, baseline: ConfigRecord, limit: int | None = None) -> SuiteDelta:
    """The suite ``name`` of two configurations, item by item, or by their scores where a record has no items.

    ``limit`` is how many items the spec asks, for records that do not tell.
    """
    record, base = candidate.suites.get(name), baseline.suites.get(name)
    if candidate.stored is not None:
        # The spec that judges may not be the one that asked.
        limit = record.limit if record is not None else None
    stated = stated_delta(name, candidate, baseline)
    if stated is not None and (record is None or base is None):
        return replace(stated, **_resolution(limit))
    fault = comparison_fault(name, candidate, baseline)
    if fault is not None or record is None or base is None:
        return SuiteDelta(fault=fault)
    try:
        if record.items and base.items:
            return _paired(record, base)
        if stated is not None and stated.n is not None:
            return stated
        found = _by_score(record, base, limit)
        return found if stated is None else replace(found, delta_pts=stated.delta_pts, interval_pts=stated.interval_pts)
    except UnequalItems as error:
        return SuiteDelta(fault=Reason(error.reason, str(error)))


def suite_faults(config: ConfigRecord, name: str) -> tuple[Reason, ...]:
    """Why a configuration's score on a suite is not to be believed; empty when it is."""
    record = config.suites.get(name)
    if config.invalid:
        return config.invalid
    if record is None:
        return (Reason("not_measured", f"{config.key} has no record of {name}"),)
    if record.invalid:
        return record.invalid
    if record.score is None or not math.isfinite(record.score) or record.answered == 0:
        return (Reason("no_items", f"no item of {name} was answered"),)
    return ()


def nothing_read(base: SuiteRecord) -> Reason | None:
    """Why no drop could show: of all the baseline's answers, none is one that the scorer can read."""
    counts = base.counts
    if not (counts and base.answered) or counts.get(Outcome.CORRECT, 0) or counts.get(Outcome.WRONG, 0):
        return None
    seen = [f"{count} {outcome}" for outcome, count in counts.items() if count and outcome != Outcome.FAILED]
    text = f"no drop could show, since none of the baseline's answers to {base.name} can be read"
    remedy = "check prompts, max_tokens, stop and the chat template"
    return Reason("baseline_invalid", f"{text} ({', '.join(seen)}); {remedy}")


def comparison_fault(name: str, candidate: ConfigRecord, baseline: ConfigRecord) -> Reason | None:
    """Why the answers of two configurations to a suite cannot be compared, as far as settings and scores tell."""
    ours, theirs = suite_faults(candidate, name), suite_faults(baseline, name)
    if ours:
        return ours[0]
    if theirs:
        return Reason("baseline_invalid", f"baseline {baseline.key}: {theirs[0]}")
    return other_hardware(candidate, baseline) or other_questions(candidate.suites[name], baseline.suites[name])


def _paired(record: SuiteRecord, base: SuiteRecord) -> SuiteDelta:
    """Raises ``UnequalItems`` when the two are not of the same items."""
    found = compare(base.items, record.items)
    interval, narrower = found.interval_pts(), found.interval_pts(RULE_LEVEL)
    if found.delta_pts is None or interval is None:
        return SuiteDelta(fault=Reason("no_items", "no item was answered by both candidate and baseline"))
    control = control_flips(base)
    told = resolution(
        found.effective_n, control=None if control is None else control.share, observed=found.counts.flip_rate
    )
    return SuiteDelta(
        delta_pts=found.delta_pts,
        n=found.counts.n,
        items=len({item.id for item in record.items}),
        independent=found.effective_n,
        right_to_wrong=found.counts.base_only,
        wrong_to_right=found.counts.candidate_only,
        interval_pts=interval,
        interval_90_pts=narrower,
        mid_p=found.mid_p,
        resolvable_pts=told.drop_pts,
        flip_rate=told.flip_rate,
        flip_source=told.source,
        domains=_domains(record, base),
    )


def _by_score(record: SuiteRecord, base: SuiteRecord, limit: int | None) -> SuiteDelta:
    """Without item results there are neither flips nor intervals. Raises ``UnequalItems`` for two sample sizes."""
    sizes = {record.answered, base.answered} - {None}
    if len(sizes) > 1:
        raise UnequalItems(f"the candidate has {record.answered} answers, the baseline {base.answered}")
    delta = SuiteDelta(delta_pts=(record.score or 0.0) - (base.score or 0.0))
    return replace(delta, **_resolution(next(iter(sizes), limit)))


def _resolution(n: int | None) -> dict[str, Any]:
    """What ``n`` items of which only the score is known can tell."""
    told = resolution(n) if n else None
    return {
        "n": n,
        "items": n,
        "independent": n,
        "resolvable_pts": told.drop_pts if told else None,
        "flip_rate": told.flip_rate if told else None,
        "flip_source": told.source if told else None,
    }


def _domains(record: SuiteRecord, base: SuiteRecord) -> dict[str, DomainDelta]:
    found = compare_by_domain(base.items, record.items, record.domains)
    corrected = holm({name: comparison.p_value for name, comparison in found.items() if comparison.counts.n})
    return dict(_domain_deltas(found, corrected))


def _domain_deltas(
    found: Mapping[str, Comparison], corrected: Mapping[str, float]
) -> Iterator[tuple[str, DomainDelta]]:
    for name, comparison in found.items():
        delta_pts, interval = comparison.delta_pts, comparison.interval_pts()
        if delta_pts is not None and interval is not None:
            yield name, DomainDelta(delta_pts, comparison.counts.n, interval, corrected.get(name))


def control_flips(record: SuiteRecord) -> FlipRate | None:
    """What flipped between a suite and its control, the same items asked again; ``None`` without one."""
    asked = {(item.id, item.seed) for item in record.control}
    first: list[ItemResult] = [item for item in record.items if (item.id, item.seed) in asked]
    if not first:
        return None
    try:
        counts = compare(first, record.control).counts
    except TokenwattError:
        return None
    return FlipRate(counts.flips, counts.n) if counts.n else None

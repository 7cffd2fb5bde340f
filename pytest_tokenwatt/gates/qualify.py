"""Whether a configuration's record qualifies, and its score: the rule of the score gate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_tokenwatt.gates.admission import AUDIT_FAILED, admission_faults
from pytest_tokenwatt.gates.asked import is_scored, score_limits
from pytest_tokenwatt.gates.catalog import list_gates
from pytest_tokenwatt.gates.deltas import mean_of, stated_mean, suite_delta
from pytest_tokenwatt.gates.divergence import kl_delta
from pytest_tokenwatt.gates.finding import NOT_STORED, Finding, no_baseline, unusable
from pytest_tokenwatt.gates.score import ScoreParts, Standing, Term, drift_points, score_of
from pytest_tokenwatt.gates.shifts import length_delta
from pytest_tokenwatt.gates.speeds import memory_delta, online_profile, repeated_profiles, speed_delta
from pytest_tokenwatt.gates.stated import same_source, states
from pytest_tokenwatt.gates.telling import said_once
from pytest_tokenwatt.records import ConfigRecord, GateResult, GateSpec, Reason, Verdict
from pytest_tokenwatt.records.profiles import Ratio, ScoreDelta
from pytest_tokenwatt.spec.model import Spec

_HALF_WIDTH = 1.96
"""Standard errors to a two-sided 95 % half-width."""
_RULE = "qualified"


def judge_score(
    gate: GateSpec,
    candidate: ConfigRecord,
    baseline: ConfigRecord | None,
    records: Sequence[ConfigRecord],
    results: Sequence[GateResult],
    baselines: Sequence[ConfigRecord] = (),
) -> Finding:
    """Pass when the record qualifies, fail when a gate that it rests on failed, inconclusive when one is undecided.

    Invalid when a measurement is not to be believed, or a figure of the score is not known. ``results`` are those of
    the other gates of the session: one that was not judged is undecided. ``baselines`` are all runs of the baseline on
    record.
    """
    if baseline is None:
        return no_baseline(gate.limits.get("on_missing_baseline", "fail"), "not compared", _RULE)
    parts = score_parts(gate.limits, candidate, baseline, records, results, baselines)
    delta = _as_stated(score_of(parts), candidate)
    verdict, reasons = _judge(parts, delta)
    if verdict is Verdict.PASS and not delta.qualified:
        verdict, reasons = Verdict.FAIL, (Reason("not_qualified", delta.reason or ""),)
    if verdict is Verdict.INVALID:
        return unusable(reasons, _RULE)
    error = None if delta.score_se is None else _HALF_WIDTH * delta.score_se
    return Finding(verdict, _text(delta), _RULE, delta.score, "score", None, error, reasons)


def score_deltas(
    spec: Spec,
    records: Sequence[ConfigRecord],
    results: Sequence[GateResult],
    baseline: ConfigRecord | None = None,
    baselines: Sequence[ConfigRecord] = (),
) -> dict[str, ScoreDelta]:
    """By configuration, its leaderboard figures against ``baseline`` (else the record whose role that is).

    Nothing for a baseline itself, without any, or without a ``score`` block.
    """
    base = baseline or next((record for record in records if record.role == "baseline"), None)
    scored = {record.key for record in records if is_scored(spec, record)}
    if base is None or not scored:
        return {}
    gates = list_gates(spec, records)
    limits = {
        config.key: score_limits(spec, config, [gate for gate in gates if gate.config == config.key])
        for config in spec.configurations
    }
    return {
        record.key: score_delta(limits[record.key], record, base, records, results, baselines)
        for record in records
        if record.role != "baseline" and record.key in limits and record.key in scored
    }


def score_delta(
    limits: Mapping[str, Any],
    candidate: ConfigRecord,
    baseline: ConfigRecord,
    records: Sequence[ConfigRecord],
    results: Sequence[GateResult],
    baselines: Sequence[ConfigRecord] = (),
) -> ScoreDelta:
    """The leaderboard figures by the limits of a score gate."""
    parts = score_parts(limits, candidate, baseline, records, results, baselines)
    return _as_stated(score_of(parts), candidate)


def _as_stated(delta: ScoreDelta, candidate: ConfigRecord) -> ScoreDelta:
    """With the error that the record states, and not qualified where the record itself says so."""
    told = _with_stated_error(delta, candidate)
    if told.qualified and states(candidate).verdicts.get("score") == Verdict.FAIL:
        return replace(told, qualified=False, reason="the record itself says that it does not qualify")
    return told


def _with_stated_error(delta: ScoreDelta, candidate: ConfigRecord) -> ScoreDelta:
    """The score's error is an input of a record that states it: its parts do not tell all of theirs."""
    stated = states(candidate)
    if candidate.stored is None or delta.score is None:
        return delta
    if stated.score_se is None:
        why = "the record does not state it"
        return replace(delta, score_se=None, missing={**delta.missing, "score_se": why})
    missing = {name: why for name, why in delta.missing.items() if name != "score_se"}
    return replace(delta, score_se=stated.score_se, missing=missing)


def score_parts(
    limits: Mapping[str, Any],
    candidate: ConfigRecord,
    baseline: ConfigRecord,
    records: Sequence[ConfigRecord],
    results: Sequence[GateResult],
    baselines: Sequence[ConfigRecord] = (),
) -> ScoreParts:
    """What the score is made of: the deltas that the gates judge too, and what those gates found."""
    own = [result for result in results if result.config == candidate.key]
    suites: Mapping[str, int] = limits.get("suites") or {}
    deltas = {name: suite_delta(name, candidate, baseline, suites[name]) for name in suites}
    drops = stated_mean(mean_of(deltas, {}), candidate, baseline, {})
    return ScoreParts(
        speed=_speed(limits, candidate, baseline, records, baselines),
        memory=_memory(limits, candidate, baseline, baselines),
        length_shift=_length(limits, candidate, baseline),
        drift=_drift(limits, candidate, baseline),
        mean_drop_pts=drops.mean_drop_pts,
        valid_domains=drops.valid_domains,
        tiers=limits["tiers"],
        gates=dict(_standings(_decisive(limits["gates"], candidate, own), own)),
        faults=tuple(dict.fromkeys(admission_faults(candidate, own))),
    )


def _decisive(needed: Sequence[str], candidate: ConfigRecord, results: Sequence[GateResult]) -> list[str]:
    """The gates that a record must pass: one that only states its figures decides by those that it has.

    Of several gates of one kind (suites and their mean) one must be decided, so that none is lost with its figures. An
    audit that is not stored leaves open whether the outputs are the model's.
    """
    absent = {result.gate for result in results if any(reason.code == NOT_STORED for reason in result.reasons)}
    needed = [*needed, *absent.intersection(("audit",))]
    decided = {gate.partition("[")[0] for gate in needed if gate not in absent}
    if candidate.stored is None:
        return needed
    return [gate for gate in needed if gate not in absent or gate.partition("[")[0] not in decided]


def _judge(parts: ScoreParts, delta: ScoreDelta) -> tuple[Verdict, tuple[Reason, ...]]:
    failed = any(each.verdict is Verdict.FAIL for each in parts.gates.values())
    untrue = any(fault.code == AUDIT_FAILED for fault in parts.faults)
    reason = delta.reason or ""
    if failed or untrue:
        return Verdict.FAIL, (Reason("not_qualified", reason),)
    if parts.faults:
        return Verdict.INVALID, parts.faults
    if delta.undecided:
        return Verdict.INCONCLUSIVE, (Reason("undecided", reason),)
    if delta.score is None:
        return Verdict.INVALID, (Reason("not_measured", reason),)
    return Verdict.PASS, ()


def _standings(needed: Sequence[str], results: Sequence[GateResult]) -> Iterator[tuple[str, Standing]]:
    """What each needed gate found, whether it is enforced or only informational."""
    found = {result.gate: result for result in results}
    for name in needed:
        result = found.get(name)
        if result is None:
            yield name, Standing(Verdict.INCONCLUSIVE, "it was not judged; select it too")
        else:
            yield name, Standing(result.found or result.verdict, "; ".join(each.text for each in result.reasons))


def _text(delta: ScoreDelta) -> str:
    """ "1.456 (E 1.539, D 0.551, tier A)"."""
    gain = "E unknown" if delta.efficiency_gain is None else f"E {delta.efficiency_gain:.3f}"
    drift = "D unknown" if delta.drift is None else f"D {delta.drift:.3f}"
    tier = "no tier" if delta.tier is None else f"tier {delta.tier}"
    return f"{'no score' if delta.score is None else f'{delta.score:.3f}'} ({gain}, {drift}, {tier})"


# --- the parts


def _speed(
    limits: Mapping[str, Any],
    candidate: ConfigRecord,
    baseline: ConfigRecord,
    records: Sequence[ConfigRecord],
    baselines: Sequence[ConfigRecord],
) -> Term:
    again = repeated_profiles(baseline, records)
    online = online_profile(limits.get("online_slo"), records, baselines)
    delta = speed_delta(candidate, baseline, again, names=limits["profiles"], online=online, baselines=baselines)
    return _term(delta.overall, delta.faults, "the spec has no profiles")


def _memory(
    limits: Mapping[str, Any], candidate: ConfigRecord, baseline: ConfigRecord, baselines: Sequence[ConfigRecord]
) -> Term:
    delta = memory_delta(candidate, baseline, names=limits["profiles"], baselines=baselines)
    return _term(delta.overall, delta.faults, "the spec has no profiles")


def _term(ratio: Ratio | None, faults: Sequence[Reason], nothing: str) -> Term:
    if ratio is None or ratio.value is None:
        return Term(missing="; ".join(map(str, said_once(faults))) or nothing)
    return Term(ratio.value, None if ratio.error is None else ratio.error / _HALF_WIDTH)


def _length(limits: Mapping[str, Any], candidate: ConfigRecord, baseline: ConfigRecord) -> Term:
    names, drift = list(limits.get("suites") or ()), bool(limits.get("drift"))
    if not (names or drift):
        return Term(missing="the spec asks for no answers that end by themselves")
    delta = length_delta(names, candidate, baseline, drift=drift)
    if delta.shift is None:
        return Term(missing="; ".join(map(str, said_once(delta.faults))))
    half = None if delta.interval is None else (delta.interval[1] - delta.interval[0]) / 2
    return Term(delta.shift, None if half is None else half / _HALF_WIDTH)


def _drift(limits: Mapping[str, Any], candidate: ConfigRecord, baseline: ConfigRecord) -> Term:
    stated = states(candidate).drift_points
    if stated is not None and same_source(candidate, baseline):
        return Term(stated, _stated_drift_se(limits, candidate))
    if candidate.drift is None:
        return Term(missing=f"{candidate.key} was not scored (drift:)")
    faults, found = kl_delta(candidate, baseline).faults, candidate.drift.against
    if faults or found is None or found.kl is None:
        return Term(missing="; ".join(map(str, faults)) or "only the guaranteed bound of KL is known")
    return drift_points(found.kl, found.kl_se, limits["points_per_nat"])


def _stated_drift_se(limits: Mapping[str, Any], candidate: ConfigRecord) -> float | None:
    found = candidate.drift.against if candidate.drift else None
    return None if found is None or found.kl_se is None else limits["points_per_nat"] * found.kl_se

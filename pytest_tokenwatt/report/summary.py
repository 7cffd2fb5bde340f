"""The sentences at the head of a lab report, written from the verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_tokenwatt.records import DEFAULT_SCENARIO, ConfigRecord, GateResult, Verdict
from pytest_tokenwatt.records.accuracy import AccuracyDelta
from pytest_tokenwatt.report.context import ReportContext
from pytest_tokenwatt.report.drift import drift_words
from pytest_tokenwatt.report.gains import gain_words, score_words
from pytest_tokenwatt.report.promise import own_slo, slo_words, slos_differ
from pytest_tokenwatt.report.text import change, listing, number, points
from pytest_tokenwatt.spec.model import Spec

_TWIN = "identical_configs"
_AXES = {"goodput": "SLO goodput", "energy": "tokens per joule"}


def summary(
    spec: Spec,
    records: Sequence[ConfigRecord],
    gates: Sequence[GateResult],
    caveats: Sequence[str],
    context: ReportContext,
) -> str:
    """What the run showed of each configuration, behind the first words of each caveat."""
    heads = [f"{caveat.split(':', 1)[0]}." for caveat in caveats]
    base = context.baseline or next((record for record in records if record.role == "baseline"), None)
    own = {record.key: [gate for gate in gates if gate.config == record.key] for record in records}
    told = (_sentence(_Scene(spec, records, base), each, own[each.key], _compared(each, context)) for each in records)
    return " ".join([*heads, *(f"{record.label} {words}." for record, words in zip(records, told, strict=True))])


@dataclass(frozen=True, slots=True)
class _Scene:
    """What all sentences are told of: the spec, its records, and the one that others are compared with."""

    spec: Spec
    records: Sequence[ConfigRecord]
    baseline: ConfigRecord | None


def _compared(record: ConfigRecord, context: ReportContext) -> list[str]:
    """What quality, speed and memory are against the baseline's."""
    key = record.key
    drift = context.drift.get(key)
    return [
        *gain_words(context.speeds.get(key), context.memories.get(key)),
        *_answers(context.accuracy.get(key)),
        *(drift_words(drift) if drift else ()),
        *score_words(context.scores.get(key)),
    ]


def _sentence(scene: _Scene, record: ConfigRecord, own: Sequence[GateResult], quality: Sequence[str]) -> str:
    # Of the same engine twice there is no difference to tell of.
    twin = any(reason.code == _TWIN for gate in own for reason in gate.reasons)
    changes = [*_changes(scene, record, own), *(() if twin else quality)]
    told = _repeat(scene, record) or listing(changes) or listing([*_level(scene, record), *_scores(record)])
    outcomes = listing(list(_outcomes(own)))
    nothing = "was not measured" if record.stored is None else "has neither goodput nor score stored"
    return " but ".join(filter(None, [told, outcomes])) or nothing


def _changes(scene: _Scene, record: ConfigRecord, gates: Sequence[GateResult]) -> Iterator[str]:
    """What the relative gates measured against the baseline, with the error of each ratio."""
    for gate in gates:
        axis = _AXES.get(gate.gate.split("[", 1)[0])
        # An absolute gate carries tok/s or tok/J; only ratios compare.
        if axis is None or gate.value is None or gate.unit != "ratio":
            continue
        scenario = gate.gate.partition("[")[2].rstrip("]")
        if slos_differ(scene.spec, scenario or DEFAULT_SCENARIO, record, scene.baseline):
            axis = f"{axis.removeprefix('SLO ')} under different SLOs"
        # Of a record from elsewhere an error that it does not state counts as 0, which is none that was measured.
        stated = record.stored is None or gate.error != 0
        yield _change(f"{axis} ({scenario})" if scenario else axis, gate.value, gate.error, stated=stated)


def _change(axis: str, ratio: float, error: float | None, *, stated: bool) -> str:
    if error is None:
        return f"showed {change(ratio)} {axis} with an unknown error"
    if abs(ratio - 1) <= error:
        return f"made no measurable difference to {axis} ({change(ratio)} ± {100 * error:.1f} %)"
    width = f"± {100 * error:.1f} %" if stated else "without a stored error"
    return f"{'raised' if ratio > 1 else 'lowered'} {axis} {100 * abs(ratio - 1):.1f} % ({width})"


def _repeat(scene: _Scene, record: ConfigRecord) -> str:
    original = next((each for each in scene.records if each.key == record.like), None)
    if original is None:
        return ""
    first, again = _goodput(original), _goodput(record)
    if not first or not again:
        return ""
    name = next(iter(record.scenarios))
    differ = slos_differ(scene.spec, name, record, original)
    axis = "goodput under different SLOs" if differ else "SLO goodput"
    return f"repeated {original.label} with {change(again / first)} {axis}"


def _goodput(record: ConfigRecord) -> float | None:
    goodput = next(iter(record.scenarios.values()), None)
    return None if goodput is None or goodput.invalid else goodput.goodput_tok_s


def _answers(accuracy: AccuracyDelta | None) -> Iterator[str]:
    """The suites whose interval leaves out no change, each with its own, and the others together."""
    suites = accuracy.suites if accuracy else {}
    unclear: list[str] = []
    for name, suite in suites.items():
        words = "accuracy" if len(suites) == 1 else f"accuracy ({name})"
        if suite.delta_pts is None:
            continue
        if suite.interval_pts is None:
            yield f"showed {points(suite.delta_pts)} pt {words} with an unknown error"
        elif suite.interval_pts[0] <= 0 <= suite.interval_pts[1]:
            unclear.append(points(suite.delta_pts) if len(suites) == 1 else f"{name} {points(suite.delta_pts)}")
        else:
            verb = "raised" if suite.delta_pts > 0 else "lowered"
            low, high = map(points, suite.interval_pts)
            yield f"{verb} {words} {abs(suite.delta_pts):.1f} pt (95 % interval {low} to {high})"
    if unclear:
        yield f"made no measurable difference to accuracy ({', '.join(unclear)} pt)"


def _scores(record: ConfigRecord) -> Iterator[str]:
    scores = [f"{suite.score:.1f} % on {name}" for name, suite in record.suites.items() if suite.score is not None]
    if scores and not record.invalid:
        yield f"scored {listing(scores)}"


def _level(scene: _Scene, record: ConfigRecord) -> Iterator[str]:
    levels = []
    for name, goodput in record.scenarios.items():
        if goodput.goodput_tok_s is not None and goodput.rate_rps is not None and not goodput.invalid:
            scenario = "" if name == DEFAULT_SCENARIO else f" ({name})"
            other = own_slo(goodput, scene.spec.configuration(record.key))
            under = f" under {slo_words(other)}" if other else ""
            levels.append(f"{number(goodput.goodput_tok_s)} tok/s at {number(goodput.rate_rps)} req/s{scenario}{under}")
    if levels:
        yield f"reached {'a' if any(' under ' in each for each in levels) else 'an SLO'} goodput of {listing(levels)}"


def _outcomes(gates: Sequence[GateResult]) -> Iterator[str]:
    if failed := _named(gates, Verdict.FAIL):
        yield f"failed the {failed}"
    if inconclusive := _named(gates, Verdict.INCONCLUSIVE):
        yield f"left the {inconclusive} inconclusive"
    if invalid := _named(gates, Verdict.INVALID):
        codes = {reason.code: None for gate in gates if gate.verdict is Verdict.INVALID for reason in gate.reasons}
        why = f" ({', '.join(codes)})" if codes else ""
        yield f"has no valid measurement for the {invalid}{why}"


def _named(gates: Sequence[GateResult], verdict: Verdict) -> str:
    names = [gate.gate for gate in gates if gate.verdict is verdict]
    return f"{listing(names)} {'gate' if len(names) == 1 else 'gates'}" if names else ""

"""Whether what is stored of a run can decide a gate: asked by a replay before it judges.

A figure that was measured and is not to be believed is stored as such, so that it is judged like any other. A gate
that is not decidable for want of a figure is inconclusive where its block asks for it, and else only listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from pytest_tokenwatt.gates import unstored_efficiency as efficiency
from pytest_tokenwatt.gates import unstored_quality as quality
from pytest_tokenwatt.gates import unstored_serving as serving
from pytest_tokenwatt.gates.figures import configuration_figure, split_name
from pytest_tokenwatt.gates.finding import NOT_STORED
from pytest_tokenwatt.gates.lacking import Sides, both, lacks
from pytest_tokenwatt.gates.promised import under_another
from pytest_tokenwatt.gates.stated import same_source, states
from pytest_tokenwatt.records import ConfigRecord, GateSpec, Reason
from pytest_tokenwatt.spec.model import Spec


def undecidable(
    gate: GateSpec,
    candidate: ConfigRecord,
    baseline: ConfigRecord | None,
    _: Sequence[ConfigRecord] = (),
) -> Reason | None:
    """The reason ``not_stored`` with the figure that is missing; ``None`` when the gate can be judged."""
    if candidate.invalid or (baseline is not None and baseline.invalid):
        return None
    missing = next(_LOOKUPS[gate.kind]((gate, candidate, baseline)), None)
    return None if missing is None else Reason(NOT_STORED, missing)


def asks_for(spec: Spec, gate: GateSpec) -> bool:
    """Whether the spec has the gate's block, so that a figure that is missing may not go unnoticed.

    What follows from other blocks (contract, length of answers, a submission's mean and score) has none of its own.
    """
    if gate.kind in ("contract", "length"):
        return bool((spec.raw.get("gates") or {}).get(gate.kind))
    if gate.kind == "score":
        return spec.score is not None
    return gate.kind != "accuracy" or bool(spec.accuracy)


def _rule(sides: Sides) -> Iterator[str]:
    gate, candidate, baseline = sides
    compared = any(gate.limits.get(name) is not None for name in ("min_ratio", "max_ratio"))
    for config in both(candidate, baseline if compared else None):
        if told := _under_another(gate, config):
            yield f"{gate.limits['metric']} of {config.key}: {told}"
        elif not _has_figure(gate, config):
            yield lacks(str(gate.limits["metric"]), config)


def _under_another(gate: GateSpec, config: ConfigRecord) -> str | None:
    if split_name(gate.limits["metric"]) is not None:
        return None
    asked = [each for name, each in config.scenarios.items() if gate.scenario in (None, name)]
    return next((told for record in asked if (told := under_another(record))), None)


def _has_figure(gate: GateSpec, config: ConfigRecord) -> bool:
    metric = gate.limits["metric"]
    if split_name(metric) is not None:
        return config.stored is None or configuration_figure(config, metric).value is not None
    names = [gate.scenario] if gate.scenario is not None else list(config.scenarios)
    records = [config.scenarios.get(name) for name in names]
    if not records or None in records:
        return False
    figures = [(record, record.figures.get(metric)) for record in records if record is not None]
    return config.stored is None or all(
        record.invalid or (figure is not None and figure.value is not None) for record, figure in figures
    )


def _score(sides: Sides) -> Iterator[str]:
    _, candidate, baseline = sides
    yield from serving.contract(sides)
    yield from efficiency.speed(sides)
    yield from efficiency.memory(sides)
    yield from quality.length(sides)
    points = states(candidate).drift_points
    if points is None or baseline is None or not same_source(candidate, baseline):
        yield from quality.kl(sides)


_LOOKUPS: Mapping[str, Callable[[Sides], Iterator[str]]] = {
    "contract": serving.contract,
    "slo": serving.slo,
    "goodput": serving.goodput,
    "energy": serving.energy,
    "accuracy": quality.accuracy,
    "length": quality.length,
    "kl": quality.kl,
    "perplexity": quality.perplexity,
    "speed": efficiency.speed,
    "memory": efficiency.memory,
    "audit": efficiency.audit,
    "budget": efficiency.budget,
    "precision": efficiency.precision,
    "rule": _rule,
    "score": _score,
}
"""By kind of gate, what it needs that is not stored."""

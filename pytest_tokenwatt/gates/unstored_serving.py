"""What the gates of serving need of a stored run and do not find."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_tokenwatt.gates.lacking import Sides, lacks
from pytest_tokenwatt.gates.stated import confirmed, is_null, states
from pytest_tokenwatt.records import DEFAULT_SCENARIO, ConfigRecord, GateSpec, GoodputRecord


def contract(sides: Sides) -> Iterator[str]:
    """The probes, or the verdict on them."""
    _, candidate, _ = sides
    if candidate.contract is None and "contract" not in states(candidate).verdicts:
        yield lacks("the contract", candidate)


def slo(sides: Sides) -> Iterator[str]:
    """How many repeats passed, and percentiles where the spec bounds them otherwise than the record."""
    gate, candidate, _ = sides
    record = candidate.scenarios.get(gate.scenario or DEFAULT_SCENARIO)
    if record is None:
        yield lacks(_scenario(gate), candidate)
    elif candidate.stored is not None and not record.invalid:
        if record.repeats <= 0 or is_null(candidate, "slo_pass_count"):
            yield lacks("slo_pass_count", candidate)
        if gate.limits.get("at_rps") is not None and record.rate_rps is None and not record.misses:
            yield lacks("rate_rps", candidate)
        yield from _bounds(gate, candidate, record)


def _bounds(gate: GateSpec, candidate: ConfigRecord, record: GoodputRecord) -> Iterator[str]:
    """Percentiles that a spec bounds otherwise than the record's own, of which therefore no count of repeats tells."""
    told = {bound.name: bound.bound_ms for bound in record.slo}
    known = {each.name for each in record.percentiles if each.value_ms is not None or each.infinite}
    for name, bound_ms in gate.limits.items():
        if name.endswith("_ms") and bound_ms is not None and told.get(name) != bound_ms and name not in known:
            yield lacks(name, candidate)


def goodput(sides: Sides) -> Iterator[str]:
    """The rate of tokens on both sides."""
    gate, candidate, baseline = sides
    yield from _rate(gate, candidate)
    record = candidate.scenarios.get(gate.scenario or DEFAULT_SCENARIO)
    rateless = record is not None and record.rate_rps is None and confirmed(candidate, record)
    if rateless and gate.limits.get("min_rps") is not None:
        yield lacks("rate_rps", candidate)
    if baseline is not None and gate.limits.get("min") is not None:
        yield from _rate(gate, baseline)


def _rate(gate: GateSpec, config: ConfigRecord) -> Iterator[str]:
    """Goodput that is stored as null is known to be none."""
    record = config.scenarios.get(gate.scenario or DEFAULT_SCENARIO)
    if record is None:
        yield lacks(_scenario(gate), config)
    elif config.stored is not None and not (record.invalid or record.misses or confirmed(config, record)):
        yield from () if is_null(config, "goodput_tok_s") else (lacks("goodput_tok_s", config),)


def _scenario(gate: GateSpec) -> str:
    name = gate.scenario or DEFAULT_SCENARIO
    return "goodput" if name == DEFAULT_SCENARIO else f"the goodput of scenario {name}"


def energy(sides: Sides) -> Iterator[str]:
    """Tokens per joule; of the baseline only where a limit compares with it."""
    gate, candidate, baseline = sides
    compared = [baseline] if baseline is not None and gate.limits.get("min") is not None else []
    for config in (candidate, *compared):
        yield from _rate(gate, config)
        record = config.scenarios.get(gate.scenario or DEFAULT_SCENARIO)
        if config.stored is None or record is None or record.invalid or record.misses:
            continue
        if record.energy is None or (record.energy.tokens_per_joule is None and not record.energy.invalid):
            yield lacks("tokens_per_joule", config)

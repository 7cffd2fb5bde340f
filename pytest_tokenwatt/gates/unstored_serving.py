"""What the gates of serving need of a stored run and do not find."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_tokenwatt.gates.lacking import Sides, lacks
from pytest_tokenwatt.gates.promised import asks_otherwise, lacking_for, under_another
from pytest_tokenwatt.gates.serving import asked_bounds, shows_failure
from pytest_tokenwatt.gates.stated import confirmed, is_null, states
from pytest_tokenwatt.records import DEFAULT_SCENARIO, ConfigRecord, GateSpec, GoodputRecord


def contract(sides: Sides) -> Iterator[str]:
    """The probes, or the verdict on them."""
    _, candidate, _ = sides
    if candidate.contract is None and "contract" not in states(candidate).verdicts:
        yield lacks("the contract", candidate)


def slo(sides: Sides) -> Iterator[str]:
    """How many repeats passed; percentiles stored as null, or bounded otherwise than the record's own are.

    What is known may show a failure all the same.
    """
    gate, candidate, _ = sides
    record = candidate.scenarios.get(gate.scenario or DEFAULT_SCENARIO)
    if record is None:
        yield lacks(_scenario(gate), candidate)
    elif told := under_another(record):
        yield f"{_scenario(gate)} of {candidate.key}: {told}"
    elif not record.invalid:
        if asks_otherwise(record, asked_bounds(gate)):
            yield from _repeats_again(gate, candidate, record)
        if record.slo_pass_count is None or (candidate.stored is not None and record.repeats <= 0):
            yield lacks("slo_pass_count", candidate)
        if candidate.stored is not None and not shows_failure(gate, record):
            yield from _of_stored(gate, candidate, record)


def _repeats_again(gate: GateSpec, candidate: ConfigRecord, record: GoodputRecord) -> Iterator[str]:
    """Windows that do not tell of the bounds asked for."""
    asked = asked_bounds(gate)
    lacking = lacking_for(record, asked, gate.limits.get("at_rps") or record.rate_rps)
    if lacking is not None and not (record.rate_rps is None and confirmed(candidate, record)):
        yield lacks(lacking, candidate)
    few = record.slo_pass_count is not None and record.slo_pass_count < record.repeats
    if few and confirmed(candidate, record) and not (record.windows or shows_failure(gate, record)):
        yield lacks("slo_pass_count under the bounds asked for", candidate)


def _of_stored(gate: GateSpec, candidate: ConfigRecord, record: GoodputRecord) -> Iterator[str]:
    if gate.limits.get("at_rps") is not None and record.rate_rps is None and not record.misses:
        yield lacks("rate_rps", candidate)
    told = {bound.name: bound.bound_ms for bound in record.slo}
    known = {each.name for each in record.percentiles if each.value_ms is not None}
    null = {each.name for each in record.percentiles}.difference(known)
    for name, bound_ms in asked_bounds(gate).items():
        # A count of repeats tells of percentiles that have no field, under the bounds that it was counted by.
        if name not in known and (name in null or told.get(name) != bound_ms):
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
    """Goodput that is stored as null is known to be none; one under another SLO is not known."""
    record = config.scenarios.get(gate.scenario or DEFAULT_SCENARIO)
    if record is None:
        yield lacks(_scenario(gate), config)
    elif told := under_another(record):
        yield f"{_scenario(gate)} of {config.key}: {told}"
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

"""Makes configurations out of a spec's data: merges blocks, repeats ``like`` ones, resolves scenarios, checks all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, get_args

from pydantic import ValidationError

from pytest_tokenwatt.records import DEFAULT_SCENARIO
from pytest_tokenwatt.spec.builder import KeyPath
from pytest_tokenwatt.spec.configuration import Configuration
from pytest_tokenwatt.spec.document import Role
from pytest_tokenwatt.spec.findings import ROOT, Findings
from pytest_tokenwatt.spec.gating import Gates
from pytest_tokenwatt.spec.merge import merged, merged_blocks
from pytest_tokenwatt.spec.naming import entries, repeated_entry
from pytest_tokenwatt.spec.scalars import Block
from pytest_tokenwatt.spec.serving import Engine, Model, Power
from pytest_tokenwatt.spec.starting import open_secrets, start_findings
from pytest_tokenwatt.spec.traffic import Measurement, Scenario, Slo, Sweep, Workload

_B = TypeVar("_B", bound=Block)


class _Overridable(Block):
    """The blocks of a configuration after merging."""

    engine: Engine = Engine()
    model: Model = Model()
    workload: Workload = Workload()
    power: Power = ()
    gates: Gates = Gates()


class _Timed(Block):
    """The blocks of a scenario after merging."""

    workload: Workload = Workload()
    slo: Slo | None = None
    sweep: Sweep = Sweep()
    measurement: Measurement = Measurement()


@dataclass(frozen=True, slots=True)
class _Draft:
    """A configuration before validation: merged data, expanded and as written, and where its keys may stand."""

    key: str
    role: Role
    label: str
    like: str | None
    precision: str | None
    place: int | None
    heads: tuple[KeyPath, ...]
    blocks: Mapping[str, Any]
    raw: Mapping[str, Any]


def checked(block: type[_B], data: Any, findings: Findings, heads: tuple[KeyPath, ...] = ROOT) -> _B | None:
    """The validated block, or ``None`` with every problem reported."""
    try:
        return block.model_validate(data)
    except ValidationError as error:
        findings.add_errors(error, block, heads)
        return None


def configurations(
    data: Mapping[str, Any], written: Mapping[str, Any], findings: Findings
) -> tuple[Configuration, ...]:
    """All configurations that are in order; what is wrong with the others is reported."""
    found = (_configuration(draft, data, findings) for draft in _drafts(data, written))
    return tuple(configuration for configuration in found if configuration is not None)


def _drafts(data: Mapping[str, Any], written: Mapping[str, Any]) -> Iterator[_Draft]:
    if data.get("configs") is None:
        blocks = merged_blocks(data, {"gates": _recording(data.get("gates"))})
        yield _Draft("baseline", "baseline", "baseline", None, None, None, ROOT, blocks, merged_blocks(written, {}))
        return
    for place, entry in entries(data, ("configs",)):
        if isinstance(entry.get("key"), str):
            yield _draft(place, entry, data, written)


def _recording(gates: Any) -> Any:
    """Without ``configs`` a missing baseline is recorded rather than failed, unless the spec says otherwise."""
    said = isinstance(gates, Mapping) and gates.get("on_missing_baseline") is not None
    return None if said else {"on_missing_baseline": "record"}


def _draft(place: int, entry: Mapping[str, Any], data: Mapping[str, Any], written: Mapping[str, Any]) -> _Draft:
    key, role, label, precision = (entry.get(name) for name in ("key", "role", "label", "precision"))
    draft = _Draft(
        key=str(key),
        role=role or _usual_role(str(key), entry.get("like")),
        label=str(label or key),
        like=entry.get("like"),
        precision=precision,
        place=place,
        heads=(("configs", place), ()),
        blocks=merged_blocks(data, entry),
        raw=merged_blocks(written, written["configs"][place]),
    )
    repeated = repeated_entry(data, entry)
    return draft if repeated is None else _repeat(draft, repeated, data, written)


def _repeat(
    draft: _Draft, repeated: tuple[int, Mapping[str, Any]], data: Mapping[str, Any], written: Mapping[str, Any]
) -> _Draft:
    """The blocks of the configuration that ``like`` names; only limits may differ."""
    place, entry = repeated
    own = written["configs"][draft.place]
    over = data["configs"][draft.place]
    return replace(
        draft,
        precision=entry.get("precision"),
        heads=(("configs", draft.place or 0), ("configs", place), ()),
        blocks=merged_blocks(merged_blocks(data, entry), {"gates": over.get("gates")}),
        raw=merged_blocks(merged_blocks(written, written["configs"][place]), {"gates": own.get("gates")}),
    )


def _usual_role(key: str, like: object) -> Role:
    if like is not None:
        return "other"
    return next((role for role in get_args(Role) if role == key), "tuned")


def _configuration(draft: _Draft, data: Mapping[str, Any], findings: Findings) -> Configuration | None:
    blocks = checked(_Overridable, draft.blocks, findings, draft.heads)
    scenarios = _scenarios(draft, data, findings)
    engine = draft.blocks.get("engine")
    _report(open_secrets(engine) if isinstance(engine, Mapping) else iter(()), draft, findings)
    if blocks is not None:
        _report(start_findings(blocks.engine), draft, findings)
    if blocks is None or not scenarios or findings.problems:
        return None
    return Configuration(
        key=draft.key,
        role=draft.role,
        label=draft.label,
        like=draft.like,
        precision=draft.precision,
        line=None if draft.place is None else findings.line(("configs", draft.place)),
        engine=blocks.engine,
        model=blocks.model,
        workload=blocks.workload,
        power=blocks.power,
        gates=blocks.gates,
        scenarios=scenarios,
        raw=draft.raw,
    )


def _report(found: Iterator[tuple[KeyPath, str, str]], draft: _Draft, findings: Findings) -> None:
    for loc, what, remedy in found:
        findings.add(findings.place(loc, draft.heads), what, remedy)


def _scenarios(draft: _Draft, data: Mapping[str, Any], findings: Findings) -> tuple[Scenario, ...]:
    base = {name: data.get(name) for name in ("slo", "sweep", "measurement")}
    base["workload"] = draft.blocks.get("workload")
    listed = entries(data, ("scenarios",))
    if not listed:
        return _scenario(DEFAULT_SCENARIO, base, {}, draft.heads, findings)
    found = (
        _scenario(entry.get("name"), base, entry, (("scenarios", place), *draft.heads), findings)
        for place, entry in listed
    )
    return tuple(scenario for group in found for scenario in group)


def _scenario(
    name: Any, base: Mapping[str, Any], entry: Mapping[str, Any], heads: tuple[KeyPath, ...], findings: Findings
) -> tuple[Scenario, ...]:
    """One scenario, or none when something is wrong with it. Its ``slo`` replaces the one above as a whole."""
    blocks = {block: merged(base[block], entry.get(block)) for block in ("workload", "sweep", "measurement")}
    blocks["slo"] = base["slo"] if entry.get("slo") is None else entry["slo"]
    timed = checked(_Timed, blocks, findings, heads)
    if timed is None or not isinstance(name, str):
        return ()
    return (
        Scenario(name=name, workload=timed.workload, slo=timed.slo, sweep=timed.sweep, measurement=timed.measurement),
    )

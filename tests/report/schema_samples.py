"""Reports of every form that the builders can give, and what the schema says of a document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from report_samples import CONTEXT, GATES, RECORDS, UNPOWERED, gate, goodput_of, record_of, spec_of
from submission_samples import ASKED, BASELINE, SUITE, TUNED, context_of

from pytest_tokenwatt.gates.deltas import accuracy_deltas
from pytest_tokenwatt.records import ConfigRecord, ItemResult, Outcome, Reason, Verdict
from pytest_tokenwatt.report.lab import build_report
from pytest_tokenwatt.report.schema import report_schema

REFERENCE = Path(__file__).parent / "reference"
FAULT = Reason("engine_died", "the engine ended during window 2")
SCENARIOS = [{"name": "chat"}, {"name": "rag", "slo": {"ttft_p99.9_ms": 4000}}]
TWO_SUITES: list[dict[str, Any]] = [
    {"name": "gsm8k-5shot", "suite": "gsm8k.jsonl", "max_drop_pts": 1.0},
    {"name": "mmlu", "suite": "mmlu.jsonl", "max_drop_pts": 2.0},
]
RANGES = {"enum", "const", "pattern", "minLength", "minimum", "maximum", "exclusiveMinimum", "minItems", "maxItems"}
"""What the schema says of values beyond their types."""
Report = dict[str, Any]


@cache
def validator() -> Draft202012Validator:
    return Draft202012Validator(report_schema())


def faults(document: Any, *, ranges: bool = True) -> list[str]:
    """Where a document breaks the schema, in one line each; of alternatives what is wrong with those of its type.

    Without ``ranges`` only the keys and the types of their values count.
    """
    found = [each for error in validator().iter_errors(document) for each in _innermost(error)]
    return [f"{each.json_path}: {each.message:.200}" for each in found if ranges or each.validator not in RANGES]


def _innermost(error: ValidationError) -> Iterator[ValidationError]:
    inner = [each for each in error.context or () if not (each.validator == "type" and each.instance is error.instance)]
    if not inner:
        yield error
    for each in inner:
        yield from _innermost(each)


def is_valid(document: Any) -> bool:
    return bool(validator().is_valid(document))


def stored(report: Mapping[str, Any]) -> Report:
    """The report as it comes back from a file. Fails on NaN and infinity."""
    read: Report = json.loads(json.dumps(report, allow_nan=False))
    return read


def with_suites(record: ConfigRecord, right: int, *names: str, tokens: int = 100) -> ConfigRecord:
    """Fifty items of each suite, in two domains, of which so many are answered rightly, in about so many tokens."""
    outcomes = [Outcome.CORRECT if number < right else Outcome.WRONG for number in range(50)]
    items = tuple(ItemResult(f"q{n}", 0, outcome, None, tokens + n % 7) for n, outcome in enumerate(outcomes))
    counts = {"correct": right, "wrong": 50 - right, "unparseable": 0, "truncated": 0, "failed": 0}
    domains = {item.id: "even" if number % 2 else "odd" for number, item in enumerate(items)}
    shared: dict[str, Any] = {
        "items": items,
        "counts": counts,
        "control": items,
        "domains": domains,
        "score": 2.0 * right,
        "n": None,
    }
    return replace(record, suites={name: replace(SUITE, name=name, **shared) for name in names})


# --- one report of each form


def plain(folder: Path) -> Report:
    return build_report(spec_of(folder), RECORDS, GATES, CONTEXT)


def empty(folder: Path) -> Report:
    return build_report(spec_of(folder), (), (), replace(CONTEXT, variance_band_pct=None))


def failed(folder: Path) -> Report:
    """Neither configuration came up, and one gate says so."""
    records = (record_of("baseline", None, **UNPOWERED), record_of("tuned", None, invalid=(FAULT,), **UNPOWERED))
    gates = (gate("tuned", "slo", Verdict.INVALID, reasons=(FAULT,)),)
    return build_report(spec_of(folder), records, gates, replace(CONTEXT, energy_band_pct=None))


def submitted(folder: Path) -> Report:
    spec, records = spec_of(folder, **ASKED), (BASELINE, TUNED)
    return build_report(spec, records, GATES, context_of(spec, records))


def scenarios(folder: Path) -> Report:
    found = {name: goodput_of(4572.3, scenario=name) for name in ("chat", "rag")}
    records = tuple(replace(record, scenarios=found) for record in RECORDS)
    return build_report(spec_of(folder, scenarios=SCENARIOS), records, GATES, CONTEXT)


def answers(folder: Path) -> Report:
    spec = spec_of(folder, accuracy=TWO_SUITES)
    names = [suite["name"] for suite in TWO_SUITES]
    records = (with_suites(RECORDS[0], 48, *names), with_suites(RECORDS[1], 45, *names))
    return build_report(spec, records, GATES, replace(CONTEXT, accuracy=accuracy_deltas(spec, records)))


def unasked(folder: Path) -> Report:
    """A spec without power, suites, fleet and the rest."""
    spec = spec_of(folder, power=None, accuracy=None, fleet=None, not_covered=None)
    records = tuple(replace(record, scenarios={"default": goodput_of(4572.3, energy=None)}) for record in RECORDS)
    return build_report(spec, records, (), replace(CONTEXT, variance_band_pct=None, energy_band_pct=None))


FORMS = {form.__name__: form for form in (plain, empty, failed, submitted, scenarios, answers, unasked)}

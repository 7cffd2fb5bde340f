"""What was promised and what came of it: everything that did not pass first, with its reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pytest_tokenwatt.report.html.access import mappings, number, reasons, text, worded
from pytest_tokenwatt.report.html.page import Page
from pytest_tokenwatt.report.html.parts import Cell, Line, Part, Section, Verdict, present, table
from pytest_tokenwatt.report.html.words import counted, measured, with_unit

WORST_FIRST = ("fail", "invalid", "inconclusive")
STATES = ("pass", *WORST_FIRST, "info")
_RELATIONS = {
    **dict.fromkeys(("goodput", "speed", "memory", "energy", "accuracy", "budget"), "≥"),
    **dict.fromkeys(("slo", "kl", "perplexity", "audit"), "≤"),
    "length": "within ±",
}
_MEANINGS = {
    "fail": "the rule is broken",
    "invalid": "the measurement itself is not to be believed",
    "inconclusive": "valid, but the sample cannot tell",
}


def verdicts(page: Page) -> Section:
    """Never left out: a run that judged nothing says so."""
    gates = mappings(page.report, "gates")
    if not gates:
        return Section("verdicts", "Verdicts", (Line("No gate was judged.", quiet=True),))
    cards = [_card(page, gate) for state in WORST_FIRST for gate in gates if state_of(gate) == state]
    return Section("verdicts", "Verdicts", present([Line(_count(gates)), *cards, _table(page, gates)]))


def state_of(gate: Mapping[str, Any]) -> str:
    """``pass``, ``fail``, ``inconclusive``, ``invalid``, or ``info``; an unknown verdict is ``invalid``."""
    verdict = text(gate, "verdict")
    if verdict == "-":
        return "info"
    return verdict if verdict in STATES else "invalid"


def _count(gates: list[Mapping[str, Any]]) -> str:
    """All verdicts in one sentence, the worst first."""
    counts = Counter(state_of(gate) for gate in gates)
    said = {"pass": "passed", "fail": "failed", "info": "informational"}
    parts = [f"{counts[state]} {said.get(state, state)}" for state in (*WORST_FIRST, "pass", "info") if counts[state]]
    meanings = [f"{state}: {_MEANINGS[state]}" for state in WORST_FIRST if counts[state]]
    explained = f" ({'; '.join(meanings)})" if meanings else ""
    return f"{counted(len(gates), 'gate')}: {', '.join(parts)}{explained}."


def _card(page: Page, gate: Mapping[str, Any]) -> Verdict:
    value, rule = _value(page, gate), _rule(page, gate)
    facts = "; ".join(part for part in (f"value {value}" if value else "", f"rule {rule}" if rule else "") if part)
    why = tuple(reasons(gate, "reasons")) or (_MEANINGS[state_of(gate)],)
    return Verdict(state_of(gate), text(gate, "gate"), text(gate, "config"), facts, why)


def _table(page: Page, gates: list[Mapping[str, Any]]) -> Part | None:
    head = ("Gate", "Verdict", "Value", "Rule")
    return table("All gates of this report", head, [_row(page, gate) for gate in gates])


def _row(page: Page, gate: Mapping[str, Any]) -> tuple[Cell, ...]:
    return (
        Cell(text(gate, "gate"), small=text(gate, "config")),
        Cell("", state=state_of(gate)),
        Cell(_value(page, gate)),
        Cell(_rule(page, gate)),
    )


def _value(page: Page, gate: Mapping[str, Any]) -> str:
    told = page.material.gates.get(text(gate, "id")) or worded(gate)
    if told is not None:
        return told.value
    value, error = number(gate, "value"), number(gate, "error")
    if value is None:
        return ""
    return measured(value, error, text(gate, "unit"))


def _rule(page: Page, gate: Mapping[str, Any]) -> str:
    told = page.material.gates.get(text(gate, "id")) or worded(gate)
    if told is not None:
        return told.rule
    limit = number(gate, "limit")
    if limit is None:
        return "informational" if state_of(gate) == "info" else ""
    relation = _RELATIONS.get(text(gate, "gate").partition("[")[0], "limit")
    return f"{relation} {with_unit(limit, text(gate, 'unit'))}"

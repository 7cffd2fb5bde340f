"""The table of verdicts that ends a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pytest_tokenwatt.records import GateResult, Verdict
from pytest_tokenwatt.report.screen import Screen
from pytest_tokenwatt.report.wrap import parts, parts_wrapped

STYLES = {
    Verdict.PASS: "green",
    Verdict.FAIL: "bold red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.INVALID: "bold magenta",
    Verdict.INFO: "dim",
}
GAP = 2
LEAST_ROOM = 32
"""Columns that value and rule need beside each other; with less, each gate takes two lines."""


def render_table(
    title: str, gates: Sequence[GateResult], screen: Screen, *, notes: Iterable[str] = (), report: str | None = None
) -> str:
    """The verdicts with their values and rules, below it why anything did not pass, notes, and the report's path.

    ``notes`` are the caveats of the run (simulated, quick). The path is never wrapped, so that it can be copied.
    """
    below: list[RenderableType] = _reasons(gates, screen)
    below += [screen.hanging(note, lead="note:", style="yellow") for note in notes]
    parts: list[RenderableType] = [screen.title(f"tokenwatt: {title}"), _verdicts(gates, screen), *below]
    return screen.render(*parts) + (screen.line(f"report: {report}") if report is not None else "")


def _verdicts(gates: Sequence[GateResult], screen: Screen) -> RenderableType:
    if not gates:
        return screen.text("no gate was judged")
    configs = _widest(gate.config for gate in gates)
    names = _widest(gate.gate for gate in gates)
    room = screen.width - configs - names - _verdict_width(gates) - 4 * GAP
    return _wide(gates, screen, room) if room >= LEAST_ROOM else _narrow(gates, screen)


def _widest(words: Iterable[str]) -> int:
    return max((len(word) for word in words), default=0)


def _verdict_width(gates: Sequence[GateResult]) -> int:
    return _widest(["verdict", *(gate.verdict.value for gate in gates)])


def _wide(gates: Sequence[GateResult], screen: Screen, room: int) -> Table:
    """One row a gate."""
    rule_width = _rule_width(gates, room)
    table = _grid("gate", "", "value", "rule", "verdict")
    for gate in gates:
        value = _cell(gate.text or "-", room - rule_width, screen)
        rule = _cell(gate.rule, rule_width, screen)
        table.add_row(screen.text(gate.config), screen.text(gate.gate), value, rule, _verdict(gate))
    return table


def _rule_width(gates: Sequence[GateResult], room: int) -> int:
    """What the values leave, but enough for the longest part of a rule unless that is more than half."""
    value = _widest(gate.text for gate in gates)
    rule = _widest(gate.rule for gate in gates)
    part = _widest(part for gate in gates for part in parts(gate.rule))
    return min(max(room - value, min(part, room // 2)), rule)


def _narrow(gates: Sequence[GateResult], screen: Screen) -> Table:
    """Value and rule on lines of their own, below the gate."""
    table = _grid("gate", "verdict")
    width = screen.width - _verdict_width(gates) - GAP
    for gate in gates:
        table.add_row(screen.text(f"{gate.config} {gate.gate}"), _verdict(gate))
        value = f"{gate.text or '-'} ({gate.rule})" if gate.rule else gate.text or "-"
        table.add_row(_cell(value, width, screen, indent=2), "")
    return table


def _grid(*headings: str) -> Table:
    table = Table(box=None, show_edge=False, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(heading, no_wrap=True, overflow="fold")
    return table


def _cell(words: str, width: int, screen: Screen, *, indent: int = 0) -> Text:
    lines = parts_wrapped(screen.text(words).plain, max(width - indent, 10))
    return Text("\n".join(" " * indent + line for line in lines))


def _verdict(gate: GateResult) -> Text:
    return Text(gate.verdict.value, style=STYLES[gate.verdict])


def _reasons(gates: Sequence[GateResult], screen: Screen) -> list[RenderableType]:
    """One paragraph for each reason; gates of a configuration that share all their reasons are named together."""
    told = [gate for gate in gates if gate.reasons and gate.verdict is not Verdict.PASS]
    paragraphs: list[RenderableType] = []
    for (config, word, reasons), group in groupby(told, lambda gate: (gate.config, _word(gate), gate.reasons)):
        gates_told = list(group)
        names = ", ".join(gate.gate for gate in gates_told)
        text = "; ".join(f"{reason.text} ({reason.code})" for reason in reasons)
        style = STYLES[gates_told[0].verdict]
        paragraphs.append(screen.hanging(text, lead=f"{config} {names} {word}:", style=style))
    return [Text(), *paragraphs] if paragraphs else []


def _word(gate: GateResult) -> str:
    """What the reasons explain: the verdict, or of an informational gate why it has no value or would not pass."""
    if gate.verdict is not Verdict.INFO:
        return gate.verdict.value
    return "not measured" if gate.value is None else "informational"

"""The table of verdicts that ends a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pytest_tokenwatt.records import GateResult, Verdict
from pytest_tokenwatt.report.screen import Screen
from pytest_tokenwatt.report.text import counted
from pytest_tokenwatt.report.wrap import parts, parts_wrapped

STYLES = {
    Verdict.PASS: "green",
    Verdict.FAIL: "bold red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.INVALID: "bold magenta",
    Verdict.INFO: "dim",
}
WORST_FIRST = (Verdict.FAIL, Verdict.INVALID, Verdict.INCONCLUSIVE)
GAP = 2
LEAST_ROOM = 32
"""Columns that value and rule need beside each other; with less, each gate takes two lines."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A gate in letters that the screen has; ``figures`` are its value, error and limit where they are asked for."""

    config: str
    gate: str
    value: str
    rule: str
    verdict: Verdict
    figures: str = ""

    @property
    def name(self) -> str:
        """Configuration and gate in one."""
        return f"{self.config} {self.gate}"


def render_table(
    title: str,
    gates: Sequence[GateResult],
    screen: Screen,
    *,
    notes: Sequence[str] = (),
    report: str | None = None,
    verbosity: int = 0,
) -> str:
    """The verdicts with their values and rules, below it why anything did not pass, notes, and the report's path.

    ``notes`` are the caveats of the run (simulated, quick). ``verbosity`` is pytest's: below 0 (``-q``) only what did
    not pass and one line of counts are shown, above 0 (``-v``) also every figure with its error and its limit. The
    path is never wrapped, so that it can be copied.
    """
    if verbosity < 0:
        return _brief(title, gates, screen, notes, report)
    shown = screen.render(
        screen.title(f"tokenwatt: {title}"),
        _verdicts(gates, screen, figures=verbosity > 0),
        *_reasons(gates, screen),
        *(screen.hanging(note, lead="note:", style="yellow") for note in notes),
    )
    return shown + (screen.line(f"report: {report}") if report is not None else "")


def _brief(title: str, gates: Sequence[GateResult], screen: Screen, notes: Iterable[str], report: str | None) -> str:
    """What did not pass, then one line: counts, the first words of each note, and the path if there is room for it."""
    bad = [gate for gate in gates if gate.verdict in WORST_FIRST]
    above = screen.render(_verdicts(bad, screen), *_reasons(bad, screen)) if bad else ""
    heads = [note.split(":", 1)[0] for note in notes]
    counts = counted(gate.verdict.value for gate in gates)
    line = f"{counts} ({'; '.join([title, *heads])})"
    seen = {gate.verdict for gate in gates}
    style = next((STYLES[verdict] for verdict in (*WORST_FIRST, Verdict.PASS) if verdict in seen), "bold")
    path = [] if report is None else [f"report: {report}"]
    beside = "; ".join([line, *path])
    if cell_len(screen.spelt(f"tokenwatt: {beside}")) <= screen.columns - 2:
        line, path = beside, []
    told = screen.render(screen.hanging(line, lead="tokenwatt:", style=style))
    return above + told + "".join(map(screen.line, path))


def _verdicts(gates: Sequence[GateResult], screen: Screen, *, figures: bool = False) -> RenderableType:
    if not gates:
        return screen.text("no gate was judged")
    rows = [_row(gate, screen, figures) for gate in gates]
    names = _widest(row.config for row in rows) + _widest(row.gate for row in rows)
    room = screen.columns - names - _verdict_width(rows) - 4 * GAP
    return _wide(rows, room) if room >= LEAST_ROOM else _narrow(rows, screen.columns)


def _row(gate: GateResult, screen: Screen, figures: bool) -> _Row:
    told = (gate.config, gate.gate, gate.text or "-", gate.rule, _figures(gate) if figures else "")
    config, name, value, rule, detail = map(screen.spelt, told)
    return _Row(config, name, value, rule, gate.verdict, detail)


def _figures(gate: GateResult) -> str:
    """Value, error and limit with more digits: "= 1.10603 ratio, error 0.036, limit 0.95"."""
    if gate.value is None:
        return ""
    unit = f" {gate.unit}" if gate.unit else ""
    error = "error not known" if gate.error is None else f"error {gate.error:.6g}"
    limit = "no limit" if gate.limit is None else f"limit {gate.limit:.6g}"
    return f"= {gate.value:.6g}{unit}, {error}, {limit}"


def _widest(words: Iterable[str]) -> int:
    return max(map(cell_len, words), default=0)


def _verdict_width(rows: Sequence[_Row]) -> int:
    return _widest(["verdict", *(row.verdict.value for row in rows)])


def _wide(rows: Sequence[_Row], room: int) -> Table:
    """One row a gate."""
    rule_width = _rule_width(rows, room)
    table = Table(box=None, show_edge=False, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for heading in ("gate", "", "value", "rule", "verdict"):
        table.add_column(heading, no_wrap=True, overflow="fold")
    for row in rows:
        value, rule = _value(row.value, row.figures, room - rule_width), _cell(row.rule, rule_width)
        table.add_row(Text(row.config), Text(row.gate), value, rule, _verdict(row))
    return table


def _rule_width(rows: Sequence[_Row], room: int) -> int:
    """What the values leave, but enough for the longest part of a rule unless that is more than half."""
    value = _widest(words for row in rows for words in (row.value, row.figures))
    rule = _widest(row.rule for row in rows)
    part = _widest(part for row in rows for part in parts(row.rule))
    return min(max(room - value, min(part, room // 2)), rule)


def _narrow(rows: Sequence[_Row], columns: int) -> Group:
    """Value and rule on lines of their own, below the gate."""
    room = columns - _verdict_width(rows) - GAP
    names = min(_widest(["gate", *(row.name for row in rows)]), room)
    heading = Text("gate" + " " * (names - len("gate") + GAP) + "verdict", "bold")
    return Group(heading, *(line for row in rows for line in _below(row, names, columns)))


def _below(row: _Row, width: int, columns: int) -> Iterator[Text]:
    first, *rest = parts_wrapped(row.name, width) or [""]
    yield Text(first + " " * (width - cell_len(first) + GAP)) + _verdict(row)
    yield from map(Text, rest)
    value = f"{row.value} ({row.rule})" if row.rule else row.value
    yield _value(value, row.figures, columns, indent=2)


def _value(words: str, figures: str, width: int, *, indent: int = 0) -> Text:
    """The readable value, below it the figures."""
    value = _cell(words, width, indent=indent)
    return Text("\n").join([value, _cell(figures, width, indent=indent)]) if figures else value


def _cell(words: str, width: int, *, indent: int = 0) -> Text:
    lines = parts_wrapped(words, max(width - indent, 1))
    return Text("\n".join(" " * indent + line for line in lines))


def _verdict(row: _Row) -> Text:
    return Text(row.verdict.value, style=STYLES[row.verdict])


def _reasons(gates: Sequence[GateResult], screen: Screen) -> Iterator[RenderableType]:
    """One paragraph for each reason; gates of a configuration that share all their reasons are named together."""
    told = [gate for gate in gates if gate.reasons and gate.verdict is not Verdict.PASS]
    if told:
        yield Text()
    for (config, word, reasons), group in groupby(told, lambda gate: (gate.config, _word(gate), gate.reasons)):
        gates_told = list(group)
        names = ", ".join(gate.gate for gate in gates_told)
        text = "; ".join(f"{reason.text} ({reason.code})" for reason in reasons)
        yield screen.hanging(text, lead=f"{config} {names} {word}:", style=STYLES[gates_told[0].verdict])


def _word(gate: GateResult) -> str:
    """What the reasons explain: the verdict, or of an informational gate why it has no value or would not pass."""
    if gate.verdict is not Verdict.INFO:
        return gate.verdict.value
    return "not measured" if gate.value is None else "informational"

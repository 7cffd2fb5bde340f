"""A lab report as Markdown for a pull request: verdicts first, short enough for one comment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from pytest_tokenwatt.records import Verdict
from pytest_tokenwatt.report.gfm import details, escaped, fenced, fitting, table
from pytest_tokenwatt.report.html.access import at, mapping, mappings, number, reasons, text, texts, worded
from pytest_tokenwatt.report.html.material import GateWords
from pytest_tokenwatt.report.side_by_side import Config, baseline, figure_rows
from pytest_tokenwatt.report.text import counted, verdict_word
from pytest_tokenwatt.report.text import number as short

ROOM = {"summary": 3_000, "gates": 16_000, "figures": 12_000, "reasons": 10_000, "unseen": 6_000, "repeat": 2_000}
"""Letters of each part, below 55,000 together: GitHub refuses a comment of more than 65,536."""
COLUMNS = 5
"""Configurations beside each other in one table, the baseline among them."""
CAVEATS = ("Simulated engine", "Simulated power", "Quick mode", "Interrupted run", "Partly replayed")
"""First words of what a reader must know before any figure."""
_SIGNS = {"fail": "❌", "invalid": "⚠️", "inconclusive": "❔", "pass": "✅", "-": ""}
"""By verdict, the worst first; the word always stands beside the sign."""
_ORDER = {verdict: place for place, verdict in enumerate(_SIGNS)}
Gate = Mapping[str, Any]


def render_markdown(
    report: Mapping[str, Any], *, words: Mapping[str, GateWords] | None = None, full: str | None = None
) -> str:
    """The report for a pull request or a step summary: at most 55,000 letters, with a line for what was left out.

    ``words`` are the table's values and rules by gate id, if not those of the report; of a gate without any its figure,
    error and limit are shown.
    ``full`` is the path or address of the whole report. Nothing in ``report`` can break a table, ping anybody or be
    taken for HTML; whatever it lacks is left out.
    """
    gates = sorted(mappings(report, "gates"), key=lambda gate: _ORDER.get(_verdict(gate), len(_ORDER)))
    parts = (
        _head(report, gates),
        _gates(gates, words or {}),
        _reasons(gates),
        _figures(report),
        _unseen(report),
        _repeat(report),
        _tail(report, full),
    )
    return "\n\n".join("\n".join(part) for part in map(list, parts) if part) + "\n"


def _verdict(gate: Gate) -> str:
    return text(gate, "verdict")


def _head(report: Mapping[str, Any], gates: Sequence[Gate]) -> list[str]:
    """Counts, title, what a reader must know, and the summary."""
    verdicts = [_verdict(gate) for gate in gates]
    sign = next((sign for verdict, sign in _SIGNS.items() if verdict in verdicts), "")
    title = escaped(text(report, "title") or text(report, "id"))
    parts = (
        " ".join(filter(None, ["##", sign, f"tokenwatt: {escaped(counted(verdicts))}"])),
        f"**{title}**" if title else "",
        _warning(_caveats(report)),
        escaped(text(report, "summary"), ROOM["summary"]),
    )
    return "\n\n".join(filter(None, parts)).splitlines()


def _warning(lines: Sequence[str]) -> str:
    """A paragraph for each line, in a frame that GitHub draws attention to."""
    return "\n".join(["> [!WARNING]", "\n>\n".join(f"> {line}" for line in lines)]) if lines else ""


def _caveats(report: Mapping[str, Any]) -> list[str]:
    """Why the report is a draft, and what is simulated, quick or interrupted."""
    found = [line for line in texts(report, "not_covered") if line.split(":", 1)[0] in CAVEATS]
    engines = mapping(report, "provenance", "engines").values()
    if any(at(engine, "simulated") is True for engine in engines) and not any("Simulated" in line for line in found):
        found.insert(0, CAVEATS[0])
    draft = ["Draft: not for publishing."] if text(report, "status") == "draft" else []
    return [*draft, *map(escaped, found[: len(CAVEATS)])]


def _gates(gates: Sequence[Gate], words: Mapping[str, GateWords]) -> list[str]:
    """The verdicts, worst first."""
    if not gates:
        return []
    rows = [[*_named(gate), *_worded(gate, words.get(text(gate, "id"))), _marked(gate)] for gate in gates]
    lines = table(("configuration", "gate", "value", "rule", "verdict"), rows)
    return ["### Gates", "", *_kept(lines, ROOM["gates"], "gates")]


def _named(gate: Gate) -> list[str]:
    return [escaped(text(gate, "config"), 200), escaped(text(gate, "gate"), 200)]


def _worded(gate: Gate, words: GateWords | None) -> list[str]:
    words = words or worded(gate)
    if words is not None:
        return [escaped(words.value or "–"), escaped(words.rule)]
    value, error, limit = (number(gate, name) for name in ("value", "error", "limit"))
    unit = text(gate, "unit")
    width = "" if error is None else f" ± {short(error)}"
    said = "–" if value is None else f"{short(value)}{width} {unit}"
    return [escaped(said), escaped("" if limit is None else f"limit {short(limit)} {unit}")]


def _marked(gate: Gate) -> str:
    """The verdict as a word, with its sign in front and in bold unless it passed."""
    verdict = _verdict(gate)
    word = escaped(verdict_word(verdict) or "no verdict", 100)
    sign = _SIGNS.get(verdict, "")
    return f"{sign} {word}" if verdict == Verdict.PASS else f"{sign} **{word}**" if sign else word


def _reasons(gates: Sequence[Gate]) -> list[str]:
    """Why anything did not pass; gates of a configuration that share all their reasons are named together."""
    told = [gate for gate in gates if _verdict(gate) != Verdict.PASS and reasons(gate, "reasons")]
    lines = []
    for (config, verdict, why), group in groupby(told, _shared):
        names = ", ".join(text(gate, "gate") for gate in group)
        head = escaped(f"{config} {names}", 300)
        lines.append(f"- **{head}** {escaped(verdict_word(verdict), 100)}: {escaped('; '.join(why), 1_500)}")
    return ["### Why", "", *_kept(lines, ROOM["reasons"], "reasons")] if lines else []


def _shared(gate: Gate) -> tuple[str, str, tuple[str, ...]]:
    return text(gate, "config"), _verdict(gate), tuple(reasons(gate, "reasons"))


def _figures(report: Mapping[str, Any]) -> list[str]:
    """Tables of a few configurations each, the baseline first in every one."""
    tables = [_table(report, group) for group in _groups(report)]
    lines = [line for table in filter(None, tables) for line in ["", *table]]
    if not lines:
        return []
    band = number(report, "variance_band_pct")
    said = [] if band is None else ["", f"Repeats differ by {short(band)} % (variance band)."]
    return ["### Figures", *_kept(lines, ROOM["figures"], "rows"), *said]


def _groups(report: Mapping[str, Any]) -> Iterator[list[Config]]:
    """A few configurations each, with the baseline first in every one."""
    first = baseline(report)
    base = [] if first is None else [first]
    others = [each for each in mappings(report, "configs") if each is not first]
    step = COLUMNS - len(base)
    for start in range(0, max(len(others), 1), step):
        yield [*base, *others[start : start + step]]


def _table(report: Mapping[str, Any], configs: Sequence[Config]) -> list[str]:
    rows = [
        [escaped(row.name, 200), *(escaped(cell, 200) for cell in row.cells)] for row in figure_rows(report, configs)
    ]
    return list(table(["", *map(_column, configs)], rows)) if rows else []


def _column(config: Config) -> str:
    """Key and label, and that nothing of the configuration is to be believed."""
    key, label = text(config, "key"), text(config, "label")
    name = key if label in ("", key) else f"{key} ({label})"
    invalid = " ⚠️ invalid" if at(config, "validity", "valid") is False else ""
    return f"{escaped(name, 200)}{invalid}"


def _unseen(report: Mapping[str, Any]) -> list[str]:
    found = texts(report, "not_covered")
    lines = [f"- {escaped(line)}" for line in found]
    return details(f"Not covered ({len(found)})", _kept(lines, ROOM["unseen"], "lines")) if found else []


def _repeat(report: Mapping[str, Any]) -> list[str]:
    command = text(report, "reproduce")
    return details("How to repeat it", fenced(command, ROOM["repeat"])) if command.strip() else []


def _tail(report: Mapping[str, Any], full: str | None) -> list[str]:
    """What was measured with what, and where the whole report is."""
    said = " · ".join(escaped(each, 200) for each in _provenance(report))
    path = f"Full report: {escaped(full, 600)}" if full else ""
    return [f"{said}{'<br>' if said and path else ''}{path}"] if said or path else []


def _provenance(report: Mapping[str, Any]) -> Iterator[str]:
    version = text(report, "provenance", "versions", "pytest-tokenwatt")
    engine = f"{text(report, 'software', 'engine')} {text(report, 'software', 'engine_version')}"
    count, board = number(report, "hardware", "count"), text(report, "hardware", "accelerator")
    driver = text(report, "provenance", "driver") or text(report, "hardware", "driver")
    digest = text(report, "provenance", "hashes", "spec_sha256")
    facts = (
        f"pytest-tokenwatt {version}" if version else "",
        engine.strip(),
        text(report, "model", "name"),
        f"{count:g} × {board}" if count is not None and board else board,
        f"driver {driver}" if driver else "",
        text(report, "provenance", "generated") or text(report, "published"),
        f"spec {digest[:12]}" if digest else "",
    )
    yield from filter(None, facts)


def _kept(lines: Iterable[str], room: int, what: str) -> list[str]:
    """The lines that there is room for, and how many others there are."""
    kept, left = fitting(lines, room)
    return [*kept, *_left_out(left, what)]


def _left_out(left: int, what: str) -> list[str]:
    return ["", f"*{left} more {what} are left out here; the full report has them.*"] if left else []

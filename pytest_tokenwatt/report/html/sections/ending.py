"""What the run could not see, how steady the machine was, where everything came from, and the spec."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from pytest_tokenwatt.report.html.access import mapping, mappings, number, reasons, text, texts
from pytest_tokenwatt.report.html.page import Page
from pytest_tokenwatt.report.html.parts import (
    Bullets,
    Cell,
    Code,
    Folded,
    Line,
    Part,
    Section,
    figures,
    present,
    table,
    words,
)
from pytest_tokenwatt.report.html.words import figure, with_unit

MOST_DEPTH = 6
ENGINES = "engines"
FACT = ("What", "Value")


def coverage(page: Page) -> Section:
    """Never left out: a report that covers everything would have to say so."""
    lines = (*texts(page.report, "not_covered"), *page.material.missing)
    parts: list[Part | None] = [
        Bullets(lines) if lines else Line("The report names nothing that it does not cover.", quiet=True)
    ]
    return Section("coverage", "What is not covered", present([*parts, _invalid(page), _missing(page)]))


def _invalid(page: Page) -> Part | None:
    rows = [
        (Cell(key), Cell(reason)) for key, config in page.named() for reason in reasons(config, "validity", "reasons")
    ]
    return table("Why measurements of a configuration are invalid", ("Configuration", "Reason"), rows)


def _missing(page: Page) -> Part | None:
    rows = [
        words(key, name, why)
        for key, config in page.named()
        for name, why in mapping(config, "missing").items()
        if isinstance(why, str)
    ]
    listed = table("Figures that are missing, and why", ("Configuration", "Figure", "Why"), rows)
    return None if listed is None else Folded(f"{len(rows)} missing figures, and why", (listed,))


def machine(page: Page) -> Section | None:
    """How far the machine moved between the baseline's two starts, and what a fleet would need."""
    parts = present([_drift(page), _fleet(page)])
    return Section("machine", "Machine drift and fleet", parts) if parts else None


def _drift(page: Page) -> Part | None:
    block = mapping(page.report, "machine_drift")
    rows = [
        (
            Cell(f"Output rate of {name}, second start against the first"),
            *figures([with_unit(number(block, "profiles", name), "%", sign=True)]),
        )
        for name in mapping(block, "profiles")
        if number(block, "profiles", name) is not None
    ]
    band = number(page.report, "variance_band_pct")
    if band is not None:
        rows.append((Cell("Band of goodput over repeats"), *figures([with_unit(band, "%")])))
    return table("How far the machine moved", ("What", "Change"), rows)


def _fleet(page: Page) -> Part | None:
    fleet = mapping(page.report, "fleet")
    rows = [words(text(each, "key"), text(each, "text")) for each in mappings(fleet, "configs") if text(each, "text")]
    cards, measured = number(fleet, "cards"), text(fleet, "text")
    caption = f"Projected to the load of {figure(cards)} baseline cards" + (f" ({measured})" if measured else "")
    return table(caption, ("Configuration", "Needs"), rows)


def provenance(page: Page) -> Section:
    """Versions, hashes, drivers, engines and files."""
    report = page.report
    facts = [("Report", text(report, "id")), ("Status", text(report, "status")), ("Schema", text(report, "schema"))]
    block = mapping(report, "provenance")
    facts += [*_flat({name: inner for name, inner in block.items() if name != ENGINES})]
    facts += [(f"minutes of {key}", _minutes(config)) for key, config in page.named() if mapping(config, "minutes")]
    engines = table("Engines", FACT, [words(name, told) for name, told in _flat(mapping(block, ENGINES)) if told])
    parts: list[Part | None] = [
        table("Where this report comes from", FACT, [words(name, told) for name, told in facts if told]),
        None if engines is None else Folded("What the engines said of themselves", (engines,)),
        _files(page),
    ]
    return Section("provenance", "Provenance", present(parts))


def _minutes(config: Mapping[str, Any]) -> str:
    minutes = mapping(config, "minutes")
    return ", ".join(f"{name} {figure(number(minutes, name))}" for name in minutes)


def _flat(value: Any, place: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Nested blocks as one line a leaf."""
    if isinstance(value, Mapping) and depth < MOST_DEPTH:
        for key, inner in value.items():
            yield from _flat(inner, f"{place} › {key}" if place else str(key), depth + 1)
    elif value is not None:
        yield place, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _files(page: Page) -> Part | None:
    rows = [words(key, ", ".join(texts(config, "files"))) for key, config in page.named() if texts(config, "files")]
    listed = table("Raw files beside this report", ("Configuration", "Files"), rows)
    return None if listed is None else Folded("Raw files", (listed,))


def spec(page: Page) -> Section | None:
    """How to run it again, and the spec as written, variables unexpanded."""
    parts: list[Part | None] = []
    command = text(page.report, "reproduce")
    if command:
        parts += [Line("To measure this again:"), Code("Command line", command)]
    raw = mapping(page.report, "spec")
    if raw:
        written = yaml.safe_dump(_plain(raw), sort_keys=False, allow_unicode=True, width=100)
        parts.append(Folded("The spec, variables unexpanded", (Code("Spec", written),)))
    return Section("spec", "Reproduce and spec", present(parts)) if parts else None


def _plain(value: Any) -> Any:
    """Values that YAML can write."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)

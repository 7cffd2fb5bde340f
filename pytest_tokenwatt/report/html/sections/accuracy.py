"""Answers against the baseline's: points with intervals, and what flipped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pytest_tokenwatt.report.html.access import at, mapping, mappings, number, pair, reasons, text
from pytest_tokenwatt.report.html.page import Page
from pytest_tokenwatt.report.html.parts import Cell, Part, Pictures, Section, figures, present, table
from pytest_tokenwatt.report.html.plots.dots import Dot, Level, Scale, dot_picture
from pytest_tokenwatt.report.html.words import figure, interval, with_unit

OUTCOMES = ("correct", "wrong", "unparseable", "truncated", "failed")
Told = tuple[str, Mapping[str, Any]]


def accuracy(page: Page) -> Section | None:
    """Change in points by suite with its threshold, scores and flips, domains, and answer lengths."""
    told = [(key, suite) for key, config in page.named() for suite in _suites(config)]
    told = [
        (key, suite)
        for key, suite in told
        if number(suite, "score") is not None or reasons(suite, "validity", "reasons")
    ]
    parts = present([_figure(page, told), _scores(told), _outcomes(told), _domains(told), _lengths(page)])
    return Section("accuracy", "Accuracy", parts) if parts else None


def _suites(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = at(config, "accuracy")
    return [found] if isinstance(found, Mapping) else mappings(config, "accuracy")


def _figure(page: Page, told: list[Told]) -> Part | None:
    several = len({text(suite, "suite") for _, suite in told}) > 1
    dots = [
        dot
        for key, suite in told
        if key not in page.baselines and (dot := _dot(key, suite, several=several)) is not None
    ]
    if not dots:
        return None
    scale = Scale("change, points", "points", levels=(Level("no change", 0.0), *_thresholds(page)))
    caption = "Candidate less baseline on the same items; whisker: 95 % interval, where single answers are stored."
    picture = dot_picture(page, "accuracy", "Accuracy against the baseline", dots, scale, caption)
    return Pictures((picture,))


def _dot(key: str, suite: Mapping[str, Any], *, several: bool) -> Dot | None:
    delta = number(suite, "delta_pts")
    name = f"{key} {text(suite, 'suite')}" if several else key
    return None if delta is None else Dot(name, key, delta, *pair(suite, "interval_pts"))


def _thresholds(page: Page) -> list[Level]:
    """The largest drop allowed, where all suites have the same."""
    block = at(page.report, "accuracy")
    blocks = [block] if isinstance(block, Mapping) else mappings(page.report, "accuracy")
    drops = {number(each, "threshold_pts") for each in blocks}
    drop = drops.pop() if len(drops) == 1 else None
    return [] if drop is None else [Level("limit", -drop, limit=True)]


def _scores(told: list[Told]) -> Part | None:
    head = (
        "Configuration",
        "Suite",
        "Score",
        "Change",
        "95 % interval",
        "Right → wrong",
        "Wrong → right",
        "McNemar mid-p",
        "Resolvable drop",
        "Items",
        "Spread over seeds",
        "Remarks",
    )
    return table("Scores and flips against the baseline", head, [_score(key, suite) for key, suite in told])


def _score(key: str, suite: Mapping[str, Any]) -> tuple[Cell, ...]:
    numbers = (
        with_unit(number(suite, "score"), "%"),
        with_unit(number(suite, "delta_pts"), "pt", sign=True),
        interval(*pair(suite, "interval_pts")),
        figure(number(suite, "flips", "right_to_wrong")),
        figure(number(suite, "flips", "wrong_to_right")),
        figure(number(suite, "mid_p")),
        with_unit(number(suite, "resolvable_drop_pts"), "pt"),
        figure(number(suite, "n")),
        with_unit(number(suite, "spread_pts"), "pt"),
    )
    remarks = [*reasons(suite, "validity", "reasons"), *reasons(suite, "notes")]
    return (Cell(key), Cell(text(suite, "suite")), *figures(numbers), Cell("; ".join(remarks)))


def _outcomes(told: list[Told]) -> Part | None:
    rows = [
        (Cell(key), Cell(text(suite, "suite")), *figures(figure(number(suite, "counts", name)) for name in OUTCOMES))
        for key, suite in told
        if mapping(suite, "counts")
    ]
    return table(
        "What the answers came to", ("Configuration", "Suite", *(name.capitalize() for name in OUTCOMES)), rows
    )


def _domains(told: list[Told]) -> Part | None:
    head = ("Domain", "Configuration", "Change", "95 % interval", "Items", "p (Holm)")
    return table("Change by domain", head, [row for key, suite in told for row in _domain_rows(key, suite)])


def _domain_rows(key: str, suite: Mapping[str, Any]) -> Iterator[tuple[Cell, ...]]:
    for name in mapping(suite, "domains"):
        domain = mapping(suite, "domains", name)
        numbers = (
            with_unit(number(domain, "delta_pts"), "pt", sign=True),
            interval(*pair(domain, "interval_pts")),
            figure(number(domain, "n")),
            figure(number(domain, "holm_p")),
        )
        yield (Cell(name), Cell(key), *figures(numbers))


def _lengths(page: Page) -> Part | None:
    rows = []
    for key, config in page.named():
        shift, (low, high) = number(config, "length_shift"), pair(config, "intervals", "length_shift")
        if shift is not None:
            ends = [None if end is None else 100 * end for end in (low, high)]
            rows.append((Cell(key), *figures([with_unit(100 * shift, "%", sign=True), interval(*ends)])))
    return table("Length of answers against the baseline", ("Configuration", "Shift", "95 % interval"), rows)

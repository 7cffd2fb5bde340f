"""Power over time, what throttled, and tokens per joule side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_tokenwatt.report.html.access import mapping, mappings, number, pair, reasons, text
from pytest_tokenwatt.report.html.material import PowerSeries
from pytest_tokenwatt.report.html.page import Page
from pytest_tokenwatt.report.html.parts import Cell, Line, Part, Picture, Pictures, Section, figures, present, table
from pytest_tokenwatt.report.html.plots.bins import Binned, binned
from pytest_tokenwatt.report.html.plots.dots import Dot, Scale, dot_picture
from pytest_tokenwatt.report.html.plots.power import highest_w, power_picture
from pytest_tokenwatt.report.html.words import counted, figure, interval, with_unit


def power(page: Page) -> Section | None:
    """One figure a source and configuration, all on one scale, and a table of what the sensors said."""
    parts = present([_figures(page), _throttling(page), _sources(page)])
    return Section("power", "Power over time", parts) if parts else None


def _figures(page: Page) -> Part | None:
    found = [(series, bins) for series in page.material.power if (bins := binned(series)) is not None]
    drawn = tuple(_figure(page, place, found) for place in range(len(found)))
    if drawn:
        return Pictures(drawn)
    measured = any(number(config, "node_power_kw") is not None for config in page.configs)
    return Line("The single power readings are not stored with this report.", quiet=True) if measured else None


def _figure(page: Page, place: int, found: Sequence[tuple[PowerSeries, Binned]]) -> Picture:
    """All configurations of one source have one scale."""
    series, bins = found[place]
    served = [each for each in page.material.serving if each.config == series.config]
    probes = [probe for each in served for probe in each.probes]
    top_w = highest_w([each for each in found if each[0].source == series.source])
    return power_picture(page, place, series, bins, probes, top_w)


def _throttling(page: Page) -> Part | None:
    rows = [
        (
            Cell(key),
            Cell(reason),
            Cell(figure(float(count), digits=6), numeric=True),
            Cell(figure(number(config, "throttle_samples"), digits=6), numeric=True),
            Cell(with_unit(number(config, "throttle_s", reason), "s"), numeric=True),
        )
        for key, config in page.named()
        for reason, count in mapping(config, "throttle_counts").items()
        if isinstance(count, int | float)
    ]
    head = ("Configuration", "Reason", "Samples with it", "Samples in all", "Seconds by the driver")
    return table("Throttling in the windows that the figures are of", head, rows)


def _sources(page: Page) -> Part | None:
    rows = [_source(key, source) for key, config in page.named() for source in mappings(config, "power")]
    head = ("Configuration", "Source", "Rate", "Sensors", "Idle", "Missed readings", "Lateness p99", "Remarks")
    return table("Power sources", head, rows)


def _source(key: str, source: Mapping[str, Any]) -> tuple[Cell, ...]:
    missed, ticks = number(source, "missed"), number(source, "ticks")
    remarks = [
        *reasons(source, "validity", "reasons"),
        *(each for each in mapping(source).get("notes", ()) if isinstance(each, str)),
    ]
    return (
        Cell(key),
        Cell(text(source, "label") or text(source, "source")),
        *figures(
            [
                with_unit(number(source, "sampling_hz"), "Hz"),
                figure(len(mappings(source, "sensors")) or None),
                with_unit(number(source, "idle_power_w"), "W"),
                "–" if missed is None else f"{figure(missed)} of {figure(ticks)}",
                with_unit(number(source, "lateness_p99_ms"), "ms"),
            ]
        ),
        Cell("; ".join(remarks)),
    )


def joules(page: Page) -> Section | None:
    """Tokens per joule of every configuration with its interval."""
    dots = [dot for key, config in page.named() for dot in _dots(key, config)]
    if not dots:
        return None
    scale = Scale("tokens within the SLO per joule", "tok/J", from_zero=True)
    caption = "Bar: tokens of requests within the SLO per joule; whisker: 95 % interval, where repeats tell one."
    picture = dot_picture(page, "joules", "Tokens per joule", dots, scale, caption)
    rows = [_row(key, config) for key, config in page.named()]
    head = ("Configuration", "Tokens per joule", "95 % interval", "All output tokens", "Energy", "Power", "Source")
    return Section(
        "joules",
        "Tokens per joule",
        present([Pictures((picture,)), table("Energy of the goodput windows", head, rows)]),
    )


def _dots(key: str, config: Mapping[str, Any]) -> list[Dot]:
    scenarios = mapping(config, "scenarios")
    told = {f"{key} {name}": block for name, block in scenarios.items()} if scenarios else {key: config}
    found = [
        (name, number(block, "tokens_per_joule"), pair(block, "intervals", "tokens_per_joule"))
        for name, block in told.items()
    ]
    return [Dot(name, key, value, *ends) for name, value, ends in found if value is not None]


def _row(key: str, config: Mapping[str, Any]) -> tuple[Cell, ...]:
    energy = mapping(config, "energy")
    kind, sensors = text(energy, "kind"), number(energy, "sensors")
    source = (
        text(energy, "source")
        + (f", {kind}" if kind else "")
        + (f", {counted(int(sensors), 'sensor')}" if sensors else "")
    )
    return (
        Cell(key),
        *figures(
            [
                with_unit(number(config, "tokens_per_joule"), "tok/J", digits=4),
                interval(*pair(config, "intervals", "tokens_per_joule")),
                with_unit(number(config, "output_tokens_per_joule"), "tok/J", digits=4),
                with_unit(number(config, "energy_j"), "J"),
                with_unit(number(config, "node_power_kw"), "kW"),
            ]
        ),
        Cell(source),
    )

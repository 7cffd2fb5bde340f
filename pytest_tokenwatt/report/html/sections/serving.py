"""Rate against latency with every probe, and how latencies are spread at the rate that was found."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_tokenwatt.report.html.material import PercentileRow, Probe, Serving
from pytest_tokenwatt.report.html.page import Page
from pytest_tokenwatt.report.html.parts import Cell, Folded, Line, Part, Pictures, Section, present, table
from pytest_tokenwatt.report.html.plots.rates import rate_picture
from pytest_tokenwatt.report.html.plots.spread import spread_picture
from pytest_tokenwatt.report.html.words import interval, percentile_name, with_unit

USUAL = ("ttft", "tpot")
ORDER = ("ttft", "tpot", "itl", "e2e")
NO_PROBES = "The report holds no probes of the search for the rate: the figures above are all that is stored."


def rates(page: Page) -> Section | None:
    """Each metric of the SLO by rate, and a table of all probes."""
    parts = [part for scenario in page.scenarios for part in _rates_of(page, scenario)]
    if not parts:
        return Section("rates", "Rate and latency", (Line(NO_PROBES, quiet=True),)) if page.configs else None
    return Section("rates", "Rate and latency", tuple(parts))


def _rates_of(page: Page, scenario: str) -> Iterator[Part]:
    served = [each for each in page.material.serving if each.scenario == scenario and each.probes]
    if not served:
        return
    if len(page.scenarios) > 1:
        yield Line(f"Scenario {scenario}")
    pictures = [rate_picture(page, scenario, metric, percentile, served) for metric, percentile in asked(served)]
    found = tuple(each for each in pictures if each is not None)
    if found:
        yield Pictures(found, page.legend([each.config for each in served]))
    listed = _probes(scenario, served)
    if listed is not None:
        count = sum(len(each.probes) for each in served)
        yield Folded(f"All {count} probes as a table", (listed,))


def asked(served: list[Serving]) -> list[tuple[str, float]]:
    """Metric and percentile of each promise; TTFT and TPOT at p99 where nothing was promised of them."""
    bounds = [(bound.metric, bound.percentile) for each in served for bound in each.slo]
    named = {metric for metric, _ in bounds}
    return list(dict.fromkeys([*bounds, *((metric, 99.0) for metric in USUAL if metric not in named)]))


def _probes(scenario: str, served: list[Serving]) -> Part | None:
    columns = asked(served)
    head = ("Probe", "Configuration", "Rate", *(percentile_name(*column) for column in columns), "SLO", "Why")
    rows = [_probe(each.config, probe, columns) for each in served for probe in each.probes]
    return table(f"Every judged window of the scenario {scenario}", head, rows)


def _probe(config: str, probe: Probe, columns: list[tuple[str, float]]) -> tuple[Cell, ...]:
    latencies = [probe.latencies.get(f"{metric}_p{percentile:g}_ms") for metric, percentile in columns]
    written = [
        "∞" if point and point.infinite else with_unit(point.value_ms if point else None, "ms") for point in latencies
    ]
    return (
        Cell(probe.label),
        Cell(config),
        Cell(with_unit(probe.rate_rps, "req/s"), numeric=True),
        *(Cell(each, numeric=True) for each in written),
        Cell("", state=probe.state),
        Cell(probe.why),
    )


def spreads(page: Page) -> Section | None:
    """Distributions of TTFT and TPOT, and their percentiles with intervals."""
    parts = [part for scenario in page.scenarios for part in _spread_of(page, scenario)]
    return Section("latency", "Latency distributions", tuple(parts)) if parts else None


def _spread_of(page: Page, scenario: str) -> Iterator[Part]:
    served = [each for each in page.material.serving if each.scenario == scenario]
    pictures = tuple(
        picture for metric in USUAL if (picture := spread_picture(page, scenario, metric, served)) is not None
    )
    listed = _percentiles(scenario, served)
    if not pictures and listed is None:
        return
    if len(page.scenarios) > 1:
        yield Line(f"Scenario {scenario}")
    if pictures:
        yield Pictures(pictures, page.legend([each.config for each in served if each.samples]))
    yield from (Line(f"{each.config}: {each.no_samples}", quiet=True) for each in served if each.no_samples)
    yield from present([listed])


def _percentiles(scenario: str, served: list[Serving]) -> Part | None:
    told = [each for each in served if each.percentiles]
    found = {(row.metric, row.percentile) for each in told for row in each.percentiles}
    order = sorted(found, key=lambda name: (ORDER.index(name[0]) if name[0] in ORDER else len(ORDER), name))
    rows = [_percentile(told, *name) for name in order]
    head = ("Percentile", *(each.config for each in told), "SLO")
    return table(f"Latencies at the goodput rate with 95 % intervals, scenario {scenario}", head, rows)


def _percentile(told: list[Serving], metric: str, percentile: float) -> tuple[Cell, ...]:
    """One percentile of every configuration, and what was promised of it."""
    found = [
        next((row for row in each.percentiles if (row.metric, row.percentile) == (metric, percentile)), None)
        for each in told
    ]
    bound = next((row.bound_ms for row in found if row is not None and row.bound_ms is not None), None)
    limit = "" if bound is None else f"≤ {with_unit(bound, 'ms')}"
    return (Cell(percentile_name(metric, percentile)), *map(_latency, found), Cell(limit, numeric=True))


def _latency(row: PercentileRow | None) -> Cell:
    if row is None:
        return Cell("–", numeric=True)
    written = "∞" if row.point.infinite else with_unit(row.point.value_ms, "ms", digits=4)
    sample = f" n {row.n:,}" if row.n else ""
    return Cell(written, numeric=True, small=f"{interval(row.low_ms, row.high_ms)}{sample}".strip())

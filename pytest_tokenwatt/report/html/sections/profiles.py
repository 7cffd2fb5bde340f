"""Closed-loop profiles: how fast each was, and what memory it took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_tokenwatt.report.html.access import mapping, number, pair, reasons, text
from pytest_tokenwatt.report.html.page import Page
from pytest_tokenwatt.report.html.parts import Cell, Part, Picture, Pictures, Section, figures, present, table
from pytest_tokenwatt.report.html.plots.dots import Dot, Level, Scale, dot_picture
from pytest_tokenwatt.report.html.plots.memory import Split, memory_picture
from pytest_tokenwatt.report.html.words import figure, interval, with_unit

SIZES = ("weights_gib", "kv_gib", "other_gib", "peak_gib")


def profiles(page: Page) -> Section | None:
    """Speed and memory by profile, drawn and as tables."""
    drawn = tuple(picture for picture in (_speed_figure(page), memory_picture(_splits(page))) if picture is not None)
    parts = present([Pictures(drawn) if drawn else None, _speeds(page), _memories(page), _budgets(page)])
    return Section("profiles", "Closed-loop speed and memory", parts) if parts else None


def _names(page: Page, block: str) -> list[str]:
    return list(dict.fromkeys(name for config in page.configs for name in mapping(config, block)))


def _speed_figure(page: Page) -> Picture | None:
    dots = [
        Dot(f"{name} {key}", key, value, *pair(config, "intervals", "speeds", name))
        for name in _names(page, "speeds")
        for key, config in page.named()
        if (value := number(config, "speeds", name)) is not None
    ]
    if not dots:
        return None
    scale = Scale("output tok/s, candidate over baseline", "times the baseline", levels=(Level("baseline", 1.0),))
    caption = "Output tokens per second of each closed-loop profile over the baseline's; whisker: 95 % interval."
    return dot_picture(page, "speed", "Speed against the baseline", dots, scale, caption)


def _splits(page: Page) -> list[Split]:
    found = []
    for name in _names(page, "peak_memory"):
        for key, config in page.named():
            sizes = [number(config, "peak_memory", name, size) for size in SIZES]
            known = [size for size in sizes if size is not None]
            if len(known) == len(SIZES):
                found.append(Split(f"{name} {key}", *known))
    return found


def _speeds(page: Page) -> Part | None:
    head = (
        "Profile",
        "Configuration",
        "In flight",
        "Input",
        "Output",
        "Output rate",
        "Against the baseline",
        "95 % interval",
        "TTFT p50",
        "TPOT p50",
        "Remarks",
    )
    rows = [
        _speed(name, key, config)
        for name in dict.fromkeys([*_names(page, "efficiency"), *_names(page, "profiles")])
        for key, config in page.named()
        if number(config, "efficiency", name) is not None or mapping(config, "profiles", name)
    ]
    return table("Speed by profile", head, rows)


def _speed(name: str, key: str, config: Mapping[str, Any]) -> tuple[Cell, ...]:
    profile = mapping(config, "profiles", name)
    rate = number(config, "efficiency", name)
    numbers = (
        figure(number(profile, "concurrency")),
        with_unit(number(profile, "input_tokens"), "tok"),
        with_unit(number(profile, "output_tokens"), "tok"),
        with_unit(number(profile, "output_tok_s") if rate is None else rate, "tok/s"),
        with_unit(number(config, "speeds", name), "×", digits=4),
        interval(*pair(config, "intervals", "speeds", name)),
        _median(profile, "ttft_p50_ms"),
        _median(profile, "tpot_p50_ms"),
    )
    remarks = [*reasons(profile, "validity", "reasons"), *reasons(profile, "notes")]
    return (Cell(name), Cell(key), *figures(numbers), Cell("; ".join(remarks)))


def _median(profile: Mapping[str, Any], name: str) -> str:
    """The range of the repeats' medians."""
    runs = profile.get("runs")
    found = [number(run, name) for run in runs] if isinstance(runs, list | tuple) else []
    known = [value for value in found if value is not None]
    if not known:
        return with_unit(None, "ms")
    low, high = figure(min(known)), figure(max(known))
    return f"{low} ms" if low == high else f"{low} to {high} ms"


def _memories(page: Page) -> Part | None:
    head = (
        "Profile",
        "Configuration",
        "Weights",
        "KV cache",
        "Other",
        "Peak",
        "Error",
        "Device peak",
        "Baseline over this",
        "Remarks",
    )
    rows = [
        _memory(name, key, config)
        for name in _names(page, "peak_memory")
        for key, config in page.named()
        if mapping(config, "peak_memory", name)
    ]
    return table("Memory at the peak", head, rows)


def _memory(name: str, key: str, config: Mapping[str, Any]) -> tuple[Cell, ...]:
    peak = mapping(config, "peak_memory", name)
    error = number(peak, "error")
    numbers = (
        *(with_unit(number(peak, size), "GiB") for size in SIZES),
        with_unit(None if error is None else 100 * error, "%"),
        with_unit(number(peak, "device_peak_gib"), "GiB"),
        with_unit(number(config, "memories", name), "×", digits=4),
    )
    missing = mapping(peak, "missing")
    told = {text(missing, each) for each in (*SIZES, "device_peak_gib")} - {""}
    return (Cell(name), Cell(key), *figures(numbers), Cell("; ".join(sorted(told))))


def _budgets(page: Page) -> Part | None:
    rows = [
        _budget(key, name, mapping(config, "budget", name))
        for key, config in page.named()
        for name in mapping(config, "budget")
    ]
    head = (
        "Profile",
        "Configuration",
        "Memory allowed",
        "KV cache given",
        "Ran at once",
        "Uncut",
        "Output rate",
        "Healthy",
        "Remarks",
    )
    return table("Reruns with the memory cut to what was used", head, rows)


def _budget(key: str, name: str, run: Mapping[str, Any]) -> tuple[Cell, ...]:
    numbers = (
        with_unit(number(run, "budget_gib"), "GiB"),
        with_unit(number(run, "kv_gib"), "GiB"),
        figure(number(run, "running")),
        figure(number(run, "full_running")),
        with_unit(number(run, "value"), "tok/s"),
    )
    found = run.get("healthy")
    healthy = ("yes" if found else "no") if isinstance(found, bool) else "not known"
    remarks = [*reasons(run, "validity", "reasons"), *reasons(run, "notes")]
    return (Cell(name), Cell(key), *figures(numbers), Cell(healthy), Cell("; ".join(remarks)))

"""Whether what was timed is what the model says, and the precision that was read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_tokenwatt.report.html.access import mapping, number, reasons, text
from pytest_tokenwatt.report.html.page import Page
from pytest_tokenwatt.report.html.parts import Cell, Part, Section, figures, present, table
from pytest_tokenwatt.report.html.words import figure, with_unit


def audit(page: Page) -> Section | None:
    """The audited runs, and what engines told of precision and start-up."""
    parts = present([_audits(page), _precision(page), _startup(page)])
    return Section("audit", "Audit", parts) if parts else None


def _audits(page: Page) -> Part | None:
    rows = [
        _audit(name, key, mapping(config, "timed_audit", name))
        for key, config in page.named()
        for name in mapping(config, "timed_audit")
        if text(config, "timed_audit", name, "status") not in ("", "missing")
    ]
    head = (
        "Timed run",
        "Configuration",
        "Status",
        "Samples",
        "Median gap",
        "Largest gap",
        "Top-1 gap",
        "Length ratio",
        "Shortest",
        "Empty",
        "Empty alone",
        "Remarks",
    )
    return table("Outputs of timed runs, scored by the baseline; gaps in nats per token", head, rows)


def _audit(name: str, key: str, run: Mapping[str, Any]) -> tuple[Cell, ...]:
    samples, picked = number(run, "samples"), number(run, "picked")
    gap = number(run, "top1_gap")
    numbers = (
        f"{figure(samples)} of {figure(picked)}",
        figure(number(run, "gap_median")),
        figure(number(run, "gap_max")),
        with_unit(None if gap is None else 100 * gap, "pt"),
        figure(number(run, "length_ratio")),
        figure(number(run, "length_ratio_min")),
        figure(number(run, "empty")),
        figure(number(run, "empty_alone")),
    )
    remarks = [*reasons(run, "validity", "reasons"), *reasons(run, "notes")]
    return (Cell(name), Cell(key), Cell(text(run, "status")), *figures(numbers), Cell("; ".join(remarks)))


def _precision(page: Page) -> Part | None:
    rows = []
    for key, config in page.named():
        read = mapping(config, "precision")
        sources = mapping(read, "sources")
        told = "; ".join(f"{name}: {source}" for name, source in sources.items() if isinstance(source, str))
        bits = [with_unit(number(read, name), "bit") for name in ("weights", "activations", "kv", "weights_average")]
        if read:
            stored = with_unit(number(read, "stored_gib"), "GiB")
            rows.append(
                (
                    Cell(key),
                    Cell(text(read, "label")),
                    Cell(text(read, "declared")),
                    *figures([*bits, stored]),
                    Cell(told),
                )
            )
    head = (
        "Configuration",
        "Read",
        "Declared",
        "Weights",
        "Activations",
        "KV cache",
        "Average weight",
        "Checkpoint",
        "Read from",
    )
    return table("Precision", head, rows)


def _startup(page: Page) -> Part | None:
    sizes = ("weights_gib", "kv_cache_gib", "cuda_graph_gib", "activation_gib")
    seconds = ("load_seconds", "engine_init_seconds")
    rows = []
    for key, config in page.named():
        told = mapping(config, "startup")
        numbers = [with_unit(number(told, name), "GiB") for name in sizes]
        numbers += [
            with_unit(number(told, "kv_cache_tokens"), "tok"),
            *(with_unit(number(told, name), "s") for name in seconds),
        ]
        if any(each != "–" for each in numbers):
            rows.append((Cell(key), *figures(numbers)))
    head = (
        "Configuration",
        "Weights",
        "KV cache pool",
        "CUDA graphs",
        "Activations",
        "Pool in tokens",
        "Loading",
        "Start-up",
    )
    return table("What the engines told at start-up", head, rows)

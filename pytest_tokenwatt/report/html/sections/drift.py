"""How far the next-token distributions are from the baseline's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_tokenwatt.report.html.access import mapping, mappings, number, reasons, text
from pytest_tokenwatt.report.html.page import Page
from pytest_tokenwatt.report.html.parts import Cell, Part, Pictures, Section, figures, present, table
from pytest_tokenwatt.report.html.plots.histogram import kl_picture
from pytest_tokenwatt.report.html.words import figure, with_unit


def drift(page: Page) -> Section | None:
    """Histograms by sequence, the estimates with their errors, and perplexity."""
    told = [(key, mapping(config, "kl")) for key, config in page.named() if mapping(config, "kl")]
    drawn = [picture for key, kl in told if (picture := kl_picture(page, key, kl, _limit(page, key))) is not None]
    parts = present([Pictures(tuple(drawn)) if drawn else None, _table(told), _perplexity(told)])
    return Section("drift", "Drift (KL divergence)", parts) if parts else None


def _limit(page: Page, key: str) -> float | None:
    gates = mappings(page.report, "gates")
    return next(
        (number(gate, "limit") for gate in gates if text(gate, "gate") == "kl" and text(gate, "config") == key), None
    )


def _table(told: list[tuple[str, Mapping[str, Any]]]) -> Part | None:
    head = (
        "Configuration",
        "KL",
        "Standard error",
        "Lower bound",
        "Sampled",
        "Median",
        "Control",
        "Top-1 agreement",
        "Sequences",
        "Tokens",
        "Remarks",
    )
    return table("Divergence from the baseline in nats per token", head, [_row(key, kl) for key, kl in told])


def _row(key: str, kl: Mapping[str, Any]) -> tuple[Cell, ...]:
    agreement = number(kl, "top1_agreement")
    names = ("kl", "kl_se", "kl_lower", "kl_sampled", "kl_median")
    remarks = [*reasons(kl, "validity", "reasons"), *reasons(kl, "doubts"), *reasons(kl, "notes")]
    numbers = [
        *(figure(number(kl, name)) for name in names),
        figure(number(kl, "identity", "kl")),
        with_unit(None if agreement is None else 100 * agreement, "%"),
        figure(number(kl, "sequences")),
        figure(number(kl, "tokens")),
    ]
    return (Cell(key), *figures(numbers), Cell("; ".join(remarks)))


def _perplexity(told: list[tuple[str, Mapping[str, Any]]]) -> Part | None:
    rows = [_corpus(key, name, mapping(kl, "ppl", name)) for key, kl in told for name in mapping(kl, "ppl")]
    head = (
        "Configuration",
        "Corpus",
        "Perplexity",
        "Baseline",
        "Change, nats per token",
        "Standard error",
        "Windows",
        "Remarks",
    )
    return table("Perplexity", head, rows)


def _corpus(key: str, name: str, corpus: Mapping[str, Any]) -> tuple[Cell, ...]:
    names = ("ppl", "ppl_bf16", "dnll", "dnll_se", "windows")
    remarks = "; ".join(reasons(corpus, "validity", "reasons"))
    return (Cell(key), Cell(name), *figures(figure(number(corpus, each)) for each in names), Cell(remarks))

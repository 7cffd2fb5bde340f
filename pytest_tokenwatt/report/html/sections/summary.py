"""The figures of every configuration side by side, and what the run was of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pytest_tokenwatt.report.html.access import at, mapping, number, pair, text
from pytest_tokenwatt.report.html.page import Page
from pytest_tokenwatt.report.html.parts import Cell, Part, Section, figures, present, table, words
from pytest_tokenwatt.report.html.words import NOT_KNOWN, figure, interval, percentile_name, with_unit

Config = Mapping[str, Any]


def summary(page: Page) -> Section | None:
    """The table of figures, one column a configuration, and the subject of the run."""
    parts = present([_figures(page), _scores(page), _subject(page)])
    return Section("summary", "Summary", parts) if parts else None


def _figures(page: Page) -> Part | None:
    configs = page.configs
    if not configs:
        return None
    rows = [
        (Cell(name), *(Cell(written, numeric=True, small=small) for written, small in map(tell, configs)))
        for name, tell in _rows(page)
    ]
    told = [row for row in rows if any(cell.text != NOT_KNOWN for cell in row[1:])]
    return table("Figures by configuration; 95 % intervals below them", ("Figure", *page.heads), told)


Told = tuple[str, str]
Tell = Callable[[Config], Told]


def _rows(page: Page) -> list[tuple[str, Tell]]:
    return [
        ("SLO goodput", _goodput),
        ("Rate under the SLO", _number("rate_rps", "req/s")),
        ("SLO windows passed", _windows),
        *((_latency_name(name), _number(name, "ms", digits=4)) for name in _latencies(page)),
        ("Tokens per joule", _number("tokens_per_joule", "tok/J")),
        ("Power", _number("node_power_kw", "kW")),
        ("Memory bandwidth utilisation", _number("mbu_pct", "%")),
        ("Accuracy", partial(_accuracy, page)),
        ("KL divergence from the baseline", _kl),
        ("Speed against the baseline", _number("speed", "×")),
        ("Memory against the baseline", _number("memory", "×")),
        ("Score", _score),
    ]


def _latencies(page: Page) -> list[str]:
    names = [name for config in page.configs for name in config if _is_latency(name)]
    return list(dict.fromkeys(names))


def _is_latency(name: str) -> bool:
    head, _, rest = name.partition("_p")
    return head in ("ttft", "tpot", "itl", "e2e") and rest.removesuffix("_ms").replace(".", "").isdigit()


def _latency_name(name: str) -> str:
    metric, _, rest = name.partition("_p")
    return percentile_name(metric, float(rest.removesuffix("_ms")))


def _number(name: str, unit: str, digits: int = 3) -> Tell:
    def tell(config: Config) -> Told:
        bounds = interval(*pair(config, "intervals", name)) if name != "rate_rps" else ""
        return with_unit(number(config, name), unit, digits=digits), bounds

    return tell


def _goodput(config: Config) -> Told:
    value, bounds = _number("goodput_tok_s", "tok/s")(config)
    other = _bounds(mapping(config, "slo"))
    return value, f"under another SLO: {'; '.join(other)}" if other else bounds


def _windows(config: Config) -> Told:
    passed, repeats = number(config, "slo_pass_count"), number(config, "repeats")
    return (NOT_KNOWN if passed is None else f"{figure(passed)} of {figure(repeats)}"), ""


def _accuracy(page: Page, config: Config) -> Told:
    score, delta = number(config, "accuracy", "score"), number(config, "accuracy", "delta_pts")
    compared = delta is not None and text(config, "key") not in page.baselines
    return with_unit(score, "%"), with_unit(delta, "pt", sign=True) if compared else ""


def _kl(config: Config) -> Told:
    value, error = number(config, "kl", "kl"), number(config, "kl", "kl_se")
    return with_unit(value, "nats"), "" if error is None else f"standard error {figure(error)}"


def _score(config: Config) -> Told:
    result = mapping(config, "submission", "result")
    tier = text(result, "quality", "tier")
    return figure(number(result, "score"), digits=4), f"tier {tier}" if tier else ""


def _scores(page: Page) -> Part | None:
    told = [(key, mapping(config, "submission", "result")) for key, config in page.named()]
    rows = [(Cell(key), *_leaderboard(result)) for key, result in told if result]
    head = (
        "Configuration",
        "Efficiency gain",
        "Drift",
        "Score",
        "Standard error",
        "Tier",
        "Admitted",
        "Qualified",
        "Why",
    )
    return table("Leaderboard figures", head, rows)


def _leaderboard(result: Config) -> tuple[Cell, ...]:
    names = ("efficiency_gain", "drift", "score", "score_se")
    numbers = figures(figure(number(result, name), digits=4) for name in names)
    answers = words(*(_yes_or_no(at(result, name)) for name in ("admitted", "qualified")))
    return (*numbers, Cell(text(result, "quality", "tier")), *answers, Cell(text(result, "reason")))


def _yes_or_no(answer: Any) -> str:
    return {True: "yes", False: "no"}[answer] if isinstance(answer, bool) else "not decided"


def _subject(page: Page) -> Part | None:
    report = page.report
    facts = {
        "Hardware": _hardware(report),
        "Model": _joined(report, "model", "name", "shape", "quantization", "parallelism"),
        "Engine": _joined(report, "software", "engine", "engine_version", "kernels"),
        "SLO": "; ".join(_bounds(mapping(report, "slo"))),
        "Workload": _joined(report, "workload", "trace", "arrival"),
        "Input tokens": text(report, "workload", "input_tokens"),
        "Output tokens": text(report, "workload", "output_tokens"),
        "Power": _joined(report, "power", "source", "window"),
    }
    return table("What was measured", ("", ""), [words(name, fact) for name, fact in facts.items() if fact])


def _hardware(report: Mapping[str, Any]) -> str:
    count, name = number(report, "hardware", "count"), text(report, "hardware", "accelerator")
    board = f"{figure(count)} × {name}" if count is not None and name else name
    driver = text(report, "hardware", "driver")
    parts = (board, f"driver {driver}" if driver else "", text(report, "hardware", "host"))
    return " · ".join(part for part in parts if part)


def _joined(report: Mapping[str, Any], block: str, *names: str) -> str:
    found = (at(report, block, name) for name in names)
    return " · ".join(each for each in found if isinstance(each, str) and each)


def _bounds(slo: Mapping[str, Any]) -> list[str]:
    return [
        f"{_latency_name(name)} at most {with_unit(number(slo, name), 'ms')}"
        for name in slo
        if _is_latency(name) and number(slo, name) is not None
    ]

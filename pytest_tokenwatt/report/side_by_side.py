"""The figures of a lab report side by side: one row a figure, one column a configuration, as plain words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tokenwatt.report.configs import USUAL_PERCENTILES
from pytest_tokenwatt.report.html.access import at, mapping, mappings, number, pair, text
from pytest_tokenwatt.report.text import change, nats, points
from pytest_tokenwatt.report.text import number as short

NOTHING = "–"
Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FigureRow:
    """A figure by its name, and what it is in each configuration; ``–`` where it was not measured."""

    name: str
    cells: tuple[str, ...]


def role(config: Config) -> str:
    """The role of a configuration; in a file without roles its key."""
    return text(config, "role") or text(config, "key")


def baseline(report: Mapping[str, Any]) -> Config | None:
    """What the others are compared with."""
    return next((each for each in mappings(report, "configs") if role(each) == "baseline"), None)


def figure_rows(report: Mapping[str, Any], configs: Sequence[Config]) -> list[FigureRow]:
    """The rows in which any of ``configs`` has a figure. Changes are against the report's baseline."""
    base = baseline(report)
    rows = [
        FigureRow("Engine", tuple(text(each, "engine") or NOTHING for each in configs)),
        *_serving(configs, base, mapping(report, "slo"), ""),
        *_scenarios(report, configs, base),
        FigureRow("Node power", tuple(_kilowatts(each) for each in configs)),
        FigureRow("Memory bandwidth used (MBU)", tuple(_plain(number(each, "mbu_pct"), "%") for each in configs)),
        *_accuracy(configs),
        FigureRow("KL divergence", tuple(_divergence(each) for each in configs)),
        *(_gain(configs, name) for name in ("speed", "memory")),
        FigureRow("Peak memory (serve)", tuple(_plain(number(each, "peak_gib"), "GiB") for each in configs)),
    ]
    return [row for row in rows if set(row.cells) - {NOTHING}]


def _serving(
    configs: Sequence[Config], base: Config | None, slo: Mapping[str, Any], scenario: str
) -> Iterator[FigureRow]:
    """Rate, goodput, latencies and tokens per joule of one scenario, each as ``configs`` hold them."""
    beside = f" ({scenario})" if scenario else ""
    yield FigureRow(
        f"Rate within the SLO{beside}", tuple(_plain(number(each, "rate_rps"), "req/s") for each in configs)
    )
    yield FigureRow(f"Goodput{beside}", tuple(_goodput(each, base) for each in configs))
    for name in dict.fromkeys([*USUAL_PERCENTILES, *filter(_is_latency, slo)]):
        cells = tuple(_measured(each, name, "ms") for each in configs)
        yield FigureRow(f"{_latency_name(name)}{beside}{_bound(number(slo, name))}", cells)
    yield FigureRow(f"Tokens per joule{beside}", tuple(_per_joule(each, base) for each in configs))


def _scenarios(report: Mapping[str, Any], configs: Sequence[Config], base: Config | None) -> Iterator[FigureRow]:
    """Further scenarios; the figures of the first stand in the configurations themselves."""
    found = dict.fromkeys(name for each in configs for name in mapping(each, "scenarios"))
    for name in list(found)[1:]:
        entries = [mapping(each, "scenarios", name) for each in configs]
        own = mapping(base, "scenarios", name) if base else None
        yield from _serving(entries, own, mapping(report, "scenarios", name, "slo"), name)


def _is_latency(name: str) -> bool:
    return name.endswith("_ms")


def _latency_name(name: str) -> str:
    """``ttft_p99_ms`` as TTFT p99."""
    metric, _, percentile = name.removesuffix("_ms").partition("_")
    return f"{metric.upper()} {percentile}".strip()


def _bound(bound: float | None) -> str:
    return "" if bound is None else f", at most {short(bound)} ms"


def _plain(value: float | None, unit: str) -> str:
    return NOTHING if value is None else f"{short(value)} {unit}"


def _measured(config: Config, name: str, unit: str) -> str:
    """A figure with its unit and its 95 % interval; an end that is not known is an ellipsis."""
    low, high = pair(config, "intervals", name)
    said = _plain(number(config, name), unit)
    if said == NOTHING or (low is None and high is None):
        return said
    ends = ["…" if end is None else short(end) for end in (low, high)]
    return f"{said} [{', '.join(ends)}]"


def _against(config: Config, base: Config | None, name: str) -> str:
    """The change against the baseline: " (+14.4 %)"."""
    value, before = number(config, name), number(base, name)
    if value is None or not before or before < 0 or config is base:
        return ""
    if mapping(config, "slo") != (mapping(base, "slo") if base else {}):
        return ""
    return f" ({change(value / before)})"


def _goodput(config: Config, base: Config | None) -> str:
    error = number(config, "goodput_error_pct")
    width = "" if error is None else f" ± {error:.1f} %"
    said = _plain(number(config, "goodput_tok_s"), "tok/s")
    return said if said == NOTHING else f"{said}{width}{_against(config, base, 'goodput_tok_s')}{_under(config)}"


def _under(config: Config) -> str:
    """The SLO of figures that are not under the report's."""
    bounds = [
        f"{_latency_name(name)} {short(ms)} ms"
        for name in mapping(config, "slo")
        if (ms := number(config, "slo", name))
    ]
    return f" (under {', '.join(bounds)})" if bounds else ""


def _per_joule(config: Config, base: Config | None) -> str:
    said = _measured(config, "tokens_per_joule", "tok/J")
    return said if said == NOTHING else f"{said}{_against(config, base, 'tokens_per_joule')}{_no_energy(config)}"


def _kilowatts(config: Config) -> str:
    kilowatts = number(config, "node_power_kw")
    return NOTHING if kilowatts is None else f"{_plain(1000 * kilowatts, 'W')}{_no_energy(config)}"


def _no_energy(config: Config) -> str:
    return _doubt(mapping(config, "energy"))


def _doubt(block: Mapping[str, Any]) -> str:
    """What stands behind a figure that is not to be believed."""
    return " (invalid)" if at(block, "validity", "valid") is False else ""


def _accuracy(configs: Sequence[Config]) -> Iterator[FigureRow]:
    """One row a suite; a report with one suite need not name it."""
    names = dict.fromkeys(text(entry, "suite") for each in configs for entry in _suites(each))
    for name in names:
        found = [next((entry for entry in _suites(each) if text(entry, "suite") == name), {}) for each in configs]
        said = tuple(_score(entry, role(each)) for entry, each in zip(found, configs, strict=True))
        yield FigureRow(f"Accuracy ({name})" if name else "Accuracy", said)


def _suites(config: Config) -> list[Mapping[str, Any]]:
    return mappings(config, "accuracy") or [mapping(config, "accuracy")]


def _score(entry: Mapping[str, Any], of: str) -> str:
    score, delta = number(entry, "score"), number(entry, "delta_pts")
    low, high = pair(entry, "interval_pts")
    if score is None and delta is None:
        return NOTHING
    said, doubt = "" if score is None else f"{score:.1f} %", _doubt(entry)
    if delta is None or of == "baseline":
        return f"{said or NOTHING}{doubt}"
    width = "" if low is None or high is None else f" [{points(low)}, {points(high)}]"
    return f"{said} ({points(delta)} pt{width}){doubt}".strip()


def _divergence(config: Config) -> str:
    value, error = number(config, "kl", "kl"), number(config, "kl", "kl_se")
    if value is None:
        return NOTHING
    width = "" if error is None else f" ± {nats(1.96 * error)}"
    return f"{nats(value)}{width} nats/token{_doubt(mapping(config, 'kl'))}"


def _gain(configs: Sequence[Config], name: str) -> FigureRow:
    """Speed or memory as a multiple of the baseline's."""
    cells = tuple(_measured(each, name, "×").replace(" ×", "×") for each in configs)
    return FigureRow(f"{name.capitalize()} against the baseline", cells)

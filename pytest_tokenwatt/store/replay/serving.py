"""Goodput, latencies and energy of a configuration as a lab report states them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pytest_tokenwatt.records import DEFAULT_SCENARIO, EnergyRecord, Figure, GoodputRecord, Percentile, Reason, SloBound
from pytest_tokenwatt.spec.traffic import METRICS
from pytest_tokenwatt.store.replay.fields import Fields
from pytest_tokenwatt.store.replay.told import NOT_STORED

_LATENCY = re.compile(rf"({'|'.join(METRICS)})_p(\d{{1,2}}(?:\.\d{{1,4}})?)_ms")
_SERVED = ("goodput_tok_s", "slo_pass_count", "output_tok_s", "rate_rps")
_UNITS = {
    "goodput_tok_s": "tok/s",
    "output_tok_s": "tok/s",
    "rate_rps": "req/s",
    "node_power_kw": "kW",
    "energy_j": "J",
    "tokens_per_joule": "tok/J",
    "output_tokens_per_joule": "tok/J",
    "mbu_pct": "%",
    "mbu_engine_pct": "%",
    "idle_power_w": "W",
}
"""Figures of an entry that a rule may name, beside latencies."""
_TOLERANCE = 0.01
"""Relative; published powers have three digits."""


@dataclass(frozen=True, slots=True)
class Serving:
    """What all configurations of a report share: the report, its spec, and the names of its scenarios."""

    report: Fields
    spec: dict[str, Any]

    def scenarios(self, row: Fields, invalid: tuple[Reason, ...]) -> dict[str, GoodputRecord]:
        """Every scenario of a configuration's entry of which anything is stored."""
        blocks = dict(row.block("scenarios").blocks()) or {self._default_name(): row}
        found = {name: self._goodput(row, name, block, invalid) for name, block in blocks.items()}
        return {name: record for name, record in found.items() if record is not None}

    def _default_name(self) -> str:
        listed = self.spec.get("scenarios")
        first = listed[0] if isinstance(listed, list) and listed else {}
        name = first.get("name") if isinstance(first, dict) else None
        return name if isinstance(name, str) and name else DEFAULT_SCENARIO

    def _goodput(self, row: Fields, name: str, block: Fields, invalid: tuple[Reason, ...]) -> GoodputRecord | None:
        if all(block.data.get(key) is None for key in _SERVED):
            return None
        tok_s, rate_rps = block.number("goodput_tok_s", least=0.0), block.number("rate_rps", least=0.0)
        bounds = self._bounds(name, block.block("slo"))
        percentiles = tuple(self._percentiles(block, bounds))
        rate = block.block("intervals").block("rate_rps")
        bracket = rate.text("bracket") or "closed"
        repeats = self._repeats(block)
        passed = _passed(block, repeats)
        misses = tuple(_misses(block, percentiles, passed, repeats))
        energy = self._energy(block, tok_s)
        return GoodputRecord(
            scenario=name,
            mode="fixed" if bracket == "fixed" else "search",
            slo=tuple(bounds.values()),
            # A rate that fails is never reported as goodput.
            rate_rps=None if misses else rate_rps,
            goodput_tok_s=None if misses else tok_s,
            output_tok_s=block.number("output_tok_s", least=0.0),
            percentiles=percentiles,
            slo_pass_count=passed,
            repeats=repeats,
            highest_passing_rps=rate.number("low", least=0.0),
            lowest_failing_rps=rate.number("high", least=0.0),
            bracket=bracket,
            backoffs=0,
            error_pct=block.number("goodput_error_pct", least=0.0),
            variance_band_pct=block.number("variance_band_pct", least=0.0),
            misses=misses,
            invalid=(*(invalid if block is row else block.reasons()), *_contradictions(block, tok_s, energy)),
            notes=block.texts("notes"),
            windows=(),
            figures=_figures(block, percentiles),
            load_sha256=self._hash(row.wanted("key"), name),
            energy=energy,
        )

    def _repeats(self, block: Fields) -> int:
        found = block.count("repeats") or self.report.count("runs")
        return found or self.report.block("spec").block("measurement").count("repeats") or 1

    def _hash(self, key: str, scenario: str) -> str | None:
        hashes = self.report.block("provenance").block("hashes").block("load_sha256")
        return hashes.block(key).text(scenario)

    def _bounds(self, scenario: str, entry: Fields) -> dict[str, SloBound]:
        """The SLO by the names of its figures: that of the entry where it has its own, the scenario's, the report's."""
        own = self.report.block("scenarios").block(scenario).block("slo")
        own, slo = entry if entry.data else own, self.spec.get("slo")
        told = own if own.data else Fields(self.report.where, slo if isinstance(slo, dict) else {}, "spec.slo")
        found = (_bound(name, bound_ms) for name, bound_ms in told.numbers(least=0.0).items())
        bounds = sorted(
            (each for each in found if each), key=lambda each: (METRICS.index(each.metric), each.percentile)
        )
        return {each.name: each for each in bounds}

    def _percentiles(self, block: Fields, bounds: dict[str, SloBound]) -> Iterator[Percentile]:
        """Those that the SLO asks for; at no goodput rate there are none."""
        for name, bound in bounds.items():
            if not block.has(name) or block.null("goodput_tok_s"):
                continue
            value, interval = block.number(name, least=0.0), block.block("intervals").block(name)
            why = block.block("missing").text(name) or ""
            yield Percentile(
                bound.metric,
                bound.percentile,
                value,
                value is None and why.startswith("infinite"),
                interval.count("n") or 0,
                interval.number("low"),
                interval.number("high"),
                bound.bound_ms,
            )

    def _energy(self, block: Fields, tok_s: float | None) -> EnergyRecord | None:
        told, power = block.block("energy"), self.report.block("power")
        kw = block.number("node_power_kw")
        if kw is None and block.number("tokens_per_joule") is None and not told.data:
            return None
        reasons = told.reasons() or tuple(_implausible(block, kw, tok_s))
        counts = _counts(block)
        return EnergyRecord(
            source=told.text("source") or self._source(),
            kind=told.text("kind") or power.text("kind") or "board",
            sensors=told.count("sensors") or self.report.block("hardware").count("count") or 0,
            energy_j=block.number("energy_j", least=0.0),
            node_power_kw=kw,
            tokens_per_joule=None if reasons else _tokens_per_joule(block, kw, tok_s),
            output_tokens_per_joule=block.number("output_tokens_per_joule", least=0.0),
            variance_band_pct=told.number("variance_band_pct", least=0.0),
            throttle_counts=counts,
            throttle_samples=block.count("throttle_samples") or 0,
            throttle_s=block.block("throttle_s").numbers(least=0.0),
            gpu_share_pct=told.number("gpu_share_pct", least=0.0),
            invalid=reasons,
            notes=told.texts("notes"),
            methods=told.texts("methods"),
        )

    def _source(self) -> str:
        """The first source of the spec."""
        rows = self.report.block("spec").rows("power")
        return (rows[0].text("source") if rows else None) or "board"


def _bound(name: str, bound_ms: float) -> SloBound | None:
    """The bound that a key such as ``tpot_p99.9_ms`` names; ``None`` for any other key."""
    match = _LATENCY.fullmatch(name)
    return SloBound(match[1], float(match[2]), bound_ms) if match else None


def _passed(block: Fields, repeats: int) -> int | None:
    passed = block.count("slo_pass_count")
    if passed is not None and passed > repeats:
        raise block.wrong("slo_pass_count", f"{passed} of {repeats} repeats cannot have passed")
    return passed


def _contradictions(block: Fields, tok_s: float | None, energy: EnergyRecord | None) -> Iterator[Reason]:
    """A goodput that is more than all output, or not the one that its energy is of."""
    output = block.number("output_tok_s", least=0.0)
    if tok_s is not None and output is not None and tok_s > output * (1.0 + _TOLERANCE):
        yield Reason("contradiction", f"a goodput of {tok_s:.4g} tok/s is stored, more than all output of {output:.4g}")
    yield from (reason for reason in (energy.invalid if energy else ()) if reason.code == "contradiction")


def _misses(block: Fields, percentiles: tuple[Percentile, ...], passed: int | None, repeats: int) -> Iterator[str]:
    """Why no rate passed: goodput that is stored as null, repeats that fail, percentiles beyond their bounds."""
    if block.null("goodput_tok_s"):
        yield block.block("missing").text("goodput_tok_s") or "no rate passed"
    elif passed is not None and passed < repeats:
        yield f"{passed} of {repeats} repeats pass"
    for each in percentiles:
        if each.value_ms is not None and not each.met:
            yield f"{each.metric.upper()} p{each.percentile:g} {each.value_ms:g} ms > {each.bound_ms:g} ms"


def _figures(block: Fields, percentiles: tuple[Percentile, ...]) -> dict[str, Figure]:
    """Every number that a rule may name."""
    missing, measured = block.block("missing").words(), {each.name for each in percentiles}
    units = {**_UNITS, **{name: "ms" for name in block.data if _bound(name, 0.0)}}
    told = {
        name: Figure(block.number(name), unit, reason=missing.get(name))
        for name, unit in units.items()
        if block.has(name)
    }
    return told | dict(_with_intervals(block, told, measured))


def _with_intervals(block: Fields, told: dict[str, Figure], measured: set[str]) -> Iterator[tuple[str, Figure]]:
    """Latencies with their intervals, which our own reports have of all that no SLO asks for."""
    for name, ends in block.block("intervals").blocks():
        known = told.get(name, Figure(None, "ms", reason=NOT_STORED))
        n = ends.count("n")
        if _bound(name, 0.0) and (n or name not in measured):
            yield name, replace(known, low=ends.number("low"), high=ends.number("high"), n=n or None)


def _counts(block: Fields) -> dict[str, int] | None:
    if block.data.get("throttle_counts") is None:
        return None
    counts = block.block("throttle_counts")
    return {name: counts.count(name) or 0 for name in counts.data}


def _tokens_per_joule(block: Fields, kw: float | None, tok_s: float | None) -> float | None:
    """As stored; a report without the figure has it by its definition, goodput / power."""
    if block.has("tokens_per_joule"):
        return block.number("tokens_per_joule", least=0.0)
    return None if kw is None or tok_s is None else tok_s / (1000.0 * kw)


def _implausible(block: Fields, kw: float | None, tok_s: float | None) -> Iterator[Reason]:
    """Power that no machine draws, and figures that contradict each other."""
    if kw is not None and kw <= 0:
        yield Reason("implausible_power", f"a power of {kw:g} kW is stored")
        return
    stored = block.number("tokens_per_joule", least=0.0)
    if stored is None or kw is None or tok_s is None:
        return
    derived = tok_s / (1000.0 * kw)
    if abs(stored - derived) > _TOLERANCE * max(stored, derived):
        text = f"{stored:.4g} tokens per joule are stored, but {tok_s:.4g} tok/s at {kw:.3g} kW are {derived:.4g}"
        yield Reason("contradiction", text)

"""One entry of a lab report's ``configs``: figures, their intervals, and why some are missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_tokenwatt.records import ConfigRecord, GoodputRecord, Percentile
from pytest_tokenwatt.report.accuracy import accuracy_entry, accuracy_summary, answers_files
from pytest_tokenwatt.report.audit import timed_audit
from pytest_tokenwatt.report.budget import budget
from pytest_tokenwatt.report.describe import engine_text
from pytest_tokenwatt.report.drift import kl_entry, missing_kl
from pytest_tokenwatt.report.efficiency import efficiency, gain_intervals, memory, speed
from pytest_tokenwatt.report.energy import (
    energy_block,
    energy_fields,
    energy_interval,
    idle_power_w,
    missing_energy,
    missing_idle,
)
from pytest_tokenwatt.report.length import length_interval, lengths_asked, missing_length
from pytest_tokenwatt.report.memory import peak_memory
from pytest_tokenwatt.report.power import power_sources
from pytest_tokenwatt.report.profiles import profile_entries, profile_files
from pytest_tokenwatt.report.promise import own_slo
from pytest_tokenwatt.report.startup import precision, startup
from pytest_tokenwatt.report.subject import Subject
from pytest_tokenwatt.report.told import Told, together
from pytest_tokenwatt.report.validity import validity
from pytest_tokenwatt.spec.model import Configuration

USUAL_PERCENTILES = ("ttft_p99_ms", "tpot_p99_ms")
PUBLISHED = ("mbu_pct", "node_power_kw", "throttle_counts")
"""Figures of energy that have their place in published reports; the others stand behind those."""


def config_entry(subject: Subject) -> dict[str, Any]:
    """The entry of one configuration; its figures of serving are those of the first scenario."""
    record, configuration = subject.record, subject.configuration
    first = next(iter(record.scenarios.values()), None)
    figures, energy, told = _figures(first), energy_fields(first), _told(subject)
    suites, band = subject.spec.accuracy, subject.energy_band_pct
    entry = {
        "key": record.key,
        "label": record.label,
        "engine": engine_text(record, configuration),
        "mbu_pct": energy["mbu_pct"],
        "node_power_kw": energy["node_power_kw"],
        "goodput_tok_s": figures["goodput_tok_s"],
        **_latencies(first),
        "slo_pass_count": figures["slo_pass_count"],
        **_own_slo(first, configuration),
        "repeats": first.repeats if first else configuration.scenarios[0].measurement.repeats,
        "throttle_counts": energy["throttle_counts"],
        "accuracy": accuracy_entry(record, suites, subject.accuracy),
        **accuracy_summary(subject.accuracy),
        "length_shift": subject.length.shift if subject.length else None,
        "kl": kl_entry(record, subject.spec.drift, subject.drift),
        "role": record.role,
        "like": record.like,
        **{name: value for name, value in energy.items() if name not in PUBLISHED},
        "idle_power_w": idle_power_w(record),
        **{name: figures[name] for name in ("output_tok_s", "rate_rps", "goodput_error_pct", "variance_band_pct")},
        **told.fields,
        "intervals": {
            **_intervals(first),
            **energy_interval(first, band),
            **length_interval(subject.length),
            **gain_intervals(subject),
        },
        "validity": validity((*record.invalid, *(first.invalid if first else ()))),
        "missing": {
            **_missing(record, configuration, first),
            **missing_idle(record, configuration),
            **missing_length(record, lengths_asked(subject.spec), subject.length),
            **missing_kl(record, subject.spec.drift),
            **told.missing,
        },
        "energy": energy_block(first),
        "power": power_sources(record),
        "profiles": profile_entries(record),
        "notes": list(first.notes) if first else [],
        "minutes": dict(record.minutes),
        "files": _files(record),
    }
    if len(record.scenarios) > 1:
        entry["scenarios"] = {
            name: _scenario(record, configuration, each, band if each is first else _own_band(each))
            for name, each in record.scenarios.items()
        }
    return entry


def _told(subject: Subject) -> Told:
    """Profiles, memory, precision, start-up, reruns and audits, named as in published records."""
    parts = (efficiency, speed, memory, peak_memory, precision, budget, timed_audit)
    return together([*(part(subject) for part in parts), startup(subject.record)])


def _scenario(
    record: ConfigRecord, configuration: Configuration, goodput: GoodputRecord, energy_band_pct: float | None
) -> dict[str, Any]:
    return {
        **_figures(goodput),
        **_own_slo(goodput, configuration),
        **_latencies(goodput),
        **energy_fields(goodput),
        "repeats": goodput.repeats,
        "intervals": {**_intervals(goodput), **energy_interval(goodput, energy_band_pct)},
        "validity": validity(goodput.invalid),
        "missing": _missing(record, configuration, goodput),
        "energy": energy_block(goodput),
        "notes": list(goodput.notes),
    }


def _own_band(goodput: GoodputRecord) -> float | None:
    """How far the repeats of one configuration differ, where the session's band is of another scenario."""
    return goodput.energy.variance_band_pct if goodput.energy else None


def _own_slo(goodput: GoodputRecord | None, configuration: Configuration) -> dict[str, Any]:
    """The SLO of the figures, where it is not that of the report."""
    found = own_slo(goodput, configuration) if goodput else None
    return {"slo": found} if found is not None else {}


def _figures(goodput: GoodputRecord | None) -> dict[str, float | None]:
    return {
        "goodput_tok_s": goodput.goodput_tok_s if goodput else None,
        "output_tok_s": goodput.output_tok_s if goodput else None,
        "rate_rps": goodput.rate_rps if goodput else None,
        "slo_pass_count": goodput.slo_pass_count if goodput else None,
        "goodput_error_pct": goodput.error_pct if goodput else None,
        "variance_band_pct": goodput.variance_band_pct if goodput else None,
    }


def _percentile_names(goodput: GoodputRecord | None) -> list[str]:
    bounds = [bound.name for bound in goodput.slo] if goodput else []
    return list(dict.fromkeys([*USUAL_PERCENTILES, *bounds]))


def _latencies(goodput: GoodputRecord | None) -> dict[str, float | None]:
    return {name: _latency(goodput, name) for name in _percentile_names(goodput)}


def _latency(goodput: GoodputRecord | None, name: str) -> float | None:
    """A latency at the goodput rate; without such a rate the record's are those of windows that failed."""
    if goodput is None or not goodput.confirmed:
        return None
    percentile = _percentile(goodput, name)
    if percentile is not None:
        return percentile.value_ms
    figure = goodput.figures.get(name)
    return figure.value if figure else None


def _percentile(goodput: GoodputRecord, name: str) -> Percentile | None:
    return next((percentile for percentile in goodput.percentiles if percentile.name == name), None)


def _intervals(goodput: GoodputRecord | None) -> dict[str, Any]:
    """95 % intervals of the percentiles with their sample sizes, and the bracket of the rate."""
    if goodput is None:
        return {}
    rate = {"low": goodput.highest_passing_rps, "high": goodput.lowest_failing_rps, "bracket": goodput.bracket}
    found = _sampled(goodput)
    named = {each.name: {"low": each.low_ms, "high": each.high_ms, "n": each.n} for each in found}
    return {"rate_rps": rate, **named, **_stored_intervals(goodput, named)}


def _sampled(goodput: GoodputRecord) -> tuple[Percentile, ...]:
    """Those at the goodput rate, but for what a record from elsewhere states without its sample."""
    found = goodput.percentiles if goodput.confirmed else ()
    return tuple(each for each in found if each.n or each.low_ms is not None)


def _stored_intervals(goodput: GoodputRecord, known: Mapping[str, Any]) -> dict[str, Any]:
    """Those of latencies that a record from elsewhere has beside the ones of its SLO."""
    others = {name: figure for name, figure in goodput.figures.items() if name not in known and figure.unit == "ms"}
    told = {} if goodput.windows else {name: figure for name, figure in others.items() if figure.n is not None}
    return {name: {"low": figure.low, "high": figure.high, "n": figure.n} for name, figure in told.items()}


def _missing(record: ConfigRecord, configuration: Configuration, goodput: GoodputRecord | None) -> dict[str, str]:
    """Why a figure is ``null``, for those that this configuration should have."""
    if goodput is None:
        why = "; ".join(map(str, record.invalid)) or "not measured in this run"
        missing = dict.fromkeys([*_figures(None), *USUAL_PERCENTILES], why)
        return {**missing, **missing_energy(record, configuration, None, why)}
    why = "; ".join(map(str, goodput.invalid)) or "; ".join(goodput.misses) or "not measured"
    missing = {name: _why_none(goodput, name, why) for name, value in _figures(goodput).items() if value is None}
    for name in _percentile_names(goodput):
        if _latency(goodput, name) is None:
            missing[name] = _why_no_latency(goodput, name, why)
    return {**missing, **missing_energy(record, configuration, goodput, why), **_open_ends(goodput)}


def _why_none(goodput: GoodputRecord, name: str, why: str) -> str:
    if goodput.rate_rps is not None and name == "goodput_error_pct":
        return "rates were fixed, not searched" if goodput.bracket == "fixed" else "no rate failed"
    return "one repeat has no spread" if goodput.repeats == 1 and name == "variance_band_pct" else why


def _why_no_latency(goodput: GoodputRecord, name: str, why: str) -> str:
    percentile, figure = _percentile(goodput, name), goodput.figures.get(name)
    if goodput.confirmed and percentile is not None and percentile.infinite:
        return "infinite: the percentile falls on a failed request"
    return (figure.reason if figure else None) or why


def _open_ends(goodput: GoodputRecord) -> dict[str, str]:
    found = _sampled(goodput)
    repeats = f" ({goodput.repeats} repeats of one schedule, which count as one)" if goodput.repeats > 1 else ""
    why = f"observations{repeats} are too few for a finite upper end"
    return {f"intervals.{each.name}.high": f"{each.n} {why}" for each in found if each.high_ms is None}


def _files(record: ConfigRecord) -> list[str]:
    windows = (window.requests_file for goodput in record.scenarios.values() for window in goodput.windows)
    powers = (source.file for source in record.power)
    timed = [*(name for name in (*windows, *powers) if name), *profile_files(record)]
    return list(dict.fromkeys([*record.files, *timed, *_quality_files(record)]))


def _quality_files(record: ConfigRecord) -> list[str]:
    scored = record.drift.file if record.drift else None
    return [*answers_files(record), *([scored] if scored else [])]

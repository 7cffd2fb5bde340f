"""Power, energy, throttling and bandwidth use of one scenario, and why any of them is missing."""

from __future__ import annotations

from typing import Any

from pytest_tokenwatt.records import ConfigRecord, EnergyRecord, GoodputRecord
from pytest_tokenwatt.report.power import no_energy
from pytest_tokenwatt.report.validity import validity
from pytest_tokenwatt.spec.model import Configuration

JOULES = ("node_power_kw", "tokens_per_joule", "output_tokens_per_joule", "energy_j")
THROTTLING = ("throttle_counts", "throttle_samples", "throttle_s")
BANDWIDTH = ("mbu_pct", "mbu_engine_pct")


def energy_fields(goodput: GoodputRecord | None) -> dict[str, Any]:
    """The figures by the names of published reports; ``throttle_counts`` has the reasons that were seen at all."""
    energy = goodput.energy if goodput else None
    counts = energy.throttle_counts if energy else None
    return {
        **{name: getattr(energy, name) if energy else None for name in JOULES},
        "throttle_counts": None if counts is None else {name: count for name, count in counts.items() if count},
        "throttle_samples": _samples(energy) if energy else None,
        "throttle_s": dict(energy.throttle_s) if energy and counts is not None else None,
        **{name: _figure(goodput, name) for name in BANDWIDTH},
    }


def _samples(energy: EnergyRecord) -> int | None:
    """How many were taken, of which a record from elsewhere may have those alone that were throttled."""
    if energy.throttle_counts is None or energy.throttle_samples < max(energy.throttle_counts.values(), default=0):
        return None
    return energy.throttle_samples


def _figure(goodput: GoodputRecord | None, name: str) -> float | None:
    figure = goodput.figures.get(name) if goodput else None
    return figure.value if figure else None


def idle_power_w(record: ConfigRecord) -> float | None:
    """Power with the model loaded and nothing to do, of the first source."""
    return record.power[0].idle_w.value if record.power else None


def energy_block(goodput: GoodputRecord | None) -> dict[str, Any] | None:
    """Where the energy comes from, how far repeats differ, and whether it is to be believed."""
    energy = goodput.energy if goodput else None
    if goodput is None or energy is None:
        return None
    methods = [window.power[0].method for window in goodput.windows if window.power]
    return {
        "source": energy.source,
        "kind": energy.kind,
        "sensors": energy.sensors,
        "methods": list(dict.fromkeys(method for method in methods if method is not None)) or list(energy.methods),
        "variance_band_pct": energy.variance_band_pct,
        "gpu_share_pct": energy.gpu_share_pct,
        "validity": validity(energy.invalid),
        "notes": list(energy.notes),
    }


def energy_interval(goodput: GoodputRecord | None, band_pct: float | None) -> dict[str, Any]:
    """Tokens per joule widened by the session's band; empty when either is not known."""
    energy = goodput.energy if goodput else None
    if goodput is None or energy is None or energy.tokens_per_joule is None or band_pct is None:
        return {}
    error = energy.tokens_per_joule * band_pct / 100.0
    low, high = energy.tokens_per_joule - error, energy.tokens_per_joule + error
    return {"tokens_per_joule": {"low": low, "high": high, "n": goodput.repeats}}


def missing_energy(
    record: ConfigRecord, configuration: Configuration, goodput: GoodputRecord | None, why: str
) -> dict[str, str]:
    """The reason of each figure that is ``None``; ``why`` nothing was confirmed, if it was not."""
    if goodput is None or not goodput.confirmed:
        return dict.fromkeys((*JOULES, *THROTTLING, *BANDWIDTH), why)
    reasons = goodput.energy.invalid if goodput.energy else tuple(no_energy(record, configuration))
    unpowered = "; ".join(map(str, reasons)) or "not measured"
    fields = energy_fields(goodput)
    missing = {name: unpowered for name in JOULES if fields[name] is None}
    missing |= {name: _unthrottled(goodput.energy, unpowered) for name in THROTTLING if fields[name] is None}
    return missing | {name: _no_figure(goodput, name) for name in BANDWIDTH if fields[name] is None}


def _unthrottled(energy: EnergyRecord | None, unpowered: str) -> str:
    if energy is None:
        return unpowered
    told = energy.throttle_counts is None
    return (
        f"the source {energy.source} gives no throttle reasons" if told else "how many samples there were is not known"
    )


def _no_figure(goodput: GoodputRecord, name: str) -> str:
    figure = goodput.figures.get(name)
    return (figure.reason if figure else None) or "not measured"


def missing_idle(record: ConfigRecord, configuration: Configuration) -> dict[str, str]:
    """Why the idle power is ``None``."""
    if idle_power_w(record) is not None:
        return {}
    reasons = "; ".join(map(str, [*record.invalid, *no_energy(record, configuration)]))
    return {"idle_power_w": (record.power[0].idle_w.reason if record.power else None) or reasons}

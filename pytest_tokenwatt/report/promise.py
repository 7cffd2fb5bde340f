"""Whether a scenario was measured under the SLO that a report is about, where records may differ in it."""

from __future__ import annotations

from pytest_tokenwatt.records import ConfigRecord, GoodputRecord
from pytest_tokenwatt.spec.model import Configuration, Spec


def own_slo(record: GoodputRecord, configuration: Configuration) -> dict[str, float] | None:
    """The bounds in ms by name that a scenario was measured under, where the spec asks for others; else ``None``."""
    asked = next((each.bounds for each in configuration.scenarios if each.name == record.scenario), ())
    measured = {bound.name: float(bound.bound_ms) for bound in record.slo}
    differs = bool(asked and measured) and measured != {bound.name: float(bound.bound_ms) for bound in asked}
    return measured if differs else None


def slo_words(bounds: dict[str, float]) -> str:
    """ "tpot_p99_ms <= 50, ttft_p99_ms <= 2000"."""
    return ", ".join(f"{name} <= {bound_ms:g}" for name, bound_ms in bounds.items())


def slos_differ(spec: Spec, scenario: str, *records: ConfigRecord | None) -> bool:
    """Whether any of the records holds the scenario under another SLO than the spec asks for."""
    found = [
        (each.scenarios[scenario], each.key) for each in records if each is not None and scenario in each.scenarios
    ]
    known = {configuration.key: configuration for configuration in spec.configurations}
    return any(key in known and own_slo(record, known[key]) is not None for record, key in found)

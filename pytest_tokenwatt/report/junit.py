"""A gate as properties of its JUnit test case."""

from __future__ import annotations

from pytest_tokenwatt.records import GateResult

Property = tuple[str, str | float]


def junit_properties(result: GateResult) -> list[Property]:
    """Name and value of everything that is known of the gate; what is not known is left out."""
    known: dict[str, str | float | None] = {
        "config": result.config,
        "gate": result.gate,
        "verdict": result.verdict.value,
        "mode": result.mode,
        "value": result.value,
        "unit": result.unit,
        "limit": result.limit,
        "error": result.error,
        "text": result.text or None,
        "rule": result.rule or None,
        "reasons": "; ".join(str(reason) for reason in result.reasons) or None,
    }
    return [(f"tokenwatt_{name}", value) for name, value in known.items() if value is not None]

"""A gate as properties of its JUnit test case: one property a figure, under names that stay.

=========================  ======================================================================
property                   content
=========================  ======================================================================
``tokenwatt_config``       key of the configuration
``tokenwatt_gate``         the gate, such as ``slo`` or ``accuracy[gsm8k]``
``tokenwatt_verdict``      ``pass``, ``fail``, ``inconclusive``, ``invalid``, or ``-`` (informational)
``tokenwatt_found``        what the rule says whatever the mode; left out where only the verdict is known
``tokenwatt_mode``         ``enforce`` or ``info``
``tokenwatt_value``        the judged figure, a number in ``tokenwatt_unit``
``tokenwatt_unit``         its unit, such as ``ms``, ``ratio`` or ``nats/token``
``tokenwatt_limit``        the bound of the rule, a number in the same unit
``tokenwatt_error``        half-width of the 95 % interval of the value, a number in the same unit
``tokenwatt_text``         value and interval as the table shows them
``tokenwatt_rule``         the rule as the table shows it
``tokenwatt_reasons``      why it is not a pass: ``code: sentence``, several behind semicolons
=========================  ======================================================================

What is not known is left out. Every content is one line of text or one finite number.
"""

from __future__ import annotations

from pytest_tokenwatt.records import GateResult
from pytest_tokenwatt.report.text import one_line
from pytest_tokenwatt.report.told import finite

Property = tuple[str, str | float]
MOST_LETTERS = 2_000
"""Of one content: an engine's last words can be long, and test servers cut or refuse what is."""


def junit_properties(result: GateResult) -> list[Property]:
    """Name and value of everything that is known of the gate."""
    numbers = {"value": result.value, "limit": result.limit, "error": result.error}
    words = {
        "config": result.config,
        "gate": result.gate,
        "verdict": result.verdict.value,
        "found": result.found.value if result.found else None,
        "mode": result.mode,
        "unit": result.unit,
        "text": result.text,
        "rule": result.rule,
        "reasons": "; ".join(map(str, result.reasons)),
    }
    found: dict[str, str | float | None] = {name: _scalar(value) for name, value in numbers.items()}
    found |= {name: _line(value or "") or None for name, value in words.items()}
    return [(f"tokenwatt_{name}", value) for name, value in found.items() if value is not None]


def _scalar(value: float | None) -> float | None:
    """The number as Python's own, which travels between processes."""
    known = finite(value)
    return None if known is None else float(known)


def _line(words: str) -> str:
    line = " ".join(one_line(words).split())
    return line if len(line) <= MOST_LETTERS else f"{line[: MOST_LETTERS - 1]}…"

"""Numbers in sentences, and gates as JUnit properties."""

from __future__ import annotations

import pytest

from pytest_tokenwatt.records import GateResult, Reason, Verdict
from pytest_tokenwatt.report.junit import junit_properties
from pytest_tokenwatt.report.text import change, duration, listing, number


@pytest.mark.parametrize(
    ("value", "text"),
    [(5056.9, "5057"), (100, "100"), (43.72, "43.7"), (11.24, "11.2"), (1.106, "1.11"), (0.04123, "0.0412"), (0, "0")],
)
def test_numbers_show_three_digits(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.00001234, "0.000"), (99.96, "100"), (1e6, "1000000")])
def test_numbers_never_show_exponents(value: float, text: str) -> None:
    assert number(value) == text


def test_changes_are_signed_per_cent() -> None:
    assert [change(1.144), change(1.0), change(0.9)] == ["+14.4 %", "+0.0 %", "-10.0 %"]


@pytest.mark.parametrize(
    ("minutes", "text"), [(0.5, "30 s"), (1, "1 min"), (16.4, "16 min"), (59.6, "1 h 00 min"), (125, "2 h 05 min")]
)
def test_durations(minutes: float, text: str) -> None:
    assert duration(minutes) == text


def test_lists() -> None:
    assert [listing([]), listing(["a"]), listing(["a", "b"]), listing(["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]


def test_junit_properties_hold_what_is_known() -> None:
    reasons = (Reason("goodput_low", "0.90 < 0.95"), Reason("note", "one repeat"))
    result = GateResult(
        "x.yaml::tuned::goodput",
        "tuned",
        "goodput",
        0.9,
        "ratio",
        0.95,
        None,
        Verdict.FAIL,
        "enforce",
        reasons,
        "4100 tok/s, 0.90",
        ">= 0.95",
    )
    assert dict(junit_properties(result)) == {
        "tokenwatt_config": "tuned",
        "tokenwatt_gate": "goodput",
        "tokenwatt_verdict": "fail",
        "tokenwatt_mode": "enforce",
        "tokenwatt_value": 0.9,
        "tokenwatt_unit": "ratio",
        "tokenwatt_limit": 0.95,
        "tokenwatt_text": "4100 tok/s, 0.90",
        "tokenwatt_rule": ">= 0.95",
        "tokenwatt_reasons": "goodput_low: 0.90 < 0.95; note: one repeat",
    }

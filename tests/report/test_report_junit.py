"""Every known figure of a gate is one scalar property of its JUnit case."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.records import GateResult, Reason, Verdict
from pytest_tokenwatt.report import junit
from pytest_tokenwatt.report.junit import MOST_LETTERS, junit_properties

GOODPUT = GateResult(
    id="h100.yaml::tuned::goodput",
    config="tuned",
    gate="goodput",
    value=1.106,
    unit="ratio",
    limit=0.95,
    error=0.025,
    verdict=Verdict.PASS,
    mode="enforce",
    reasons=(),
    text="5057 tok/s, 1.106 [1.08, 1.13]",
    rule=">= 0.95",
    found=Verdict.PASS,
)


def test_each_figure_is_a_property_of_its_own() -> None:
    assert dict(junit_properties(GOODPUT)) == {
        "tokenwatt_config": "tuned",
        "tokenwatt_gate": "goodput",
        "tokenwatt_verdict": "pass",
        "tokenwatt_found": "pass",
        "tokenwatt_mode": "enforce",
        "tokenwatt_value": 1.106,
        "tokenwatt_unit": "ratio",
        "tokenwatt_limit": 0.95,
        "tokenwatt_error": 0.025,
        "tokenwatt_text": "5057 tok/s, 1.106 [1.08, 1.13]",
        "tokenwatt_rule": ">= 0.95",
    }


def test_every_property_is_documented_and_no_other() -> None:
    documented = {line.split("``")[1] for line in str(junit.__doc__).splitlines() if line.startswith("``tokenwatt_")}
    everything = replace(GOODPUT, reasons=(Reason("note", "one repeat"),))
    assert {name for name, _ in junit_properties(everything)} == documented


def test_an_informational_gate_says_what_its_rule_found() -> None:
    broken = replace(GOODPUT, verdict=Verdict.INFO, mode="info", found=Verdict.FAIL)
    found = dict(junit_properties(broken))
    assert (found["tokenwatt_verdict"], found["tokenwatt_found"]) == ("-", "fail")


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_left_out(value: float | None) -> None:
    found = dict(junit_properties(replace(GOODPUT, value=value, limit=value, error=value)))
    assert not {"tokenwatt_value", "tokenwatt_limit", "tokenwatt_error"} & set(found)


def test_numbers_are_plain_ones_that_travel_between_processes() -> None:
    found = dict(junit_properties(replace(GOODPUT, value=np.float64(1.5), error=np.float64(0.1))))
    assert type(found["tokenwatt_value"]) is float
    assert type(found["tokenwatt_error"]) is float


@given(st.text(max_size=60), st.lists(st.tuples(st.text(max_size=9), st.text(max_size=4_000)), max_size=2))
def test_every_content_is_one_writable_line(text: str, reasons: list[tuple[str, str]]) -> None:
    result = replace(GOODPUT, text=text, rule=text, reasons=tuple(Reason(*reason) for reason in reasons))
    for _, value in junit_properties(result):
        if isinstance(value, str):
            value.encode()
            assert len(value) <= MOST_LETTERS
            assert len(value.splitlines()) == 1
            assert "\x1b" not in value

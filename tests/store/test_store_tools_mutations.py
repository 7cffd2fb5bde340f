"""Files that were tampered with, or are half of another version: one readable message, and no pass out of nothing."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records import GoodputRecord, SloBound
from pytest_tokenwatt.store.codec import encode
from pytest_tokenwatt.store.tools.promise import judged_by, undecided
from pytest_tokenwatt.store.tools.read import read_tool_result

SMALL = ("vllm-rate", "vllm-concurrency", "guidellm-concurrent", "aiperf-rate", "aiperf-failed")
CONTENT = {name: json.loads((Path(__file__).parent / "tools" / f"{name}.json").read_text()) for name in SMALL}
BOUNDS = (SloBound("ttft", 99.0, 2000.0), SloBound("e2e", 90.0, 5000.0))
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.just([]),
    st.just({}),
    st.just([{}]),
    st.just("inf"),
    st.just("${HOME}"),
)

Place = tuple[str | int, ...]


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    if place:
        yield place
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*place, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value[:3]):
            yield from places(inner, (*place, number))


def changed(name: str, place: Place, value: Any, *, delete: bool = False) -> dict[str, Any]:
    told: dict[str, Any] = copy.deepcopy(CONTENT[name])
    inner: Any = told
    for key in place[:-1]:
        inner = inner[key]
    if delete:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return told


def outcome(told: dict[str, Any]) -> GoodputRecord | None:
    """The record under an SLO, or none after one readable line."""
    message = ""
    try:
        run = read_tool_result(told, Path("run.json"))
    except UsageError as error:
        run, message = None, str(error)
    assert not message or (message.startswith("run.json: ") and "\n" not in message)
    if run is None:
        return None
    json.dumps(encode(run.records[0]), allow_nan=False)
    return judged_by(run.records[0].scenarios["default"], BOUNDS)


PLACES = [(name, place) for name in SMALL for place in places(CONTENT[name])]


@pytest.mark.parametrize("name", SMALL)
def test_any_key_may_be_missing(name: str) -> None:
    for _, place in (each for each in PLACES if each[0] == name):
        found = outcome(changed(name, place, None, delete=True))
        assert found is None or found.slo_pass_count == 0 or found.rate_rps is not None


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(PLACES), ODD)
def test_odd_values_give_one_line_or_a_record(where: tuple[str, Place], value: Any) -> None:
    found = outcome(changed(*where, value))
    if found is not None and found.slo_pass_count:
        asked = [each for each in found.percentiles if each.bound_ms is not None]
        assert len(asked) == len(BOUNDS)
        assert all(each.value_ms is not None and 0 < each.value_ms <= (each.bound_ms or 0.0) for each in asked)
        assert undecided(found) is None


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([each for each in PLACES if each[0] == "aiperf-failed"]), ODD)
def test_a_failing_run_does_not_pass_by_a_change_elsewhere(where: tuple[str, Place], value: Any) -> None:
    """Seven of 120 failed; only telling of fewer failed requests can change that."""
    name, place = where
    found = outcome(changed(name, place, value))
    counts = ("error_request_count", "error_summary", "request_count", "input_config")
    assert found is None or place[0] in counts or found.slo_pass_count == 0

"""A tool's record under an SLO that a spec brings: passed only where every promised percentile is known and met."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_tokenwatt.gates.decidable import undecidable
from pytest_tokenwatt.gates.judge import judge
from pytest_tokenwatt.records import ConfigRecord, GateSpec, GoodputRecord, SloBound, Verdict
from pytest_tokenwatt.store.tools.promise import judged_by, undecided, under_slo
from pytest_tokenwatt.store.tools.read import read_tool_result


def config(name: str) -> ConfigRecord:
    path = Path(__file__).parent / "tools" / f"{name}.json"
    run = read_tool_result(json.loads(path.read_text()), path)
    assert run is not None
    return run.records[0]


def record(name: str) -> GoodputRecord:
    return config(name).scenarios["default"]


def verdict(name: str, found: GoodputRecord, bounds: Sequence[SloBound] = ()) -> Verdict | None:
    """The gate's verdict; ``None`` where it is not decidable."""
    limits = {"at_rps": None, **{bound.name: bound.bound_ms for bound in bounds or found.slo}}
    gate = GateSpec(name, "slo", "slo", None, "default", "goodput", "enforce", "fail", None, limits)
    candidate = replace(config(name), scenarios={"default": found})
    return None if undecidable(gate, candidate, None) else judge(gate, candidate, None).verdict


def judged(name: str, *bounds: tuple[str, float, float]) -> GoodputRecord:
    return judged_by(record(name), [SloBound(*bound) for bound in bounds])


def lacking(found: GoodputRecord) -> Sequence[str]:
    unknown = [each for each in found.percentiles if each.bound_ms and each.value_ms is None and not each.infinite]
    return [each.name for each in unknown]


def test_a_met_slo_passes() -> None:
    found = judged("vllm-rate", ("ttft", 99.0, 50.0), ("tpot", 90.0, 10.0))
    assert (found.rate_rps, found.slo_pass_count, found.repeats, undecided(found)) == (20.0, 1, 1, None)
    assert verdict("vllm-rate", found) is Verdict.PASS
    assert found.goodput_tok_s is None


def test_a_broken_slo_fails_with_its_figures() -> None:
    found = judged("vllm-rate", ("ttft", 99.0, 5.0), ("tpot", 90.0, 10.0))
    assert (found.rate_rps, found.slo_pass_count, found.repeats) == (None, 0, 1)
    assert found.misses == ("at 20 req/s ttft_p99_ms is 13.52 ms > 5 ms",)
    assert verdict("vllm-rate", found) is Verdict.FAIL


def test_a_percentile_that_is_not_stored_is_not_decidable() -> None:
    found = judged("vllm-rate", ("ttft", 99.0, 50.0), ("tpot", 98.0, 10.0))
    assert (found.slo_pass_count, found.repeats, lacking(found)) == (0, 0, ["tpot_p98_ms"])
    reason = undecided(found)
    assert reason is not None
    assert str(reason).startswith("not_stored: tpot_p98_ms")
    assert verdict("vllm-rate", found) is None


def test_one_broken_bound_decides_whatever_else_is_unknown() -> None:
    found = judged("vllm-rate", ("ttft", 99.0, 5.0), ("tpot", 98.0, 10.0))
    assert (found.repeats, undecided(found)) == (1, None)


def test_too_few_requests_decide_nothing() -> None:
    found = judged("vllm-rate", ("ttft", 99.9, 5000.0))
    assert (found.slo_pass_count, lacking(found)) == (0, ["ttft_p99.9_ms"])


def test_failed_requests_break_an_slo() -> None:
    for name in ("vllm-detailed", "guidellm-failed", "aiperf-failed"):
        found = judged(name, ("ttft", 99.0, 1e6))
        assert (found.repeats, found.slo_pass_count) == (1, 0)
        assert "ttft_p99_ms is infinite" in found.misses[0]
        assert verdict(name, found) is Verdict.FAIL


def test_a_closed_loop_decides_no_slo() -> None:
    for name in ("vllm-concurrency", "guidellm-concurrent", "aiperf-concurrency"):
        found = judged(name, ("ttft", 50.0, 1e6))
        assert (found.rate_rps, found.repeats, lacking(found)) == (None, 0, ["ttft_p50_ms"])
        assert undecided(found) is not None
        assert verdict(name, found) is None


def test_the_highest_rate_that_passes_counts_and_brings_its_figures() -> None:
    found = judged("guidellm-rates", ("ttft", 90.0, 100.0))
    assert (found.rate_rps, found.highest_passing_rps, found.lowest_failing_rps) == (15.0, 15.0, None)
    assert found.figures["rate_rps"].value == 15.0
    assert found.figures["ttft_p90_ms"].value == found.percentiles[1].value_ms


def test_a_failing_higher_rate_is_the_bracket() -> None:
    slow, fast = (window.percentiles[1].value_ms or 0.0 for window in record("guidellm-rates").windows)
    found = judged("guidellm-rates", ("ttft", 90.0, (slow + fast) / 2))
    assert slow < fast
    assert (found.rate_rps, found.lowest_failing_rps, found.slo_pass_count) == (5.0, 15.0, 1)


def test_without_bounds_nothing_changes() -> None:
    assert judged("vllm-rate") == record("vllm-rate")


@pytest.mark.parametrize(
    ("bounds", "wanted"),
    [
        ((("ttft", 99.0, 50.0), ("tpot", 90.0, 10.0)), Verdict.PASS),
        ((("ttft", 99.0, 5.0), ("tpot", 90.0, 10.0)), Verdict.FAIL),
        ((("ttft", 99.0, 50.0), ("tpot", 98.0, 10.0)), None),
        ((("ttft", 99.9, 50.0),), None),
    ],
)
def test_a_single_rate_is_judged_by_a_spec_as_it_is(
    bounds: tuple[tuple[str, float, float], ...], wanted: Verdict | None
) -> None:
    asked = [SloBound(*bound) for bound in bounds]
    assert verdict("vllm-rate", record("vllm-rate"), asked) is wanted


def test_only_several_rates_wait_for_a_specs_slo() -> None:
    bounds = {"default": [SloBound("ttft", 90.0, 100.0)]}
    several = under_slo(config("guidellm-rates"), bounds)
    assert several.scenarios["default"] == judged("guidellm-rates", ("ttft", 90.0, 100.0))
    assert under_slo(config("vllm-rate"), bounds) == config("vllm-rate")
    assert under_slo(config("guidellm-rates"), {}) == config("guidellm-rates")
    assert verdict("guidellm-rates", several.scenarios["default"]) is Verdict.PASS
    assert verdict("guidellm-rates", record("guidellm-rates"), bounds["default"]) is None

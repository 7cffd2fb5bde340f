"""The rerun with less KV cache: what the pool is cut to, and when the engine did as well as before."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profile_builders import profile, repeat

from pytest_tokenwatt.metrics.budget import Budget, budget_run, plan_budget
from pytest_tokenwatt.records import Reason
from pytest_tokenwatt.records.profiles import BudgetRun, EnginePeaks, PeakMemory, ProfileRecord

T2 = 4.3026527297  # Student's t, 97.5 %, 2 degrees of freedom


def memory(peak: float, weights: float = 8.84, other: float = 2.175) -> PeakMemory:
    return PeakMemory(weights_gib=weights, kv_gib=peak - weights - other, other_gib=other, peak_gib=peak)


# --- the pool


@pytest.mark.parametrize(("peak", "budget"), [(11.103, 11.325), (82.34, 83.987), (30.098, 30.7)])
def test_the_published_budgets(peak: float, budget: float) -> None:
    found = plan_budget(memory(peak), 1.02)
    assert found.budget_gib == pytest.approx(budget, abs=0.0006)
    assert found.kv_gib == pytest.approx(budget - 8.84 - 2.175, abs=0.0006)


@given(st.floats(0.001, 200.0), st.floats(1.0, 3.0))
def test_a_whole_peak_leaves_the_cache_that_was_used(kv: float, factor: float) -> None:
    measured = memory(kv + 8.84 + 2.175)
    assert plan_budget(measured, 1.0).kv_gib == pytest.approx(kv, abs=1e-9)
    cut = plan_budget(measured, factor)
    assert cut.kv_gib is not None
    assert cut.kv_gib >= kv - 1e-9


def test_a_budget_below_the_weights_leaves_no_cache() -> None:
    found = plan_budget(memory(12.0), 0.5)
    assert (found.budget_gib, found.kv_gib, found.missing) == (6.0, None, "6 GiB leave nothing for the KV cache")


def test_without_a_peak_there_is_no_budget() -> None:
    budget = plan_budget(PeakMemory(kv_gib=3.0, missing={"peak_gib": "the log tells no activation peak"}), 1.02)
    assert budget == Budget(1.02, missing="the log tells no activation peak")
    found = budget_run(budget, full(), None)
    assert (found.budget_gib, found.kv_gib, found.healthy, found.value) == (None, None, None, None)
    assert found.invalid == (Reason("budget_unknown", "the log tells no activation peak"),)


# --- health

BUDGET = Budget(1.02, 30.7, 19.685)


def full(*rates: float, running: float | None = 32.0) -> ProfileRecord:
    peaks = EnginePeaks(running=running, preemptions=0.0)
    return profile([repeat(rate, peaks) for rate in rates or (99.0, 100.0, 101.0)])


def rerun(
    rate: float = 100.0,
    running: float | None = 32.0,
    preemptions: float | None = 0.0,
    whole: ProfileRecord | None = None,
) -> BudgetRun:
    peaks = EnginePeaks(running=running, preemptions=preemptions)
    return budget_run(BUDGET, whole or full(), repeat(rate, peaks))


def test_a_healthy_rerun() -> None:
    assert rerun(100.5) == BudgetRun("serve", 1.02, 30.7, 19.685, 32.0, 32.0, True, 100.5)


@pytest.mark.parametrize(
    ("rate", "running", "preemptions", "note"),
    [
        (100.0, 31.0, 0.0, "31 requests ran at once, 32 with the whole pool"),
        (100.0, 32.0, 3.0, "3 preemptions"),
        (80.0, 32.0, 0.0, "80 tok/s, 100 with the whole pool, 4.8% less would be within its error"),
    ],
)
def test_each_condition_can_break_it(rate: float, running: float, preemptions: float, note: str) -> None:
    found = rerun(rate, running, preemptions)
    assert (found.healthy, found.notes) == (False, (note,))


def test_the_error_is_that_of_one_further_run() -> None:
    logs = [math.log(99), math.log(100), math.log(101)]
    mean = sum(logs) / 3
    sd = math.sqrt(sum((each - mean) ** 2 for each in logs) / 2)
    lowest = 100.0 * math.exp(-T2 * sd * math.sqrt(1 + 1 / 3))
    assert [rerun(lowest + off).healthy for off in (-0.02, 0.02)] == [False, True]


@pytest.mark.parametrize(("rate", "healthy"), [(100.0, True), (101.0, True), (99.9, None)])
def test_one_full_run_does_not_tell_how_much_slower_another_may_be(rate: float, healthy: bool | None) -> None:
    found = rerun(rate, whole=full(100.0))
    assert found.healthy is healthy
    assert len(found.notes) == (healthy is None)


@pytest.mark.parametrize(
    ("rate", "drift", "whole", "healthy"),
    [
        (94.0, None, (99.0, 100.0, 101.0), False),
        (94.0, 0.02, (99.0, 100.0, 101.0), True),
        (94.0, 0.05, (100.0,), False),
        (94.0, 0.07, (100.0,), True),
    ],
)
def test_the_rerun_may_differ_by_as_much_as_two_starts_of_the_baseline(
    rate: float, drift: float | None, whole: tuple[float, ...], healthy: bool
) -> None:
    peaks = EnginePeaks(running=32.0, preemptions=0.0)
    assert budget_run(BUDGET, full(*whole), repeat(rate, peaks), drift=drift).healthy is healthy


@pytest.mark.parametrize(
    ("running", "preemptions", "whole"), [(None, 0.0, 32.0), (32.0, None, 32.0), (32.0, 0.0, None)]
)
def test_what_is_not_known_is_not_healthy(
    running: float | None, preemptions: float | None, whole: float | None
) -> None:
    found = rerun(100.0, running, preemptions, full(running=whole))
    assert (found.healthy, len(found.notes)) == (None, 1)
    assert "not known" in found.notes[0]


@pytest.mark.parametrize(("readings", "healthy"), [(1, None), (2, None), (3, False)])
def test_few_readings_do_not_show_that_fewer_requests_ran(readings: int, healthy: bool | None) -> None:
    peaks = EnginePeaks(running=31.0, preemptions=0.0, readings=readings)
    assert budget_run(BUDGET, full(), repeat(100.0, peaks)).healthy is healthy


def test_a_broken_condition_decides_whatever_else_is_unknown() -> None:
    assert rerun(100.0, None, 1.0).healthy is False


def test_an_invalid_rerun_says_nothing_of_health() -> None:
    reason = Reason("engine_died", "the engine died during this run")
    found = budget_run(BUDGET, full(), replace(repeat(None), invalid=(reason,)))
    assert (found.healthy, found.invalid, found.value) == (None, (reason,), None)


def test_an_invalid_profile_is_nothing_to_compare_with() -> None:
    found = rerun(100.0, whole=replace(full(), output_tok_s=None))
    assert (found.healthy, found.notes) == (None, ("the output rate with or without the cut is not known",))


def count(running: float, hz: float) -> EnginePeaks:
    """The most requests that were seen at once with so many readings a second."""
    return EnginePeaks(running=running, preemptions=0.0, readings=round(10 * hz), seconds=10.0)


def counted(running: float, hz: float) -> ProfileRecord:
    runs = tuple(replace(run, peaks=count(running, hz)) for run in full().runs)
    return replace(full(), concurrency=32, runs=runs)


@pytest.mark.parametrize(
    ("running", "cut_hz", "full_hz", "healthy"),
    [(31.0, 4.0, 4.0, False), (31.0, 1.0, 4.0, None), (32.0, 1.0, 4.0, True), (32.0, 4.0, 1.0, True)],
)
def test_requests_that_were_seldom_counted_do_not_show_fewer(
    running: float, cut_hz: float, full_hz: float, healthy: bool | None
) -> None:
    assert budget_run(BUDGET, counted(32.0, full_hz), repeat(100.0, count(running, cut_hz))).healthy is healthy


def test_a_full_run_that_was_seldom_counted_does_not_show_how_many_ran() -> None:
    found = budget_run(BUDGET, counted(20.0, 1.0), repeat(100.0, count(20.0, 4.0)))
    assert found.healthy is None
    assert "1 a second, 2 are needed" in found.notes[0]

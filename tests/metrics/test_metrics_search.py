from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metrics_builders import plan, request, run_of

from pytest_tokenwatt.metrics.client import WindowRules
from pytest_tokenwatt.metrics.estimate import bisections, estimate_s, resolution_pct, tail_s
from pytest_tokenwatt.metrics.search import ProbeOutcome, ProbePlan, SearchResult, search
from pytest_tokenwatt.metrics.window import judge_run
from pytest_tokenwatt.records import Reason, SloBound, WindowResult


@dataclass(frozen=True)
class Sweep:
    start_rps: float = 2.0
    growth: float = 2.0
    bisect_steps: int = 3
    resolution: float | None = None
    max_rps: float = 2000.0
    backoff: float = 0.9
    max_backoffs: int = 4
    rates: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Measurement:
    warmup_s: float = 45.0
    window_s: float = 120.0
    search_window_s: float = 60.0
    repeats: int = 2


def window(passes: bool, *invalid: str, misses: tuple[str, ...] = ("TPOT p99 61 ms > 50 ms",)) -> WindowResult:
    """A judged window with this verdict and nothing else of interest."""
    rules = WindowRules((SloBound("ttft", 50, 2000),))
    template = judge_run(run_of(plan([0.0, 1.0], window_s=60.0), [request(0.0), request(1.0, index=1)]), "x", rules)
    return replace(
        template[0].result,
        passes=passes,
        misses=() if passes else misses,
        invalid=tuple(Reason(code, "because") for code in invalid),
    )


PASS, FAIL = window(True), window(False)
Verdicts = Callable[[ProbePlan], list[WindowResult]]


@dataclass
class Engine:
    """Answers probes by a rule, and remembers them."""

    answer: Verdicts
    probes: list[ProbePlan] = field(default_factory=list)

    def follow(self, sweep: Sweep, at_rps: float | None = None, repeats: int = 2) -> SearchResult:
        steps = search(sweep, Measurement(repeats=repeats), at_rps)
        probe = next(steps)
        while True:
            self.probes.append(probe)
            assert len(self.probes) < 200, "the search does not end"
            try:
                probe = steps.send(ProbeOutcome(tuple(self.answer(probe))))
            except StopIteration as stop:
                result: SearchResult = stop.value
                return result

    @property
    def rates(self) -> list[tuple[str, float]]:
        return [(probe.kind, round(probe.rate_rps, 4)) for probe in self.probes]


def up_to(capacity_rps: float, confirmed_rps: float | None = None) -> Verdicts:
    limit_rps = capacity_rps if confirmed_rps is None else confirmed_rps

    def answer(probe: ProbePlan) -> list[WindowResult]:
        passes = probe.rate_rps <= (capacity_rps if probe.kind == "search" else limit_rps)
        return [PASS if passes else FAIL] * probe.windows

    return answer


def test_it_grows_bisects_at_the_arithmetic_midpoint_and_confirms() -> None:
    engine = Engine(up_to(11.3))
    result = engine.follow(Sweep())
    assert engine.rates == [
        ("search", 2),
        ("search", 4),
        ("search", 8),
        ("search", 16),
        ("search", 12),
        ("search", 10),
        ("search", 11),
        ("confirm", 11),
    ]
    assert (result.rate_rps, result.highest_passing_rps, result.lowest_failing_rps) == (11, 11, 12)
    assert (result.bracket, result.backoffs, len(result.windows)) == ("closed", 0, 2)


def test_probes_have_the_lengths_and_repeats_of_the_measurement() -> None:
    engine = Engine(up_to(3.0))
    engine.follow(Sweep(bisect_steps=0), repeats=3)
    probe, confirm = engine.probes[0], engine.probes[-1]
    assert (probe.windows, probe.window_s, probe.max_window_s) == (1, 60.0, 300.0)
    assert (confirm.windows, confirm.window_s, confirm.max_window_s) == (3, 120.0, 600.0)


def test_a_resolution_bisects_geometrically_until_it_is_reached() -> None:
    engine = Engine(up_to(11.3))
    result = engine.follow(Sweep(resolution=1.05))
    assert engine.rates[4] == ("search", round((8 * 16) ** 0.5, 4))
    assert result.lowest_failing_rps is not None
    assert result.highest_passing_rps is not None
    assert result.lowest_failing_rps / result.highest_passing_rps <= 1.05


def test_a_confirmation_that_fails_backs_off_and_lowers_the_failing_rate() -> None:
    engine = Engine(up_to(11.3, confirmed_rps=9.5))
    result = engine.follow(Sweep())
    assert [rate for kind, rate in engine.rates if kind == "confirm"] == pytest.approx([11, 9.9, 8.91])
    assert result.rate_rps == pytest.approx(8.91)
    assert result.lowest_failing_rps == pytest.approx(9.9)
    assert result.backoffs == 2
    assert result.misses == ()


def test_exhausted_back_offs_leave_no_goodput() -> None:
    engine = Engine(up_to(11.3, confirmed_rps=1.0))
    result = engine.follow(Sweep())
    assert sum(kind == "confirm" for kind, _ in engine.rates) == 5
    assert result.rate_rps is None
    assert result.misses == ("TPOT p99 61 ms > 50 ms",)
    assert result.invalid == ()


def test_a_failing_start_searches_downwards_first() -> None:
    engine = Engine(up_to(0.4))
    result = engine.follow(Sweep())
    assert engine.rates[:4] == [("search", 2), ("search", 1), ("search", 0.5), ("search", 0.25)]
    assert result.rate_rps == pytest.approx(0.375)
    assert result.lowest_failing_rps == pytest.approx(0.40625)


def test_it_goes_down_six_times_at_most() -> None:
    engine = Engine(up_to(0.0))
    result = engine.follow(Sweep())
    assert [rate for _, rate in engine.rates] == pytest.approx([2 / 2**step for step in range(7)], abs=1e-4)
    assert (result.rate_rps, result.bracket) == (None, "none")
    assert result.misses


def test_going_down_ends_where_windows_cannot_hold_their_requests() -> None:
    """Every rate that can be measured fails: that is a failure of the SLO, not an invalid measurement."""
    engine = Engine(lambda probe: [FAIL] if probe.rate_rps > 0.4 else [window(False, "too_few_requests")])
    result = engine.follow(Sweep())
    assert [rate for _, rate in engine.rates] == [2, 1, 0.5, 0.25]
    assert (result.rate_rps, result.invalid) == (None, ())
    assert result.misses == ("TPOT p99 61 ms > 50 ms",)
    assert result.notes[0].startswith("rates from 0.25 req/s down cannot be measured")


def test_max_rps_passing_leaves_the_bracket_open() -> None:
    engine = Engine(up_to(1e9))
    result = engine.follow(Sweep(max_rps=50))
    assert [rate for _, rate in engine.rates] == [2, 4, 8, 16, 32, 50, 50]
    assert (result.rate_rps, result.bracket, result.lowest_failing_rps) == (50, "open", None)
    assert "above max_rps" in result.notes[0]


def test_fixed_rates_are_all_measured_and_the_highest_passing_one_counts() -> None:
    engine = Engine(up_to(0, confirmed_rps=5.0))
    result = engine.follow(Sweep(rates=(4.0, 2.0, 8.0)))
    assert engine.rates == [("fixed", 2), ("fixed", 4), ("fixed", 8)]
    assert (result.rate_rps, result.bracket, result.lowest_failing_rps) == (4, "fixed", None)


def test_no_fixed_rate_passing_says_why() -> None:
    result = Engine(up_to(0, confirmed_rps=1.0)).follow(Sweep(), at_rps=3.0)
    assert result.rate_rps is None
    assert result.misses == ("TPOT p99 61 ms > 50 ms",)


def test_at_rps_is_measured_beside_the_listed_rates() -> None:
    engine = Engine(up_to(0, confirmed_rps=5.0))
    engine.follow(Sweep(rates=(2.0,)), at_rps=3.0)
    assert engine.rates == [("fixed", 2), ("fixed", 3)]


def test_one_failing_repeat_fails_the_rate() -> None:
    result = Engine(lambda probe: [PASS, FAIL] if probe.windows == 2 else [PASS]).follow(
        Sweep(max_rps=4, max_backoffs=1)
    )
    assert result.rate_rps is None


def test_an_invalid_probe_is_taken_once_more_with_another_draw() -> None:
    def answer(probe: ProbePlan) -> list[WindowResult]:
        return up_to(3.0)(probe) if probe.attempt else [window(True, "schedule_lag")] * probe.windows

    engine = Engine(answer)
    result = engine.follow(Sweep(bisect_steps=0))
    assert [(probe.rate_rps, probe.attempt) for probe in engine.probes] == [
        (2, 0),
        (2, 1),
        (4, 0),
        (4, 1),
        (2, 0),
        (2, 1),
    ]
    assert (result.rate_rps, result.invalid) == (2, ())


def test_a_client_that_cannot_hold_the_rate_ends_the_search_without_a_rate() -> None:
    def answer(probe: ProbePlan) -> list[WindowResult]:
        return [window(False, "client_cpu")] if probe.rate_rps > 8 else [PASS] * probe.windows

    engine = Engine(answer)
    result = engine.follow(Sweep())
    assert engine.rates[-2:] == [("search", 16), ("search", 16)]
    assert result.rate_rps is None
    assert [reason.code for reason in result.invalid] == ["client_cpu"]
    assert (result.highest_passing_rps, result.misses) == (8, ())


@pytest.mark.parametrize("code", ["usage_missing", "engine_died", "too_few_requests"])
def test_what_cannot_change_is_not_taken_again(code: str) -> None:
    engine = Engine(lambda probe: [window(True, code)])
    result = engine.follow(Sweep())
    assert len(engine.probes) == 1
    assert [reason.code for reason in result.invalid] == [code]


def test_a_failure_is_believed_beside_an_invalid_window() -> None:
    engine = Engine(lambda probe: [PASS] if probe.windows == 1 else [window(True, "schedule_lag"), FAIL])
    result = engine.follow(Sweep(max_rps=2, max_backoffs=0))
    assert result.rate_rps is None
    assert result.invalid == ()
    assert result.misses


def test_windows_that_are_missing_are_no_pass() -> None:
    engine = Engine(lambda probe: [PASS])
    result = engine.follow(Sweep(max_rps=2))
    assert result.rate_rps is None
    assert [reason.code for reason in result.invalid] == ["cut_short"]


def test_a_low_rate_that_cannot_be_measured_does_not_hide_a_higher_one() -> None:
    engine = Engine(
        lambda probe: [window(True, "too_few_requests")] * 2 if probe.rate_rps < 1 else up_to(0, 5.0)(probe)
    )
    result = engine.follow(Sweep(rates=(0.1, 4.0)))
    assert (result.rate_rps, result.invalid) == (4.0, ())
    assert result.notes[0].startswith("0.1 req/s could not be measured")


def test_a_higher_rate_that_cannot_be_measured_leaves_goodput_unknown() -> None:
    engine = Engine(lambda probe: [window(True, "client_cpu")] * 2 if probe.rate_rps > 5 else [PASS] * 2)
    result = engine.follow(Sweep(rates=(4.0, 8.0, 16.0)))
    assert result.rate_rps is None
    assert result.highest_passing_rps == 4.0
    assert [reason.code for reason in result.invalid] == ["client_cpu"]
    assert [rate for _, rate in engine.rates] == [4, 8, 8]


VERDICT = st.sampled_from([PASS, PASS, PASS, FAIL, window(True, "schedule_lag"), window(False, "client_cpu")])


@given(
    st.lists(st.lists(VERDICT, min_size=0, max_size=3), min_size=1, max_size=40),
    st.builds(
        Sweep,
        start_rps=st.floats(0.5, 4),
        growth=st.floats(1.2, 3),
        bisect_steps=st.integers(0, 4),
        resolution=st.one_of(st.none(), st.floats(1.05, 1.5)),
        max_rps=st.floats(4, 100),
        backoff=st.floats(0.5, 0.95),
        max_backoffs=st.integers(0, 3),
        rates=st.one_of(st.none(), st.just((1.0, 3.0, 9.0))),
    ),
)
def test_a_rate_is_only_returned_when_all_its_repeats_passed(answers: list[list[WindowResult]], sweep: Sweep) -> None:
    """Whatever the engine answers, and however inconsistently."""
    given_answers = iter(answers * 50)
    seen: list[tuple[ProbePlan, list[WindowResult]]] = []

    def answer(probe: ProbePlan) -> list[WindowResult]:
        windows = next(given_answers)[: probe.windows]
        seen.append((probe, windows))
        return windows

    result = Engine(answer).follow(sweep)
    passed = [
        probe.rate_rps
        for probe, windows in seen
        if probe.kind != "search" and len(windows) == 2 and all(w.passes and not w.invalid for w in windows)
    ]
    if result.rate_rps is None:
        assert result.invalid or result.misses
    else:
        assert result.rate_rps in passed
        assert not result.invalid
        assert all(each.passes for each in result.windows)
        assert len(result.windows) == 2
        if result.lowest_failing_rps is not None:
            assert result.lowest_failing_rps > result.rate_rps


# --- estimates


def test_the_estimate_of_fixed_rates_is_their_sum() -> None:
    bounds = (SloBound("ttft", 99, 2000), SloBound("tpot", 99, 50))
    assert tail_s(bounds) == pytest.approx(8.4)
    assert estimate_s(Sweep(), Measurement(), 4.0, bounds=bounds) == pytest.approx(45 + 8.4 + 240)
    assert estimate_s(Sweep(), Measurement(), 0.5, bounds=bounds) == pytest.approx(45 + 8.4 + 400)


def test_a_finer_search_takes_longer_and_resolves_more() -> None:
    coarse, fine = Sweep(), Sweep(bisect_steps=6)
    assert estimate_s(fine, Measurement()) > estimate_s(coarse, Measurement())
    assert (resolution_pct(coarse), resolution_pct(fine)) == (12.5, 1.5625)
    assert resolution_pct(Sweep(resolution=1.05)) == pytest.approx(5.0)
    assert bisections(Sweep(resolution=1.05)) == 4


def test_a_faster_engine_takes_more_probes() -> None:
    slow = estimate_s(Sweep(), Measurement(), expected_rps=3.0)
    assert estimate_s(Sweep(), Measurement(), expected_rps=100.0) > slow

"""One closed-loop run: its window, its rate, its medians, whether its concurrency was held, and what spoils it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metrics_builders import broken, chunked, request
from profile_builders import closed_loop, closed_plan, repeat

from pytest_tokenwatt.metrics.client import PrefixTokens
from pytest_tokenwatt.metrics.held import held_share
from pytest_tokenwatt.metrics.profile import profile_rate, profile_run
from pytest_tokenwatt.records import ClosedRun, ErrorClass, Reason, RequestRecord, WindowSpan, WorkerTrace
from pytest_tokenwatt.records.profiles import EnginePeaks, ProfileRun


def judged(run: ClosedRun, *, ignore_eos: bool = True, prefix: PrefixTokens | None = None) -> ProfileRun:
    return profile_run(run, EnginePeaks(kv_usage=0.5), ignore_eos=ignore_eos, label="serve-r0", prefix=prefix)


def codes(found: ProfileRun) -> list[str]:
    return [reason.code for reason in found.invalid]


def with_first(run: ClosedRun, count: int, **changes: object) -> ClosedRun:
    """The run with its first ``count`` measured requests changed."""

    def changed(record: RequestRecord) -> RequestRecord:
        return replace(record, **changes) if record.phase == "measured" and record.index < count else record  # type: ignore[arg-type]

    return replace(run, requests=tuple(changed(record) for record in run.requests))


def with_failures(run: ClosedRun, count: int) -> ClosedRun:
    def changed(record: RequestRecord) -> RequestRecord:
        return broken(record) if record.phase == "measured" and record.index < count else record

    return replace(run, requests=tuple(changed(record) for record in run.requests))


# --- window, rate, medians


def test_a_full_loop_delivers_its_rate() -> None:
    found = judged(closed_loop(concurrency=2, rounds=10, lasts_s=2.0, tokens=100))
    # 10 rounds of 2 s, the second slot half a request later: 21 s at 100 tok/s.
    assert found.window_s == pytest.approx(21.0)
    assert found.output_tokens == 2100
    assert found.output_tok_s == pytest.approx(100.0)
    assert found.held_share == pytest.approx(1.0)
    assert (found.requests, found.failed) == (20, 0)
    assert (found.label, found.peaks.kv_usage, found.invalid) == ("serve-r0", 0.5, ())


def test_tokens_of_warm_up_and_tail_count_by_the_instant_they_came() -> None:
    run = closed_loop(concurrency=1, rounds=1, lasts_s=2.0, tokens=100)
    before = replace(chunked(0.0, [(1.0, 7), (2.5, 20)]), phase="warmup")
    after = replace(chunked(3.0, [(0.5, 300), (1.5, 1000)]), phase="tail")
    own = judged(replace(run, requests=run.requests[1:2])).output_tokens
    assert judged(replace(run, requests=(before, run.requests[1], after))).output_tokens == own + 20 + 300


def test_the_last_token_of_the_window_counts() -> None:
    run = closed_loop(concurrency=1, rounds=1, tokens=50)
    assert judged(replace(run, requests=run.requests[1:2])).output_tokens == 50


def test_latencies_are_from_the_sending() -> None:
    late = request(0.0, ttft_s=0.5, tpot_s=0.1, tokens=11)
    run = replace(closed_loop(), requests=(replace(late, sent_s=0.2),))
    found = judged(run)
    assert (found.ttft_p50_ms, found.tpot_p50_ms, found.e2e_p50_ms) == pytest.approx((300.0, 100.0, 1300.0))


def test_a_median_on_a_failed_request_is_none() -> None:
    found = judged(with_failures(closed_loop(concurrency=1, rounds=4), 3))
    assert (found.ttft_p50_ms, found.tpot_p50_ms, found.e2e_p50_ms) == (None, None, None)
    assert found.failed == 3


def test_rates_of_repeats_are_summed_not_averaged() -> None:
    assert profile_rate([repeat(100.0, window_s=300.0), repeat(200.0, window_s=100.0)]) == pytest.approx(125.0)


@pytest.mark.parametrize("runs", [[], [repeat(), repeat(None)], [repeat(), repeat(invalid=(Reason("x", "y"),))]])
def test_there_is_no_rate_without_every_repeat(runs: list[ProfileRun]) -> None:
    assert profile_rate(runs) is None


# --- concurrency


def in_flight(*pairs: tuple[float, float | None]) -> list[RequestRecord]:
    return [replace(request(), sent_s=start, end_s=end) for start, end in pairs]


@pytest.mark.parametrize(
    ("concurrency", "share"),
    # 0-2: one, 2-4: two, 4-7: three (the third never ends), 7-10: two
    [(0, 0.0), (1, 0.2), (2, 0.5), (3, 0.3), (4, 0.0)],
)
def test_the_held_share_by_hand(concurrency: int, share: float) -> None:
    found = in_flight((-5.0, 7.0), (2.0, 20.0), (4.0, None), (-9.0, -1.0), (11.0, 12.0))
    assert held_share(found, concurrency, WindowSpan(0.0, 10.0)) == pytest.approx(share)


def test_a_request_that_was_never_sent_is_not_in_flight() -> None:
    refused = replace(request(), sent_s=None, error=ErrorClass.CONNECT)
    assert held_share([*in_flight((0.0, 10.0)), refused], 1, WindowSpan(0.0, 10.0)) == 1.0


instants = st.floats(-20.0, 20.0, allow_nan=False)


@given(st.lists(st.tuples(instants, st.none() | st.floats(0.0, 30.0)), max_size=12), st.floats(0.001, 15.0))
def test_held_shares_are_shares_and_add_up(loads: list[tuple[float, float | None]], length_s: float) -> None:
    found = in_flight(*((start, None if lasts is None else start + lasts) for start, lasts in loads))
    span = WindowSpan(0.0, length_s)
    shares = [held_share(found, count, span) for count in range(1, len(found) + 1)]
    known = [share for share in shares if share is not None]
    assert len(known) == len(shares)
    assert all(0.0 <= share <= 1.0 for share in known)
    assert sum(known) <= 1.0 + 1e-9


@given(st.lists(st.tuples(instants, st.floats(0.0, 30.0)), max_size=12), st.floats(0.001, 1000.0))
def test_the_held_share_knows_no_unit(loads: list[tuple[float, float]], factor: float) -> None:
    plain = in_flight(*((start, start + lasts) for start, lasts in loads))
    scaled = in_flight(*((factor * start, factor * (start + lasts)) for start, lasts in loads))
    share = held_share(plain, 2, WindowSpan(-5.0, 5.0))
    assert held_share(scaled, 2, WindowSpan(-5.0 * factor, 5.0 * factor)) == pytest.approx(share, abs=1e-9)


def test_a_loop_with_gaps_is_invalid() -> None:
    found = judged(closed_loop(lasts_s=2.0, gap_s=0.05))
    assert codes(found) == ["concurrency_not_held"]
    assert found.held_share is not None
    assert 0.9 < found.held_share < 0.99


def test_gaps_between_short_requests_are_a_note() -> None:
    found = judged(closed_loop(lasts_s=0.5, gap_s=0.05))
    assert codes(found) == []
    assert "were in flight during" in found.notes[0]


def test_what_is_sent_at_once_has_no_concurrency_to_hold() -> None:
    run = closed_loop(lasts_s=2.0, gap_s=0.05)
    found = judged(replace(run, plan=closed_plan(2, 20, at_once=True)))
    assert (codes(found), [note for note in found.notes if "in flight" in note]) == ([], [])


# --- what spoils a run


@pytest.mark.parametrize(("busy", "expected"), [(0.89, []), (0.91, ["client_cpu"])])
def test_the_busiest_worker_counts(busy: float, expected: list[str]) -> None:
    traces = [WorkerTrace(0, (0.0, 50.0), (0.0, 10.0)), WorkerTrace(1, (0.0, 50.0), (0.0, 50.0 * busy))]
    found = judged(closed_loop(workers=traces))
    assert found.client_cpu_share == pytest.approx(busy)
    assert (codes(found), found.notes) == (expected, ())


def test_an_unknown_client_cost_is_said() -> None:
    found = judged(closed_loop())
    assert found.client_cpu_share is None
    assert "what the load workers cost is not known" in found.notes[0]


def test_a_broken_worker_spoils_the_run() -> None:
    assert codes(judged(closed_loop(workers=[WorkerTrace(3, (), (), "gone")]))) == ["load_worker_failed"]


@pytest.mark.parametrize(("tokens", "ignore_eos", "expected"), [(99, True, ["output_length"]), (99, False, [])])
def test_another_length_than_requested(tokens: int, ignore_eos: bool, expected: list[str]) -> None:
    assert codes(judged(with_first(closed_loop(), 1, output_tokens=tokens), ignore_eos=ignore_eos)) == expected


def test_prompts_from_the_prefix_cache() -> None:
    run = closed_loop(concurrency=1, rounds=98)
    assert codes(judged(with_first(run, 1, cached_tokens=100))) == ["prefix_cache_hits"]
    assert codes(judged(run, prefix=PrefixTokens(hits=100.0, queries=10_000.0))) == []
    assert codes(judged(run, prefix=PrefixTokens(hits=101.0, queries=10_000.0))) == ["prefix_cache_hits"]


@pytest.mark.parametrize("phase", ["warmup", "measured"])
def test_without_usage_there_is_no_rate(phase: str) -> None:
    run = closed_loop()
    requests = list(run.requests)
    # The last warm-up request ends inside the window, so that some of its tokens are in the rate.
    last = max(place for place, record in enumerate(requests) if record.phase == phase)
    requests[last] = replace(requests[last], output_tokens=None)
    found = judged(replace(run, requests=tuple(requests)))
    assert (codes(found), found.output_tok_s) == (["usage_missing"], None)


@pytest.mark.parametrize(("failures", "expected"), [(0, []), (2, []), (3, ["requests_failed"])])
def test_more_than_one_percent_of_failures(failures: int, expected: list[str]) -> None:
    found = judged(with_failures(closed_loop(concurrency=2, rounds=100), failures))
    assert (found.requests, found.failed, codes(found)) == (200, failures, expected)
    if expected:
        assert found.invalid[0].text == "3 of 200 requests failed, 1% is allowed: http_status (HTTP 500)"


@pytest.mark.parametrize(
    ("stop", "code"),
    [
        ("engine_died", "engine_died"),
        ("deadline", "deadline"),
        ("too_many_failures", "too_many_failures"),
        ("budget_used_up", "budget_used_up"),
        ("the user wants it", "cut_short"),
        ("done", "cut_short"),
    ],
)
def test_a_run_that_was_stopped_has_no_rate(stop: str, code: str) -> None:
    found = judged(replace(closed_loop(), span=None, stop=stop))
    assert (codes(found), found.window_s, found.output_tok_s, found.held_share) == ([code], None, None, None)
    assert found.invalid[0].text


def test_a_run_that_was_given_up_says_what_failed() -> None:
    found = judged(replace(with_failures(closed_loop(), 3), stop="too_many_failures"))
    text = "too many requests failed, so that the run was given up: http_status (HTTP 500)"
    assert found.invalid[0] == Reason("too_many_failures", text)


def test_a_stopped_run_is_invalid_even_with_a_window() -> None:
    assert codes(judged(replace(closed_loop(), stop="deadline"))) == ["deadline"]

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metrics_builders import broken, cut, plan, poisson, request, run_of

from pytest_tokenwatt.metrics.client import PrefixTokens, WindowRules, dispersion, dispersion_band, dispersion_blocks
from pytest_tokenwatt.metrics.window import JudgedWindow, judge_run, window_indices
from pytest_tokenwatt.records import (
    ErrorClass,
    LoadRun,
    RequestRecord,
    SloBound,
    WindowResult,
    WindowSpan,
    WorkerTrace,
)

SLO = (SloBound("ttft", 95, 2000), SloBound("tpot", 95, 50))
RULES = WindowRules(SLO)
RATE_RPS = 5.0
OFFSETS = poisson(RATE_RPS, 60.0, 3)
N = len(OFFSETS)


def judge(
    requests: Sequence[RequestRecord], *, rules: WindowRules = RULES, ended_s: float = 90.0, stop: str = "decided"
) -> WindowResult:
    load = plan(OFFSETS, window_s=60.0, rate_rps=RATE_RPS)
    return only(judge_run(run_of(load, requests, ended_s=ended_s, stop=stop), "search", rules))


def only(windows: Sequence[JudgedWindow]) -> WindowResult:
    assert len(windows) == 1
    return windows[0].result


def healthy() -> list[RequestRecord]:
    return [request(offset, index=index) for index, offset in enumerate(OFFSETS)]


def codes(window: WindowResult) -> list[str]:
    return [reason.code for reason in window.invalid]


def changed(count: int, change: Callable[[RequestRecord], RequestRecord]) -> list[RequestRecord]:
    records = healthy()
    return [change(record) if index < count else record for index, record in enumerate(records)]


def test_a_healthy_window_passes() -> None:
    window = judge(healthy())
    assert (window.passes, window.misses, window.invalid) == (True, (), ())
    assert (window.planned, window.ok, window.decided) == (N, N, "")
    assert window.stable
    found = {p.name: p for p in window.percentiles}
    assert found["ttft_p95_ms"].value_ms == pytest.approx(100)
    assert found["tpot_p95_ms"].met
    assert {f"{metric}_p{p}_ms" for metric in ("ttft", "tpot", "itl", "e2e") for p in (50, 90, 95, 99)} == set(found)


def test_a_miss_is_one_readable_line() -> None:
    slow = [request(offset, index=index, tpot_s=0.0612) for index, offset in enumerate(OFFSETS)]
    window = judge(slow)
    assert not window.passes
    assert window.misses == ("TPOT p95 61.2 ms > 50 ms",)


def test_as_many_misses_as_the_percentile_allows_still_pass() -> None:
    allowed = N - math.ceil(0.95 * N)
    slow: Callable[[RequestRecord], RequestRecord] = lambda r: request(r.scheduled_s, index=r.index, tpot_s=0.06)  # noqa: E731
    assert judge(changed(allowed, slow)).passes
    assert not judge(changed(allowed + 1, slow)).passes


def test_failures_count_as_late_and_are_named() -> None:
    window = judge(changed(30, broken))
    assert not window.passes
    assert window.failures == {"http_status": 30}
    assert window.failure_example == "HTTP 500"
    assert window.misses[0].startswith(f"TTFT p95 > 2000 ms: 30 of {N} requests late or failed")
    assert window.misses[-1] == "30 requests failed: http_status 30 (HTTP 500)"


def test_tokens_count_where_they_are_delivered() -> None:
    """Of a request that crosses the window's end, and of one of the warm-up, only the tokens inside count."""
    warm = request(-0.15, phase="warmup", ttft_s=0.1, tpot_s=0.02, tokens=11)
    late = request(59.75, index=1, ttft_s=0.2, tpot_s=0.02, tokens=11)
    load = plan([10.0, 59.75], window_s=60.0)
    rules = WindowRules((SloBound("ttft", 50, 2000),))
    window = only(judge_run(run_of(load, [warm, request(10.0), late]), "search", rules))
    inside = (8, 11, 3)
    assert window.output_tokens == sum(inside)
    assert window.output_tok_s == pytest.approx(sum(inside) / 60.0)


def test_goodput_leaves_out_tokens_of_requests_that_miss_a_metric() -> None:
    slow: Callable[[RequestRecord], RequestRecord] = lambda r: request(r.scheduled_s, index=r.index, ttft_s=2.5)  # noqa: E731
    window = judge(changed(5, slow))
    assert window.passes
    assert window.output_tokens - window.good_tokens == 5 * 11


def test_of_several_percentiles_of_a_metric_goodput_asks_for_the_highest_ones_bound() -> None:
    bounds = (SloBound("tpot", 50, 15), SloBound("tpot", 95, 50))
    window = judge(healthy(), rules=WindowRules(bounds))
    assert not window.passes
    assert window.good_tokens == window.output_tokens > 0


def test_goodput_asks_for_the_requests_own_itl_percentile() -> None:
    stalled = replace(request(0.0), chunk_s=array("d", [0.1, *[0.2 + 0.02 * n for n in range(9)], 3.0]))
    window = judge([stalled, *healthy()[1:]], rules=WindowRules((SloBound("itl", 95, 500),)))
    assert window.passes
    assert window.output_tokens - window.good_tokens == 11


def test_an_early_stop_is_judged_by_what_was_known_then() -> None:
    slow = [cut(request(offset, index=index, tpot_s=0.4), 20.0) for index, offset in enumerate(OFFSETS) if offset < 20]
    slow = [record for record in slow if record.ok or record.scheduled_s > 19.0]
    window = judge(slow, ended_s=20.0, stop="16 of 299 planned requests miss tpot_p95_ms 50")
    assert not window.passes
    assert window.invalid == ()
    assert window.planned == N
    assert window.decided.startswith("16 of 299")
    assert window.end_s == 20.0
    assert window.misses == ("TPOT p95 400 ms > 50 ms",)


def test_an_early_stop_without_a_failure_is_invalid() -> None:
    known = [cut(record, 20.0) for record in healthy() if record.scheduled_s < 20]
    window = judge(known, ended_s=20.0, stop="")
    assert not window.passes
    assert codes(window) == ["cut_short"]


@pytest.mark.parametrize("stop", ["engine_died", "deadline"])
def test_a_load_that_ended_by_itself_explains_no_failure(stop: str) -> None:
    failed = [broken(record) for record in healthy() if record.scheduled_s < 20]
    assert codes(judge(failed, ended_s=20.0, stop=stop)) == [stop]


def test_a_window_that_another_ones_failure_left_undecided_is_neither() -> None:
    load = plan([*OFFSETS, *[60.0 + offset for offset in OFFSETS]], window_s=60.0, windows=2, rate_rps=RATE_RPS)
    first = [request(o, index=i, tokens=500, tpot_s=0.045) for i, o in enumerate(OFFSETS)]
    second = [broken(request(60.0 + o, index=N + i, ttft_s=0.0)) for i, o in enumerate(OFFSETS) if o < 10]
    first = [cut(record, 61.0) if record.scheduled_s > 50 else record for record in first]
    run = run_of(load, [*first, *second], ended_s=70.0, stop="failed")
    undecided, failing = (window.result for window in judge_run(run, "confirm", RULES))
    assert (undecided.passes, undecided.misses, undecided.invalid) == (False, (), ())
    assert (undecided.undecided, failing.undecided) == ("cut short: the rate had failed already", None)
    assert (failing.passes, failing.invalid) == (False, ())
    assert failing.misses
    assert [undecided.label, failing.label] == ["probe-1", "probe-2"]


def test_windows_that_had_not_begun_are_not_judged() -> None:
    load = plan([*OFFSETS, *[60.0 + offset for offset in OFFSETS]], window_s=60.0, windows=2)
    run = run_of(load, [broken(record) for record in healthy()], ended_s=59.0, stop="failed")
    assert len(judge_run(run, "confirm", RULES)) == 1


def test_a_run_that_ended_in_its_warm_up_has_no_window() -> None:
    run = replace(run_of(plan(OFFSETS, window_s=60.0), []), spans=(), stop="engine_died")
    assert judge_run(run, "search", RULES) == ()


def test_a_growing_queue_fails_a_window_whose_latencies_are_met() -> None:
    rules = WindowRules((SloBound("ttft", 95, 30_000),))
    queued = [request(o, index=i, ttft_s=0.1 + o / 4) for i, o in enumerate(OFFSETS)]
    window = judge(queued, rules=rules)
    assert not window.stable
    assert not window.passes
    assert window.misses[0].startswith("unstable: requests without a first token grew by ")


# --- validity


def test_late_sends_make_a_window_invalid() -> None:
    window = judge([replace(record, sent_s=record.scheduled_s + 0.021) for record in healthy()])
    assert codes(window) == ["schedule_lag"]
    assert "21.0 ms late at p99, 20 ms are allowed" in window.invalid[0].text
    assert judge([replace(record, sent_s=record.scheduled_s + 0.019) for record in healthy()]).invalid == ()


def test_without_a_ttft_bound_sends_may_be_5_ms_late() -> None:
    rules = WindowRules((SloBound("tpot", 95, 50),))
    assert judge(healthy(), rules=rules).client.lag_limit_ms == pytest.approx(5.0)


def with_worker(share: float, error: str | None = None) -> LoadRun:
    run = run_of(plan(OFFSETS, window_s=60.0, rate_rps=RATE_RPS), healthy())
    trace = WorkerTrace(0, (-10.0, 0.0, 60.0, 70.0), (0.0, 10.0, 10.0 + 60 * share, 80.0), error)
    return replace(run, workers=(WorkerTrace(1, (0.0, 60.0), (0.0, 1.0)), trace))


@pytest.mark.parametrize(("share", "found"), [(0.89, []), (0.91, ["client_cpu"])])
def test_a_busy_worker_makes_a_window_invalid(share: float, found: list[str]) -> None:
    window = only(judge_run(with_worker(share), "search", RULES))
    assert codes(window) == found
    assert window.client.cpu_share_max == pytest.approx(share)


def test_a_worker_that_broke_off_makes_a_window_invalid() -> None:
    assert codes(only(judge_run(with_worker(0.1, "killed"), "search", RULES))) == ["load_worker_failed"]


def test_requests_that_were_never_sent_are_a_shortfall() -> None:
    window = judge(healthy()[: int(0.97 * N)])
    assert codes(window) == ["offered_shortfall"]


def test_refused_connections_are_failures_of_the_server_and_no_shortfall() -> None:
    refused = [replace(broken(record, ErrorClass.CONNECT), sent_s=None) for record in healthy()[: N // 2]]
    window = judge([*refused, *healthy()[N // 2 :]])
    assert codes(window) == []
    assert not window.passes
    assert window.failures == {"connect": N // 2}


def test_an_early_stop_offers_only_what_was_due() -> None:
    failed = [broken(record) for record in healthy() if record.scheduled_s < 20]
    assert judge(failed, ended_s=20.5, stop="failed").invalid == ()


@pytest.mark.parametrize(("ignore_eos", "found"), [(True, ["output_length"]), (False, [])])
def test_other_lengths_than_requested_make_a_window_invalid(ignore_eos: bool, found: list[str]) -> None:
    short = [replace(healthy()[0], planned_output_tokens=20), *healthy()[1:]]
    assert codes(judge(short, rules=WindowRules(SLO, ignore_eos=ignore_eos))) == found


def test_more_tokens_than_max_tokens_are_a_wrong_count_whatever_was_asked_of_eos() -> None:
    long = [replace(record, planned_output_tokens=(record.output_tokens or 0) - 1) for record in healthy()]
    window = judge(long, rules=WindowRules(SLO, ignore_eos=False))
    assert codes(window) == ["output_length"]
    assert "more output tokens than max_tokens" in window.invalid[0].text


def test_prefix_cache_hits_make_a_window_invalid_unless_the_trace_shares_prefixes() -> None:
    hits = changed(5, lambda record: replace(record, cached_tokens=96))
    assert codes(judge([replace(r, cached_tokens=r.cached_tokens or 0) for r in hits])) == ["prefix_cache_hits"]
    assert codes(judge(hits, rules=WindowRules(SLO, shared_prefixes=True))) == []


@pytest.mark.parametrize(("hits", "found"), [(10.0, []), (11.0, ["prefix_cache_hits"])])
def test_the_servers_counters_stand_in_for_usage_details(hits: float, found: list[str]) -> None:
    run = run_of(plan(OFFSETS, window_s=60.0, rate_rps=RATE_RPS), healthy())
    window = only(judge_run(run, "search", RULES, PrefixTokens(hits, 1000.0)))
    assert codes(window) == found


def test_without_usage_there_is_no_rate() -> None:
    window = judge(changed(1, lambda record: replace(record, output_tokens=None)))
    assert codes(window) == ["usage_missing"]
    assert window.output_tok_s is None
    assert window.goodput_tok_s is None


def test_bunched_sends_are_no_poisson_process() -> None:
    same = sorted([offset for offset in OFFSETS[: N // 4] for _ in range(4)])
    records = [request(offset, index=index) for index, offset in enumerate(same)]
    window = only(judge_run(run_of(plan(same, window_s=60.0), records), "search", RULES))
    assert codes(window) == ["arrival_dispersion"]


def test_a_poisson_process_lies_inside_its_band_999_times_in_1000() -> None:
    outside = 0
    for seed in range(1000):
        sent = poisson(20.0, 30.0, seed)
        found, blocks = dispersion(np.array(sent), WindowSpan(0.0, 30.0)), dispersion_blocks(len(sent))
        assert found is not None
        assert blocks is not None
        low, high = dispersion_band(blocks)
        outside += not low <= found <= high
    assert outside <= 4


def test_a_concurrency_cap_makes_a_window_invalid() -> None:
    run = run_of(plan(OFFSETS, window_s=60.0, rate_rps=RATE_RPS), healthy(), capped=3)
    assert codes(only(judge_run(run, "search", RULES))) == ["concurrency_capped"]


def test_a_window_that_cannot_hold_its_percentile_is_invalid() -> None:
    rules = WindowRules((SloBound("ttft", 99.9, 2000),))
    window = judge(healthy(), rules=rules)
    assert codes(window) == ["too_few_requests"]
    assert "its SLO percentile needs 1000" in window.invalid[0].text


def test_a_promise_that_no_request_can_keep_or_break_is_no_pass() -> None:
    single = [request(offset, index=index, tokens=1) for index, offset in enumerate(OFFSETS)]
    window = judge(single)
    assert not window.passes
    assert codes(window) == ["too_few_requests"]


def test_an_empty_window_does_not_pass() -> None:
    window = only(judge_run(run_of(plan([], window_s=60.0), []), "search", RULES))
    assert not window.passes
    assert "too_few_requests" in codes(window)


def test_windows_take_their_requests_by_the_schedule() -> None:
    load = plan([0.0, 59.999, 60.0, 119.0, 120.0], window_s=60.0, windows=2)
    assert [list(window_indices(load, window)) for window in (0, 1)] == [[0, 1], [2, 3]]


# --- properties

LATENCY = st.tuples(st.floats(0.01, 4.0), st.floats(0.005, 0.09), st.booleans())


@settings(max_examples=60, deadline=None)
@given(st.lists(LATENCY, min_size=20, max_size=60), st.integers(0, 59), st.floats(5.0, 70.0))
def test_a_window_never_passes_by_failing_more(
    latencies: list[tuple[float, float, bool]], victim: int, ended_s: float
) -> None:
    offsets = [0.9 * index for index in range(len(latencies))]
    records = []
    for index, (ttft_s, tpot_s, fails) in enumerate(latencies):
        record = request(offsets[index], index=index, ttft_s=ttft_s, tpot_s=tpot_s)
        records.append(broken(record, ErrorClass.TIMEOUT) if fails else record)
    seen = [cut(record, ended_s) for record in records if record.scheduled_s < ended_s]
    load = plan(offsets, window_s=60.0)
    before = only(judge_run(run_of(load, seen, ended_s=ended_s, stop="x"), "search", RULES))
    worse = list(seen)
    worse[victim % len(worse)] = broken(worse[victim % len(worse)])
    after = only(judge_run(run_of(load, worse, ended_s=ended_s, stop="x"), "search", RULES))
    assert before.passes or not after.passes
    assert not before.misses or after.misses
    assert not (after.passes and after.misses)
    assert before.good_tokens <= before.output_tokens

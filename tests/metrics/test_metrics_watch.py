from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from metrics_builders import broken, cut, plan, poisson, readings, request, run_of

from pytest_tokenwatt.metrics.client import WindowRules
from pytest_tokenwatt.metrics.latency import progress
from pytest_tokenwatt.metrics.watch import SloWatch
from pytest_tokenwatt.metrics.window import judge_run
from pytest_tokenwatt.records import Decision, LoadPlan, RequestRecord, SloBound, WindowResult

SLO = (SloBound("ttft", 90, 2000), SloBound("tpot", 90, 50))
WINDOW_S = 60.0


def watch_all(
    load: LoadPlan, served: Sequence[RequestRecord], bounds: Sequence[SloBound] = SLO, kind: str = "search"
) -> tuple[Decision, float]:
    """Ask the watch every second as the load would, until it stops."""
    watch = SloWatch(load, bounds, kind)
    spans = run_of(load, []).spans
    done = [progress(record) for record in served]
    for second in range(1, 400):
        now_s = float(second)
        seen = [
            done[index] if (record.end_s or 0.0) <= now_s else progress(cut(record, now_s))
            for index, record in enumerate(served)
            if record.scheduled_s <= now_s
        ]
        decision = watch.decide(now_s, spans, seen)
        if decision.stop:
            return decision, now_s
    raise AssertionError("the watch never stopped")


def judged(load: LoadPlan, served: Sequence[RequestRecord], decision: Decision, now_s: float) -> WindowResult:
    known = [record for record in served if record.scheduled_s <= now_s]
    known = [cut(record, now_s) for record in known] if decision.abort else known
    run = run_of(load, known, ended_s=now_s, stop=decision.why)
    return judge_run(run, "search", WindowRules(SLO))[0].result


def even(rate_rps: float = 2.0, windows: int = 1, tail_s: float = 60.0) -> list[float]:
    return [index / rate_rps for index in range(int(rate_rps * (WINDOW_S * windows + tail_s)))]


def load_of(offsets: Sequence[float], windows: int = 1, tokens: int = 11) -> LoadPlan:
    return plan(offsets, window_s=WINDOW_S, windows=windows, tokens=tokens)


def test_a_healthy_load_stops_as_soon_as_its_requests_are_done() -> None:
    offsets = even()
    served = [request(offset, index=index) for index, offset in enumerate(offsets)]
    decision, now_s = watch_all(load_of(offsets), served, kind="confirm")
    assert (decision.stop, decision.abort) == (True, False)
    assert now_s == 60.0


def test_more_misses_than_the_percentile_allows_of_all_planned_requests_abort() -> None:
    """120 planned requests at p90 allow 12 misses; a request is a miss once it is older than the bound."""
    offsets = even()
    served = [request(offset, index=index, ttft_s=30.0) for index, offset in enumerate(offsets)]
    decision, now_s = watch_all(load_of(offsets), served)
    assert decision.abort
    assert decision.why == "14 of 120 planned requests miss ttft_p90_ms 2000"
    assert now_s == 9.0
    assert not judged(load_of(offsets), served, decision, now_s).passes


def test_as_many_misses_as_are_allowed_do_not_stop_it() -> None:
    offsets = even()
    served = [request(offset, index=index, ttft_s=3.0 if index < 12 else 0.1) for index, offset in enumerate(offsets)]
    decision, now_s = watch_all(load_of(offsets), served)
    assert not decision.abort
    assert now_s >= WINDOW_S
    assert judged(load_of(offsets), served, decision, now_s).passes


def test_failed_requests_miss_every_bound() -> None:
    offsets = even()
    served = [broken(request(offset, index=index, ttft_s=0.0)) for index, offset in enumerate(offsets)]
    decision, now_s = watch_all(load_of(offsets), served)
    assert decision.abort
    assert now_s <= 7.0


def test_a_request_that_cannot_make_its_tpot_any_more_is_a_miss_before_it_ends() -> None:
    offsets = even()
    served = [request(offset, index=index, tpot_s=0.2, tokens=100) for index, offset in enumerate(offsets)]
    decision, now_s = watch_all(load_of(offsets, tokens=100), served)
    assert decision.abort
    assert "tpot" in decision.why
    assert now_s < 14.0


def test_a_slow_start_of_a_long_answer_is_no_certain_miss() -> None:
    """128 tokens at 60 ms may still end below 50 ms a token: only the end, or the last window's end, can tell."""
    offsets = even()
    served = [request(offset, index=index, tpot_s=0.06, tokens=2000) for index, offset in enumerate(offsets)]
    decision, now_s = watch_all(load_of(offsets, tokens=2000), served)
    assert decision.abort
    assert now_s >= WINDOW_S


def test_behind_the_last_window_a_running_request_is_judged_by_its_tpot_so_far() -> None:
    offsets = even()
    served = [request(offset, index=index, tpot_s=0.04, tokens=4000) for index, offset in enumerate(offsets)]
    decision, now_s = watch_all(load_of(offsets, tokens=4000), served, kind="confirm")
    assert not decision.abort
    assert now_s == math.ceil(59.5 + 0.1 + 127 * 0.04)


def test_a_search_need_not_wait_for_requests_that_cannot_change_its_verdict() -> None:
    offsets = even()
    served = [request(o, index=i, tpot_s=0.04, tokens=4000) for i, o in enumerate(offsets)]
    _, searched_s = watch_all(load_of(offsets, tokens=4000), served, kind="search")
    _, confirmed_s = watch_all(load_of(offsets, tokens=4000), served, kind="confirm")
    assert WINDOW_S <= searched_s < confirmed_s


def test_a_failing_window_stops_all_windows() -> None:
    offsets = even(windows=3)
    served = [request(o, index=i, ttft_s=5.0 if 60 <= o < 120 else 0.1) for i, o in enumerate(offsets)]
    decision, now_s = watch_all(load_of(offsets, windows=3), served, kind="confirm")
    assert decision.abort
    assert 60.0 < now_s < 75.0


def test_misses_of_the_tail_do_not_matter() -> None:
    offsets = even()
    served = [request(o, index=i, ttft_s=20.0 if o >= 60 else 1.9) for i, o in enumerate(offsets)]
    decision, _ = watch_all(load_of(offsets), served, kind="confirm")
    assert not decision.abort


def test_itl_misses_are_left_to_the_judge() -> None:
    offsets = even()
    served = [request(offset, index=index, tpot_s=0.06) for index, offset in enumerate(offsets)]
    decision, now_s = watch_all(load_of(offsets), served, bounds=(SloBound("itl", 90, 50),))
    assert (decision.stop, decision.abort) == (True, False)
    assert now_s == math.ceil(59.5 + 0.1 + 0.6)


def test_a_growing_queue_aborts_although_its_latencies_are_within_their_bounds() -> None:
    offsets = even()
    served = [request(o, index=i, ttft_s=0.1 + o) for i, o in enumerate(offsets)]
    decision, now_s = watch_all(load_of(offsets), served, bounds=(SloBound("ttft", 90, 90_000),))
    assert decision.abort
    assert decision.why.startswith("unstable: requests without a first token grew by")
    assert 30.0 <= now_s < WINDOW_S


def queue_times(arrived: Sequence[float], service_s: Sequence[float]) -> list[float]:
    free_s, waits = 0.0, []
    for at_s, takes_s in zip(arrived, service_s, strict=True):
        free_s = max(free_s, at_s) + takes_s
        waits.append(free_s - at_s)
    return waits


def stops_early(rate_rps: float, seed: int) -> bool:
    """Whether the early look, taken every second, calls one window's queue unstable."""
    generator = np.random.default_rng(seed)
    offsets = poisson(rate_rps, WINDOW_S + 10.0, seed)
    waits = (
        queue_times(offsets, [0.1] * len(offsets)) if rate_rps > 9 else list(generator.exponential(1.0, len(offsets)))
    )
    load = plan(offsets, window_s=WINDOW_S)
    served = [
        progress(request(offset, index=index, ttft_s=waits[index], tokens=1)) for index, offset in enumerate(offsets)
    ]
    watch = SloWatch(load, (SloBound("ttft", 90, 1e6),), "search")
    spans = run_of(load, []).spans
    for second in range(30, 60):
        now_s = float(second)
        seen = [
            one
            if one.first_token_s is not None and one.first_token_s <= now_s
            else replace(one, first_token_s=None, last_token_s=None, tokens=0, ended=False)
            for one in served
            if one.scheduled_s <= now_s
        ]
        if watch.decide(now_s, spans, seen).stop:
            return True
    return False


def test_looking_every_second_does_not_raise_the_false_alarms() -> None:
    assert sum(stops_early(8.0, seed) for seed in range(60)) <= 1


def test_a_queue_that_wanders_near_its_capacity_is_not_stopped_early() -> None:
    assert sum(stops_early(9.5, seed) for seed in range(60)) <= 1


def test_a_queue_far_above_capacity_ends_its_window_early() -> None:
    assert sum(stops_early(14.0, seed) for seed in range(10)) == 10


def test_the_warm_up_goes_on_while_requests_in_flight_rise() -> None:
    watch = SloWatch(load_of(even()), SLO, "search")
    assert not watch.level(45.0, readings([float(second) for second in range(46)]))
    assert watch.level(45.0, readings([50.0] * 46))


LATENCY = st.tuples(st.floats(0.01, 4.0), st.floats(0.005, 0.09), st.integers(1, 200), st.booleans())
ARRIVALS = poisson(0.7, 120.0, 5)


@settings(max_examples=25, deadline=None)
@given(st.lists(LATENCY, min_size=20, max_size=40), st.sampled_from(["search", "confirm"]))
def test_a_stop_is_judged_to_the_verdict_that_was_certain(
    latencies: list[tuple[float, float, int, bool]], kind: str
) -> None:
    """Whatever happens to the requests: an abort is a valid failure, and a stop is a verdict."""
    offsets = ARRIVALS
    load = plan(
        offsets, window_s=WINDOW_S, tokens=[one[2] for one in latencies] + [11] * (len(offsets) - len(latencies))
    )
    served = []
    for index, (ttft_s, tpot_s, tokens, fails) in enumerate(latencies):
        record = request(offsets[index], index=index, ttft_s=ttft_s, tpot_s=tpot_s, tokens=tokens)
        served.append(broken(record) if fails and index % 3 == 0 else record)
    served += [request(offsets[index], index=index) for index in range(len(latencies), len(offsets))]
    decision, now_s = watch_all(load, served, kind=kind)
    window = judged(load, served, decision, now_s)
    assert not window.invalid
    if decision.abort:
        assert window.misses
        assert not window.passes
    else:
        assert window.passes or window.misses

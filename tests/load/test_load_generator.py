"""The generator's promises about a run: schedule, phases, stops, caps, repeats."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from time import monotonic

import pytest
from load_server import (
    Behaviour,
    LoadServer,
    Reply,
    Watch,
    after,
    all_ended,
    final,
    good,
    once_answered,
    schedule,
    serving,
    small_plan,
    token,
)

from pytest_tokenwatt.load.generator import LoadGenerator
from pytest_tokenwatt.records import ErrorClass, LoadRun, RequestRecord, Target


@pytest.fixture(scope="module")
def server() -> Iterator[LoadServer]:
    with serving(LoadServer()) as running:
        yield running


@pytest.fixture(scope="module")
def target(server: LoadServer) -> Target:
    return Target(server.endpoint, "m", vocab_size=100, special_ids=frozenset({0, 1, 2, 99}))


@pytest.fixture(scope="module")
def two_workers(target: Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadGenerator]:
    with LoadGenerator(target, 2, lambda: None, tmp_path_factory.mktemp("two") / "load.log") as generator:
        yield generator


@pytest.fixture(autouse=True)
def fresh(server: LoadServer) -> None:
    server.behaviour = good
    server.requests.clear()


def slowly(seconds: float, tokens: int = 4) -> Behaviour:
    async def behave(reply: Reply) -> None:
        reply.head()
        for n in range(tokens):
            reply.event(token(reply.chat, ids=[n], finish="length" if n == tokens - 1 else None))
            await reply.writer.drain()
            await reply.sleep(seconds / tokens)
        reply.event(final(tokens))
        reply.event("[DONE]")
        reply.end()

    return behave


def measured(run: LoadRun) -> list[RequestRecord]:
    """The measured requests, each one that was scheduled before the stop exactly once."""
    records = [record for record in run.requests if record.phase == "measured"]
    start_s = run.spans[0].start_s
    due = [offset for offset in run.plan.measured.offset_s if start_s + offset < run.ended_s]
    assert [record.index for record in records] == list(range(len(due)))
    return records


def test_requests_follow_the_schedule(two_workers: LoadGenerator, server: LoadServer) -> None:
    plan = small_plan([4] * 25, key=11)
    run = two_workers.run(plan, Watch(all_ended(25)))
    records = measured(run)
    start_s = run.spans[0].start_s
    assert [record.index for record in records] == list(range(25))
    assert [record.scheduled_s for record in records] == [start_s + offset for offset in plan.measured.offset_s]
    assert all(record.sent_s is not None and record.sent_s >= record.scheduled_s for record in records)
    assert [record.planned_output_tokens for record in records] == [4] * 25
    assert all(record.ok for record in records)
    assert (run.stop, run.capped, run.warm_level) == ("done", 0, True)
    assert len(server.requests) == 25


def test_prompts_are_unique_ids_of_the_asked_length(two_workers: LoadGenerator, server: LoadServer) -> None:
    warmup = schedule([0.01 * k for k in range(40)], [4] * 40, prompt_key=21, inputs=12)
    plan = small_plan([4] * 20, key=22, warmup_s=0.2, warmup=warmup)
    two_workers.run(plan, Watch(all_ended(20)))
    prompts = [tuple(request.body["prompt"]) for request in server.requests]
    assert len(set(prompts)) == len(prompts) >= 40
    assert {len(prompt) for prompt in prompts} == {8, 12}
    used = {token_id for prompt in prompts for token_id in prompt}
    assert used <= set(range(3, 99))
    assert len(used) > 80


def test_the_same_key_gives_the_same_prompts_whatever_the_workers(
    two_workers: LoadGenerator, target: Target, server: LoadServer, tmp_path: Path
) -> None:
    two_workers.run(small_plan([4] * 9, key=31), Watch(all_ended(9)))
    first = sorted(request.body["prompt"] for request in server.requests)
    server.requests.clear()
    with LoadGenerator(target, 3, lambda: None, tmp_path / "load.log") as three:
        three.run(small_plan([4] * 9, key=31), Watch(all_ended(9)))
    assert sorted(request.body["prompt"] for request in server.requests) == first


def test_the_body_asks_for_all_that_is_needed(two_workers: LoadGenerator, server: LoadServer) -> None:
    two_workers.run(small_plan([4], key=41, window_s=0.1), Watch(all_ended(1)))
    body = server.requests[0].body
    del body["prompt"]
    assert body == {
        "model": "m",
        "max_tokens": 4,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "return_token_ids": True,
        "ignore_eos": True,
        "temperature": 0,
    }


def test_the_load_goes_on_without_a_break_from_warm_up_to_measurement(
    two_workers: LoadGenerator, server: LoadServer
) -> None:
    warmup = schedule([0.02 * k for k in range(200)], [4] * 200, prompt_key=51)
    plan = small_plan([4] * 60, key=52, warmup_s=0.5, warmup=warmup)
    watch = Watch(all_ended(60), level_after=1)
    run = two_workers.run(plan, watch)
    start_s = run.spans[0].start_s
    warm = [record for record in run.requests if record.phase == "warmup"]
    assert max(record.scheduled_s for record in warm) < start_s <= min(record.scheduled_s for record in measured(run))
    assert start_s - max(record.scheduled_s for record in warm) <= 0.021
    assert [record.index for record in warm] == list(range(len(warm)))
    assert 0.5 <= start_s - run.started_s < 4.0


def test_the_warm_up_lasts_until_the_watch_calls_it_level(two_workers: LoadGenerator) -> None:
    warmup = schedule([0.05 * k for k in range(40)], [4] * 40, prompt_key=61)
    plan = small_plan([4], key=62, window_s=0.1, warmup=warmup)
    plan = replace(plan, warmup_s=0.2, warmup_max_s=20.0)
    level = two_workers.run(plan, Watch(all_ended(1), level_after=2))
    assert level.warm_level
    assert level.spans[0].start_s - level.started_s < 10.0
    short = replace(plan, warmup_s=0.1, warmup_max_s=0.3)
    unlevel = two_workers.run(short, Watch(all_ended(1), level_after=10**6))
    assert not unlevel.warm_level
    assert unlevel.spans[0].start_s - unlevel.started_s >= 0.3


def test_windows_lie_back_to_back(two_workers: LoadGenerator) -> None:
    run = two_workers.run(small_plan([4] * 30, key=71, windows=3, window_s=0.2), Watch(all_ended(30)))
    assert len(run.spans) == 3
    for earlier, later in pairwise(run.spans):
        assert later.start_s == pytest.approx(earlier.end_s)
    assert run.spans[0].length_s == pytest.approx(0.2)


def test_an_aborting_stop_closes_what_is_in_flight(two_workers: LoadGenerator, server: LoadServer) -> None:
    server.behaviour = slowly(60.0)
    run = two_workers.run(small_plan([4] * 200, key=81), Watch(once_answered(5, after(0.6))))
    records = measured(run)
    assert records
    assert {record.error for record in records} == {ErrorClass.ABORTED}
    assert all(list(record.chunk_tokens) == [1] for record in records[:5])
    assert all(record.scheduled_s < run.ended_s for record in records)
    deadline_s = monotonic() + 5
    while any(request.gone_s is None for request in server.requests) and monotonic() < deadline_s:
        threading.Event().wait(0.02)
    assert all(request.gone_s is not None for request in server.requests)


@pytest.mark.slow
def test_a_stop_without_abort_lets_requests_finish_beside_the_next_run(
    two_workers: LoadGenerator, server: LoadServer
) -> None:
    server.behaviour = slowly(2.0)
    first = two_workers.run(small_plan([4] * 100, key=91), Watch(after(0.4), abort=False))
    assert {record.error for record in measured(first)} == {ErrorClass.ABORTED}
    left = list(server.requests)
    server.behaviour = good
    second = two_workers.run(small_plan([5] * 10, key=92), Watch(after(4.0), abort=False))
    assert [record.planned_output_tokens for record in measured(second)] == [5] * 10
    assert all(record.ok for record in measured(second))
    assert all(request.gone_s is None for request in left)
    assert max(reading.running for reading in second.in_flight) >= len(left) / 2
    assert second.in_flight[-1].running == 0


def test_an_open_loop_does_not_wait_for_answers(two_workers: LoadGenerator, server: LoadServer) -> None:
    server.behaviour = slowly(60.0)
    run = two_workers.run(small_plan([4] * 50, key=101), Watch(once_answered(50, after(1.0))))
    assert len(server.requests) >= 50
    assert run.capped == 0
    assert max(reading.running for reading in run.in_flight) >= 40


def test_a_concurrency_cap_is_counted(two_workers: LoadGenerator, server: LoadServer) -> None:
    server.behaviour = slowly(0.2)
    run = two_workers.run(small_plan([4] * 20, key=111, max_concurrency=4), Watch(all_ended(20)))
    assert run.capped > 0
    assert len(measured(run)) == 20
    assert all(record.ok for record in measured(run))
    delayed = [record for record in measured(run) if record.sent_s and record.sent_s - record.scheduled_s > 0.1]
    assert delayed


def test_readings_cover_all_that_was_scheduled(two_workers: LoadGenerator, server: LoadServer) -> None:
    server.behaviour = slowly(0.5)
    watch = Watch(all_ended(20))
    run = two_workers.run(small_plan([4] * 20, key=121), watch)
    start_s = run.spans[0].start_s
    for now_s, count in watch.seen:
        assert count == sum(1 for k in range(20) if start_s + 0.02 * k <= now_s)


def test_worker_traces_cover_the_run(two_workers: LoadGenerator) -> None:
    run = two_workers.run(small_plan([4] * 50, key=131), Watch(after(0.9)))
    assert [trace.worker for trace in run.workers] == [0, 1]
    for trace in run.workers:
        assert trace.error is None
        assert len(trace.at_s) == len(trace.cpu_s) >= 3
        assert all(later - earlier > 0.1 for earlier, later in pairwise(trace.at_s[:-1]))
        assert list(trace.cpu_s) == sorted(trace.cpu_s)
        assert trace.at_s[0] >= run.started_s


def test_connections_are_reused(two_workers: LoadGenerator, server: LoadServer) -> None:
    before = server.connections
    run = two_workers.run(small_plan([4] * 100, key=141, gap_s=0.005), Watch(all_ended(100)))
    assert sum(record.connection_reused for record in measured(run)) > 30
    assert server.connections - before < 100


def test_a_connection_that_the_server_closed_meanwhile_costs_no_request(
    two_workers: LoadGenerator, server: LoadServer
) -> None:
    async def closes_silently(reply: Reply) -> None:
        await good(reply)
        await reply.writer.drain()
        await asyncio.sleep(0.004)
        reply.cut()

    server.behaviour = closes_silently
    run = two_workers.run(small_plan([4] * 120, key=151, gap_s=0.005), Watch(all_ended(120)))
    assert all(record.ok for record in measured(run)), {record.error_message for record in measured(run)}


def test_warm_up_and_measurement_use_other_prompts(two_workers: LoadGenerator, server: LoadServer) -> None:
    warmup = schedule([0.02 * k for k in range(50)], [6] * 50, prompt_key=161)
    run = two_workers.run(small_plan([4] * 20, key=162, warmup_s=0.3, warmup=warmup), Watch(all_ended(20)))
    warm = {tuple(request.body["prompt"]) for request in server.requests if request.body["max_tokens"] == 6}
    timed = {tuple(request.body["prompt"]) for request in server.requests if request.body["max_tokens"] == 4}
    assert warm
    assert len(timed) == len(measured(run))
    assert not warm & timed

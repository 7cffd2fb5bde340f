"""Closed-loop load: exactly so many in flight, which requests are measured, and what they ask for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from closed_loads import Patience, asked, closed, held_share, lasting, of_phase
from load_server import LoadServer, Reply, Watch, all_ended, good, serving, small_plan

from pytest_tokenwatt.load.generator import LoadGenerator
from pytest_tokenwatt.records import ClosedLoader, ClosedRun, ErrorClass, Target


@pytest.fixture(scope="module")
def server() -> Iterator[LoadServer]:
    with serving(LoadServer()) as running:
        yield running


@pytest.fixture(scope="module")
def two_workers(server: LoadServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadGenerator]:
    target = Target(server.endpoint, "m", vocab_size=100, special_ids=frozenset({0, 1, 2, 99}))
    with LoadGenerator(target, 2, lambda: None, tmp_path_factory.mktemp("two") / "load.log") as generator:
        yield generator


@pytest.fixture(autouse=True)
def fresh(server: LoadServer) -> None:
    server.behaviour = good
    server.requests.clear()


@pytest.mark.parametrize("concurrency", [1, 7])
def test_exactly_as_many_are_in_flight_as_were_asked_for(
    two_workers: LoadGenerator, server: LoadServer, concurrency: int
) -> None:
    server.behaviour = lasting(0.5)  # with longer ones a gap of the same length is a smaller share
    shares: list[float] = []
    # A machine that does other things can only widen the gaps: it is given further tries.
    while not shares or (shares[-1] < 0.99 and len(shares) < 5):
        run = two_workers.run_closed(closed(concurrency, 0, 2 * concurrency), Patience())
        assert run.stop == "done"
        assert run.span is not None
        assert all(held_share(run.requests, run.span, more) == 0 for more in (concurrency + 1, concurrency + 2))
        shares.append(held_share(run.requests, run.span, concurrency))
    assert max(shares) >= 0.99, shares


@dataclass(frozen=True)
class Steady:
    """One run of a plan with warm-up, measured requests and tail, and what its watch was told."""

    run: ClosedRun
    watch: Patience
    asked: int


@pytest.fixture(scope="module")
def steady(two_workers: LoadGenerator, server: LoadServer) -> Steady:
    server.behaviour = lasting(0.25)
    watch = Patience()
    run = two_workers.run_closed(closed(3, 5, 11, input_tokens=9), watch)
    return Steady(run, watch, len(asked(server, 9)))


def test_a_replacement_is_due_when_the_request_before_it_ends(steady: Steady) -> None:
    run = steady.run
    ends = {record.end_s for record in run.requests}
    first, later = run.requests[:3], run.requests[3:]
    assert {record.scheduled_s for record in first} == {run.started_s}
    assert all(record.scheduled_s in ends for record in later)
    assert all(record.sent_s is not None and record.sent_s >= record.scheduled_s for record in run.requests)
    lag_s = sorted(record.sent_s - record.scheduled_s for record in later if record.sent_s is not None)
    assert lag_s[len(lag_s) // 2] < 0.05


def test_measured_requests_stand_directly_behind_the_warm_up(steady: Steady) -> None:
    run = steady.run
    assert len(run.requests) == steady.asked
    for phase, count in (("warmup", 5), ("measured", 11), ("tail", steady.asked - 16)):
        assert [record.index for record in of_phase(run, phase)] == list(range(count))
    assert all(record.ok for phase in ("warmup", "measured") for record in of_phase(run, phase))
    assert {record.planned_input_tokens for record in run.requests} == {9}
    assert {record.planned_output_tokens for record in run.requests} == {4}
    # Nothing is waited for between the phases: each begins while requests of the one before are on their way.
    for earlier, later in pairwise(("warmup", "measured", "tail")):
        ends_s = [record.end_s for record in of_phase(run, earlier) if record.end_s is not None]
        assert min(record.scheduled_s for record in of_phase(run, later)) <= max(ends_s)


def test_the_load_is_kept_up_until_the_last_measured_request_ends_and_then_aborted(steady: Steady) -> None:
    run = steady.run
    measured = of_phase(run, "measured")
    assert run.stop == "done"
    assert run.span is not None
    assert run.span.start_s == min(record.sent_s for record in measured if record.sent_s is not None)
    assert run.span.end_s == max(record.end_s for record in measured if record.end_s is not None)
    assert run.started_s <= run.span.start_s <= run.span.end_s <= run.ended_s
    aborted = [record for record in of_phase(run, "tail") if record.error is ErrorClass.ABORTED]
    assert len(aborted) == 3
    assert all(record.end_s is not None and record.end_s >= run.ended_s for record in aborted)


def test_the_watch_hears_how_far_the_load_is(steady: Steady) -> None:
    told = steady.watch.told
    assert 3 <= len(told) <= (steady.run.ended_s - steady.run.started_s) / 0.25 + 2
    assert [ended for _, ended, _ in told] == sorted(ended for _, ended, _ in told)
    assert {ended for _, ended, _ in told} > {0}
    assert {in_flight for _, _, in_flight in told} <= {0, 1, 2, 3}
    assert told[-1][2] == 3


def test_prompts_are_unique_and_depend_on_key_and_number_only(
    two_workers: LoadGenerator, server: LoadServer, tmp_path: Path
) -> None:
    plan = closed(3, 3, 9, prompt_key=7, input_tokens=12)
    two_workers.run_closed(plan, Patience())
    first = [tuple(request.body["prompt"]) for request in asked(server, 12)]
    assert len(set(first)) == len(first) >= 12
    assert {request.body["max_tokens"] for request in asked(server, 12)} == {4}
    server.requests.clear()
    target = Target(server.endpoint, "m", vocab_size=100, special_ids=frozenset({0, 1, 2, 99}))
    with LoadGenerator(target, 1, lambda: None, tmp_path / "load.log") as one:
        one.run_closed(plan, Patience())
    again = [tuple(request.body["prompt"]) for request in asked(server, 12)]
    assert len(set(first) & set(again)) >= 12


def test_a_worker_without_a_slot_sends_nothing(two_workers: LoadGenerator, server: LoadServer) -> None:
    run = two_workers.run_closed(closed(1, 0, 6, input_tokens=10), Patience())
    assert run.stop == "done"
    assert [trace.worker for trace in run.workers] == [0, 1]
    assert len({request.connection for request in asked(server, 10)}) == 1


def test_connections_are_kept_from_request_to_request(two_workers: LoadGenerator, server: LoadServer) -> None:
    before = server.connections
    run = two_workers.run_closed(closed(4, 0, 40), Patience())
    assert server.connections - before <= 4
    assert Counter(record.connection_reused for record in run.requests)[True] >= 36


def test_measured_requests_may_all_be_sent_at_once(two_workers: LoadGenerator, server: LoadServer) -> None:
    async def together(reply: Reply) -> None:
        while 5 < len(asked(server, 13)) < 15:
            await reply.sleep(0.01)
        await good(reply)

    server.behaviour = together
    run = two_workers.run_closed(closed(3, 5, 10, at_once=True, input_tokens=13), Patience())
    warm, measured = of_phase(run, "warmup"), of_phase(run, "measured")
    assert (len(warm), len(measured), len(of_phase(run, "tail"))) == (5, 10, 0)
    assert [record.index for record in measured] == list(range(10))
    due_s = {record.scheduled_s for record in measured}
    assert len(due_s) == 1
    assert max(record.end_s or 0.0 for record in warm) < due_s.pop()
    assert all(record.ok for record in run.requests)
    assert run.stop == "done"
    assert len({tuple(request.body["prompt"]) for request in asked(server, 13)}) == 15


def test_all_at_once_needs_no_warm_up(two_workers: LoadGenerator, server: LoadServer) -> None:
    run = two_workers.run_closed(closed(3, 0, 6, at_once=True, input_tokens=14), Patience())
    assert [record.phase for record in run.requests] == ["measured"] * 6
    assert len(asked(server, 14)) == 6


def test_an_open_loop_runs_before_and_after_a_closed_one(two_workers: LoadGenerator) -> None:
    for key in (1, 2):
        run = two_workers.run(small_plan([4] * 5, key=key, window_s=0.1), Watch(all_ended(5)))
        assert all(record.ok for record in run.requests)
        loader: ClosedLoader = two_workers
        assert loader.run_closed(closed(2, 0, 6, prompt_key=key), Patience()).stop == "done"


def test_texts_are_asked_in_a_closed_loop_too(server: LoadServer, tmp_path: Path) -> None:
    with LoadGenerator(Target(server.endpoint, "m", prompt="text"), 1, lambda: None, tmp_path / "a.log") as generator:
        run = generator.run_closed(closed(2, 0, 4), Patience())
    assert all(record.ok for record in of_phase(run, "measured"))
    texts = [request.body["prompt"] for request in server.requests if isinstance(request.body["prompt"], str)]
    assert len(set(texts)) == len(texts) >= 4

"""What can happen to a closed loop: failures and their pause, timeouts, a watch's stop, a dead engine or worker."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from time import monotonic, sleep

import pytest
from closed_loads import Patience, closed, lasting, of_phase
from load_processes import children, gone
from load_server import Behaviour, LoadServer, Reply, good, serving, stalls

from pytest_tokenwatt.errors import LoadError
from pytest_tokenwatt.load import closed_stretch, crew
from pytest_tokenwatt.load.closed_offer import FAILURE_PAUSE_S
from pytest_tokenwatt.load.generator import LoadGenerator
from pytest_tokenwatt.records import ErrorClass, Target


async def refuses(reply: Reply) -> None:
    reply.plain("429 Too Many Requests", b'{"error": {"message": "queue is full", "code": 429}}')


@pytest.fixture(scope="module")
def server() -> Iterator[LoadServer]:
    with serving(LoadServer()) as running:
        yield running


@pytest.fixture(scope="module")
def deaths() -> list[str]:
    """How the engine died, once it did."""
    return []


@pytest.fixture(scope="module")
def generator(
    server: LoadServer, deaths: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LoadGenerator]:
    target = Target(server.endpoint, "m", vocab_size=50)
    log = tmp_path_factory.mktemp("faults") / "load.log"
    with LoadGenerator(target, 1, lambda: deaths[0] if deaths else None, log) as running:
        yield running


@pytest.fixture(autouse=True)
def fresh(server: LoadServer) -> None:
    server.behaviour = good
    server.requests.clear()


def misbehaving(numbers: set[int], how: Behaviour, otherwise: Behaviour) -> Behaviour:
    """The requests with prompts of 11 ids that have these numbers, counted as they come, are answered differently."""
    seen: list[Reply] = []

    async def behave(reply: Reply) -> None:
        if len(reply.request.body["prompt"]) == 11:
            seen.append(reply)
        await (how if seen and seen[-1] is reply and len(seen) - 1 in numbers else otherwise)(reply)

    return behave


def test_a_failed_request_is_replaced_and_counts_as_ended(generator: LoadGenerator, server: LoadServer) -> None:
    server.behaviour = misbehaving({1, 4}, refuses, lasting(0.05))
    run = generator.run_closed(closed(2, 0, 8, input_tokens=11, max_failures=2), Patience())
    assert run.stop == "done"
    assert run.span is not None
    measured = of_phase(run, "measured")
    assert [record.index for record in measured] == list(range(8))
    assert [record.error for record in measured if not record.ok] == [ErrorClass.HTTP] * 2
    assert {record.error_message for record in measured} == {None, "HTTP 429: queue is full"}


def test_a_server_that_refuses_everything_is_not_hammered(generator: LoadGenerator, server: LoadServer) -> None:
    server.behaviour = refuses
    run = generator.run_closed(closed(3, 0, 50, max_failures=8), Patience())
    assert run.stop == "too_many_failures"
    assert run.span is None
    assert 9 <= len(run.requests) <= 15
    instants = sorted(record.scheduled_s for record in run.requests)
    assert all(later - earlier >= FAILURE_PAUSE_S - 0.01 for earlier, later in pairwise(instants[::3]))


def test_a_closed_port_is_too_many_failures(tmp_path: Path) -> None:
    with serving(LoadServer()) as server:
        target = Target(server.endpoint, "m", vocab_size=50)
    with LoadGenerator(target, 1, lambda: None, tmp_path / "load.log") as generator:
        run = generator.run_closed(closed(2, 2, 4, max_failures=1), Patience())
    assert (run.stop, run.span) == ("too_many_failures", None)
    assert {record.error for record in run.requests if record.error is not ErrorClass.ABORTED} == {ErrorClass.CONNECT}


def test_a_request_that_hangs_times_out_and_is_replaced(generator: LoadGenerator, server: LoadServer) -> None:
    server.behaviour = misbehaving({0}, stalls, lasting(0.1))
    plan = closed(2, 0, 6, input_tokens=11, request_timeout_s=0.5, max_failures=1)
    run = generator.run_closed(plan, Patience())
    assert run.stop == "done"
    (late,) = [record for record in of_phase(run, "measured") if not record.ok]
    assert late.error is ErrorClass.TIMEOUT
    assert late.end_s is not None
    assert late.end_s - late.scheduled_s >= 0.5


def test_the_watch_stops_the_load_and_what_is_in_flight(generator: LoadGenerator, server: LoadServer) -> None:
    server.behaviour = stalls
    watch = Patience(lambda now_s, ended, in_flight: "budget" if in_flight == 3 else None)
    run = generator.run_closed(closed(3, 0, 9), watch)
    assert (run.stop, run.span) == ("budget", None)
    assert [record.error for record in run.requests] == [ErrorClass.ABORTED] * 3
    deadline_s = monotonic() + 5
    while any(request.gone_s is None for request in server.requests) and monotonic() < deadline_s:
        sleep(0.02)
    assert all(request.gone_s is not None for request in server.requests)


@pytest.mark.parametrize("at_once", [False, True])
def test_a_dead_engine_stops_a_closed_loop(
    generator: LoadGenerator, server: LoadServer, deaths: list[str], at_once: bool
) -> None:
    server.behaviour = stalls
    deaths.append("exit code 1")
    run = generator.run_closed(closed(2, 2, 9, at_once=at_once), Patience())
    deaths.clear()
    assert (run.stop, run.span) == ("engine_died", None)


def test_a_load_of_which_nothing_ends_meets_its_deadline(
    generator: LoadGenerator, server: LoadServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.behaviour = stalls
    monkeypatch.setattr(closed_stretch, "DEADLINE_MARGIN_S", -4.7)
    run = generator.run_closed(closed(2, 0, 9, request_timeout_s=5.0), Patience())
    assert (run.stop, run.span) == ("deadline", None)


def strike_once(before: set[int], sent: signal.Signals, found: set[int]) -> Patience:
    def strike(now_s: float, ended: int, in_flight: int) -> None:
        if not found and in_flight:
            found.update(children() - before)
            os.kill(max(found), sent)

    return Patience(strike)


def test_a_killed_worker_ends_a_closed_loop_and_the_others(tmp_path: Path) -> None:
    before, workers = children(), set[int]()
    with serving(LoadServer(lasting(0.2))) as server:
        target = Target(server.endpoint, "m", vocab_size=50)
        with LoadGenerator(target, 2, lambda: None, tmp_path / "load.log") as generator:
            with pytest.raises(LoadError, match="ended with exit code -9") as caught:
                generator.run_closed(closed(4, 0, 500), strike_once(before, signal.SIGKILL, workers))
            assert caught.value.reason == "load_worker_died"
            assert all(gone(pid) for pid in workers)


@pytest.mark.slow
def test_a_silent_worker_ends_a_closed_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "GOODBYE_S", 0.2)
    before, workers = children(), set[int]()
    with serving(LoadServer(lasting(0.2))) as server:
        target = Target(server.endpoint, "m", vocab_size=50)
        with LoadGenerator(target, 1, lambda: None, tmp_path / "load.log") as generator:
            watch = strike_once(before, signal.SIGSTOP, workers)
            generator.run_closed(closed(1, 0, 1), Patience())
            monkeypatch.setattr(crew, "SILENCE_S", 1.0)
            with pytest.raises(LoadError, match="has not reported for 1 s") as caught:
                generator.run_closed(closed(2, 0, 500), watch)
    assert caught.value.reason == "load_worker_hung"
    assert all(gone(pid) for pid in workers)

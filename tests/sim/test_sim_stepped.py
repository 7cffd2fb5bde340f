"""Load on virtual time: the same records as from the HTTP load generator, known to the last digit."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Listed
from dataclasses import replace

import pytest

from pytest_tokenwatt.records import (
    CONTINUE,
    Decision,
    ErrorClass,
    InFlight,
    LoadPlan,
    LoadRun,
    RequestProgress,
    RequestRecord,
    Schedule,
    WindowSpan,
)
from pytest_tokenwatt.sim.profile import PROFILES
from pytest_tokenwatt.sim.stepped import SteppedLoad
from pytest_tokenwatt.sim.steptime import Batch, StepTime

PROFILE = PROFILES["quickstart"]


class Watch:
    """Stops ``after_s`` seconds behind the start of the windows and remembers what it was shown."""

    def __init__(self, after_s: float, *, abort: bool = True, level: bool = True) -> None:
        self.after_s = after_s
        self.abort = abort
        self.is_level = level
        self.asked_s: list[float] = []
        self.shown: list[tuple[RequestProgress, ...]] = []
        self.readings: tuple[InFlight, ...] = ()

    def level(self, now_s: float, in_flight: Listed[InFlight]) -> bool:
        self.asked_s.append(now_s)
        self.readings = tuple(in_flight)
        return self.is_level

    def decide(self, now_s: float, spans: Listed[WindowSpan], requests: Listed[RequestProgress]) -> Decision:
        self.shown.append(tuple(requests))
        return Decision(True, "enough", self.abort) if now_s >= spans[0].start_s + self.after_s else CONTINUE


def schedule(*requests: tuple[float, int, int]) -> Schedule:
    offsets, inputs, outputs = zip(*requests, strict=True) if requests else ((), (), ())
    return Schedule(array("d", offsets), array("q", inputs), array("q", outputs), prompt_key=1)


def plan(measured: Schedule, warmup: Schedule | None = None) -> LoadPlan:
    return LoadPlan(
        label="probe",
        rate_rps=1.0,
        warmup=warmup or schedule(),
        measured=measured,
        warmup_s=2.0,
        warmup_max_s=5.0,
        window_s=4.0,
        windows=2,
        request_timeout_s=60.0,
        max_concurrency=100,
    )


def run(given: LoadPlan, watch: Watch) -> LoadRun:
    return SteppedLoad(PROFILE, noise=0.0).run(given, watch)


def of_phase(result: LoadRun, phase: str) -> list[RequestRecord]:
    return [record for record in result.requests if record.phase == phase]


def test_a_lone_request_takes_exactly_the_models_steps() -> None:
    result = run(plan(schedule((0.5, 100, 4))), Watch(after_s=2))

    record = of_phase(result, "measured")[0]
    step = StepTime(PROFILE, "auto")
    ends = [step(Batch(0, 0, 100, 5050))]
    for context in (101, 102, 103):
        ends.append(ends[-1] + step(Batch(1, context, 0, 0)))
    assert [stamp - record.scheduled_s for stamp in record.chunk_s] == pytest.approx(ends)
    assert record.scheduled_s == record.sent_s == pytest.approx(result.spans[0].start_s + 0.5)
    assert (record.first_token_s, record.last_token_s) == (record.chunk_s[0], record.chunk_s[-1])
    assert list(record.chunk_tokens) == [1, 1, 1, 1]
    assert (record.prompt_tokens, record.output_tokens, record.finish_reason, record.ok) == (100, 4, "length", True)


def test_the_warm_up_ends_when_the_watch_says_so_and_then_the_windows_follow_without_a_break() -> None:
    warmup = schedule(*((0.1 * k, 10, 2) for k in range(48)))
    watch = Watch(after_s=3)

    result = run(plan(schedule((0.0, 10, 2)), warmup), watch)

    assert result.warm_level
    assert 2.0 <= watch.asked_s[0] < 2.3
    assert watch.readings
    assert [span.length_s for span in result.spans] == pytest.approx([4, 4])
    assert result.spans[0].start_s == watch.asked_s[0]
    assert result.spans[0].end_s == result.spans[1].start_s
    assert len(of_phase(result, "warmup")) == pytest.approx(21, abs=1)


def test_a_load_that_never_gets_level_is_measured_after_the_longest_warm_up() -> None:
    result = run(plan(schedule((0.0, 10, 2))), Watch(after_s=2, level=False))

    assert not result.warm_level
    assert result.spans[0].start_s == pytest.approx(result.started_s + 5)


def test_the_watch_sees_every_request_scheduled_so_far() -> None:
    watch = Watch(after_s=3)
    run(plan(schedule((0.2, 10, 1000), (1.5, 10, 2), (2.5, 10, 2), (9.0, 10, 2))), watch)

    assert [len(requests) for requests in watch.shown] == [1, 2, 3]
    running, ended, _ = watch.shown[-1]
    assert (running.index, running.ended, running.first_tokens) == (0, False, 1)
    assert watch.shown[0][0].tokens < watch.shown[1][0].tokens < running.tokens < 1000
    assert (ended.ended, ended.tokens) == (True, 2)


def test_an_abort_empties_the_engine_and_a_plain_stop_lets_it_go_on() -> None:
    for abort, busy in ((True, 0), (False, 1)):
        load = SteppedLoad(PROFILE, noise=0.0)
        first = load.run(plan(schedule((0.0, 10, 4000))), Watch(after_s=1, abort=abort))
        second = load.run(plan(schedule((0.0, 10, 2))), Watch(after_s=1))

        cut = of_phase(first, "measured")[0]
        assert (cut.error, cut.output_tokens, cut.end_s) == (ErrorClass.ABORTED, None, first.ended_s)
        assert second.in_flight[0].running == busy
        assert second.started_s == first.ended_s


def test_a_request_that_takes_too_long_times_out() -> None:
    given = replace(plan(schedule((0.0, 10, 4000))), request_timeout_s=1.5)

    result = run(given, Watch(after_s=4))

    record = of_phase(result, "measured")[0]
    assert record.error is ErrorClass.TIMEOUT
    assert not record.ok
    assert (record.end_s or 0) - record.scheduled_s == pytest.approx(1.5, abs=0.3)


def test_a_concurrency_limit_delays_and_is_counted() -> None:
    given = replace(plan(schedule((0.0, 10, 20), (0.001, 10, 20))), max_concurrency=1)

    result = run(given, Watch(after_s=2))

    first, second = of_phase(result, "measured")
    assert result.capped == 1
    assert second.sent_s == first.end_s
    assert second.sent_s is not None
    assert second.sent_s > second.scheduled_s


def test_without_a_verdict_the_run_ends_at_its_deadline() -> None:
    given = replace(plan(schedule((0.0, 10, 2))), request_timeout_s=3.0)

    result = run(given, Watch(after_s=1000))

    assert result.stop == "deadline"
    assert result.ended_s >= result.spans[-1].end_s + 3


def test_noise_comes_from_its_seed_and_slowdown_stretches_the_time() -> None:
    given = plan(schedule((0.0, 100, 50)))

    def latency_s(seed: int, slowdown: float = 1.0) -> float:
        load = SteppedLoad(PROFILE, seed=seed, slowdown=slowdown)
        record = of_phase(load.run(given, Watch(after_s=3)), "measured")[0]
        return (record.last_token_s or 0) - record.scheduled_s

    assert latency_s(1) == latency_s(1)
    assert latency_s(1) != latency_s(2)
    assert latency_s(1, slowdown=2.0) == pytest.approx(2 * latency_s(1), rel=0.02)

"""Power of the served engine: what /tokenwatt/power and /metrics say, and the faults of the pretended board."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from served import Served, serving

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.sim.board import LiveBoard
from pytest_tokenwatt.sim.faults import Faults, parse_faults
from pytest_tokenwatt.sim.profile import PROFILES
from pytest_tokenwatt.sim.steptime import Batch, StepTime

PROFILE = PROFILES["quickstart"]
MODEL = PROFILE.board.power
BATCH = Batch(decodes=20, context=8000, prefill=0, pairs=0)
PROMPT = [10, 11, 12, 300, 400]


@pytest.fixture(scope="module")
def engine() -> Iterator[Served]:
    with serving() as served:
        yield served


def sensor(served: Served) -> dict[str, Any]:
    status, text = served.get("/tokenwatt/power")
    assert status == 200
    (only,) = json.loads(text)["sensors"]
    assert isinstance(only, dict)
    return only


@contextmanager
def loaded(served: Served, requests: int = 4) -> Iterator[None]:
    """Some requests on the engine during the block, which must end before they do."""
    body = {"prompt": PROMPT * 100, "max_tokens": 250, "temperature": 0, "ignore_eos": True}
    threads = [threading.Thread(target=served.post, args=("/v1/completions",), kwargs=body) for _ in range(requests)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join(30)


def duration_s(served: Served) -> float:
    began_s = time.monotonic()
    served.complete(prompt=PROMPT, max_tokens=60, ignore_eos=True)
    return time.monotonic() - began_s


def board_after_a_second(*faults: str) -> LiveBoard:
    """A board that was busy with one batch for its first second."""
    board = LiveBoard(PROFILE, "auto", parse_faults(faults), 0.0)
    step_s = StepTime(PROFILE, "auto")(BATCH)
    for k in range(round(1 / step_s)):
        board.note(k * step_s, (k + 1) * step_s, BATCH)
    return board


def test_an_idle_engine_tells_its_board_and_idle_power(engine: Served) -> None:
    told = json.loads(engine.get("/tokenwatt/power")[1])
    time.sleep(2 * MODEL.sensor_average_s)
    idle = sensor(engine)

    assert told["simulated"] is True
    assert told["label"] == "simulated GPU board (embedded engine)"
    assert (idle["sensor"], idle["name"]) == ("SIM-quickstart-0", "simulated quickstart board")
    assert (idle["limit_w"], idle["memory_gib"], idle["bandwidth_tbs"]) == (75.0, 4.0, 0.0325)
    assert idle["watts"] == pytest.approx(MODEL.idle_w)
    assert idle["reasons"] == 0x1
    assert idle["energy_j"] > 0


@pytest.mark.slow
def test_load_raises_power_and_the_counter_follows_wall_time(engine: Served) -> None:
    with loaded(engine):
        time.sleep(0.3)
        began_s = time.monotonic()
        readings = [sensor(engine)]
        for _ in range(5):
            time.sleep(0.1)
            readings.append(sensor(engine))
        elapsed_s = time.monotonic() - began_s

    first, last = readings[0], readings[-1]
    assert MODEL.idle_w < max(reading["watts"] for reading in readings) <= MODEL.limit_w
    assert any(reading["reasons"] & 0x1 == 0 for reading in readings)
    assert MODEL.idle_w * 0.5 < last["energy_j"] - first["energy_j"] <= MODEL.limit_w * elapsed_s
    assert 0 < last["throttle_ns"]["sw_power_cap"] - first["throttle_ns"]["sw_power_cap"] <= 1e9 * elapsed_s


def test_metrics_count_the_bytes_that_steps_read(engine: Served) -> None:
    before = engine.metric("vllm:estimated_read_bytes_per_gpu_total")
    engine.complete(prompt=PROMPT, max_tokens=4, ignore_eos=True)

    read = engine.metric("vllm:estimated_read_bytes_per_gpu_total") - before
    kv_bytes = PROFILE.kv_formats["auto"].bytes_per_token
    assert read == pytest.approx(4 * PROFILE.weights.dense_bytes + (6 + 7 + 8) * kv_bytes)


def test_metrics_tell_when_the_process_started(engine: Served) -> None:
    assert 0 < time.time() - engine.metric("process_start_time_seconds") < 600


@pytest.mark.slow
def test_a_throttling_board_says_so_and_serves_slower() -> None:
    took_s = {}
    for faults in ((), ("--fault", "throttle=4")):
        with serving(*faults) as served:
            # The quickest of three: a busy machine makes an engine slower, and never faster.
            took_s[faults] = min(duration_s(served) for _ in range(3))
            told = sensor(served)

    assert took_s["--fault", "throttle=4"] > 1.5 * took_s[()]
    assert told["reasons"] & 0x40
    assert told["throttle_ns"]["hw_thermal_slowdown"] > 0


def test_a_board_draws_what_its_steps_say() -> None:
    report = board_after_a_second().report(1.0)["sensors"][0]

    assert 0.9 * MODEL.cap_w < report["watts"] <= MODEL.cap_w
    assert report["throttle_ns"]["sw_power_cap"] == pytest.approx(0.9e9, rel=0.1)


def test_a_throttling_board_draws_less() -> None:
    hot, cool = (board_after_a_second(*faults).report(1.0)["sensors"][0] for faults in (("throttle=2",), ()))

    assert hot["watts"] < 0.8 * cool["watts"]


def test_a_step_that_is_late_still_never_turns_the_counter_back() -> None:
    board = LiveBoard(PROFILE, "auto", Faults(), 0.0)
    read_j = []
    for k in range(40_000):
        board.note(k * 0.02 - 0.015, k * 0.02 - 0.005, BATCH)
        if k % 100 == 0:
            read_j.append(board.report(k * 0.02)["sensors"][0]["energy_j"])

    risen_j = [late - early for early, late in pairwise(read_j)]
    assert min(risen_j) >= MODEL.idle_w * 2.0
    assert max(risen_j) <= MODEL.limit_w * 2.0
    assert max(risen_j) == pytest.approx(min(risen_j))


def test_a_frozen_counter_and_a_zero_sensor_stay_as_they_are() -> None:
    frozen = board_after_a_second("power-counter-frozen")
    assert frozen.report(0.5)["sensors"][0]["energy_j"] == frozen.report(2.0)["sensors"][0]["energy_j"]
    assert frozen.report(1.0)["sensors"][0]["watts"] > MODEL.idle_w

    dead = board_after_a_second("power-zero")
    assert dead.report(1.0)["sensors"][0]["watts"] == 0
    assert dead.report(2.0)["sensors"][0]["energy_j"] > dead.report(1.0)["sensors"][0]["energy_j"]


@pytest.mark.parametrize("text", ["throttle", "throttle=0.5", "throttle=nan", "throttle=inf"])
def test_a_throttle_that_is_no_factor_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write throttle=FACTOR"):
        parse_faults([text])


@pytest.mark.parametrize("text", ["power-zero=1", "power-counter-frozen=yes"])
def test_faults_without_a_value_take_none(text: str) -> None:
    with pytest.raises(UsageError, match="alone"):
        parse_faults([text])

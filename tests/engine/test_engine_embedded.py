from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_workshop import Workshop, open_workshop, wait_for

import pytest_tokenwatt
from pytest_tokenwatt.engine.metrics import growth
from pytest_tokenwatt.engine.start import RunningEngine
from pytest_tokenwatt.errors import EngineError

SIMULATE = ["{python}", "-m", "pytest_tokenwatt", "simulate", "--port", "{port}"]


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    with open_workshop(tmp_path) as made:
        made.environ["PYTHONPATH"] = str(Path(pytest_tokenwatt.__file__).parents[1])
        yield made


def start(workshop: Workshop, *options: str) -> RunningEngine:
    return workshop.start(command=[*SIMULATE, *options])


def test_the_embedded_engine_keeps_the_whole_contract_and_says_that_it_simulates(workshop: Workshop) -> None:
    engine = start(workshop)
    assert engine.identity.simulated
    assert engine.identity.start_args.keys() == {"port"}
    told = engine.check_contract()
    assert {outcome.name: outcome.state for outcome in told.probes if outcome.state != "pass"} == {}
    assert engine.target(workshop.configuration(command=SIMULATE).workload).vocab_size > 200
    before = engine.read_metrics()
    engine.call(engine.client.complete([1, 2, 3], max_tokens=5, ignore_eos=True))
    assert growth(before, engine.read_metrics())["vllm:generation_tokens_total"] == 5


def test_configurations_differ_in_their_fingerprint_and_starts_do_not(workshop: Workshop) -> None:
    first, second = start(workshop), start(workshop)
    candidate = start(workshop, "--kv-cache-dtype", "fp8")
    assert first.fingerprint == second.fingerprint
    assert candidate.fingerprint not in (None, first.fingerprint)


def test_a_crash_in_mid_window_is_noticed(workshop: Workshop) -> None:
    engine = start(workshop, "--fault", "crash-after=2")
    assert wait_for(lambda: engine.death() is not None)
    assert "engine baseline died with" in (engine.death() or "")


def test_another_model_and_a_failing_start(workshop: Workshop) -> None:
    with pytest.raises(EngineError, match="the spec asks for tokenwatt/embedded-tiny"):
        workshop.start(command=[*SIMULATE, "--fault", "wrong-model"], model="tokenwatt/embedded-tiny")
    with pytest.raises(EngineError, match=r"died with exit code 3.*\(log: "):
        start(workshop, "--fault", "exit=3")

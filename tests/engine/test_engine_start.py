from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from engine_workshop import FAKE, Workshop, fake, open_workshop, wait_for

from pytest_tokenwatt.engine import ready
from pytest_tokenwatt.engine.listener import answers
from pytest_tokenwatt.engine.ports import claim_free_port
from pytest_tokenwatt.errors import EngineError


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    with open_workshop(tmp_path) as made:
        yield made


def failure(workshop: Workshop, **engine: Any) -> EngineError:
    with pytest.raises(EngineError) as caught:
        workshop.start(**engine)
    assert "\n" not in str(caught.value)
    assert workshop.leftovers == []
    return caught.value


def test_a_command_is_started_verified_and_stopped(workshop: Workshop) -> None:
    engine = workshop.start(command=fake("--version", "1.2", "--manners", "metrics"), version="1.2")
    assert engine.identity.model_ids == ("tiny",)
    assert (engine.identity.version, engine.identity.max_model_len) == ("1.2", 512)
    assert engine.identity.cache_config["cache_dtype"] == "auto"
    assert engine.death() is None
    assert engine.notes == ()
    assert engine.log == workshop.log
    assert len(workshop.leftovers) == 1
    assert engine.stop() == engine.stop()
    assert workshop.leftovers == []
    assert answers("127.0.0.1", int(engine.endpoint.split(":")[2].removesuffix("/v1"))) is False


def test_configurations_args_and_placeholders_reach_the_engine(workshop: Workshop) -> None:
    words = ["--say", "{config} {run_id} {run_dir} {model}", "--say", '{"a": 1} {} {{port}}']
    engine = workshop.start({"path": "org/tiny"}, command=fake(model="{model}"), args=words)
    text = workshop.log.read_text()
    assert f"baseline run7 {workshop.folder / 'run'} org/tiny" in text
    assert '{"a": 1} {} {port}' in text
    assert "{port}" in engine.launch["command"]
    assert engine.launch["args"] == words


def test_a_relative_model_path_is_made_absolute(workshop: Workshop) -> None:
    (workshop.folder / "weights").mkdir()
    engine = workshop.start({"path": "weights"}, command=fake(model="{model}"))
    assert engine.identity.model_ids == (str(workshop.folder / "weights"),)


def test_environment_is_inherited_extended_and_unset(workshop: Workshop) -> None:
    workshop.environ |= {"LD_LIBRARY_PATH": "/opt/lib", "DROPPED": "here"}
    names = ["LD_LIBRARY_PATH", "DROPPED", "ADDED"]
    says = [word for name in names for word in ("--say-env", name)]
    workshop.start(command=fake(*says), env={"ADDED": "at {port}", "DROPPED": None})
    text = workshop.log.read_text()
    assert "LD_LIBRARY_PATH=/opt/lib" in text
    assert "DROPPED=None" in text
    assert "ADDED=at 2" in text or "ADDED=at 3" in text


def test_a_program_beside_the_spec(workshop: Workshop) -> None:
    wrapper = workshop.folder / "bin" / "engine"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} --model tiny "$@"\n')
    error = failure(workshop, command=["bin/engine", "--port", "{port}"])
    assert f"{wrapper} is not executable; chmod +x" in str(error)
    wrapper.chmod(0o755)
    assert workshop.start(command=["bin/engine", "--port", "{port}"]).identity.model_ids == ("tiny",)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["no-such-engine", "--port", "{port}"], "the engine's program no-such-engine is not on PATH; install it"),
        (["./gone", "--port", "{port}"], "gone does not exist; check the path"),
        ([sys.executable, "-c", "no port"], 'does not say where to listen; add --port, "{port}"'),
        ([sys.executable, "{model}", "--port", "{port}"], "{model} has no value here"),
    ],
)
def test_commands_that_cannot_be_run(workshop: Workshop, command: list[str], said: str) -> None:
    error = failure(workshop, command=command)
    assert said in str(error)
    assert not workshop.log.exists()


def test_an_engine_that_exits_at_once(workshop: Workshop) -> None:
    lines = ["Traceback …", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20 GiB", "see above"]
    said = [word for line in lines for word in ("--say", line)]
    started = time.monotonic()
    error = failure(workshop, command=fake(*said, "--exit-after-s", "0", "--exit-code", "3", "--load-s", "60"))
    assert time.monotonic() - started < 30
    assert error.reason == "engine_start_failed"
    assert "engine baseline died with exit code 3: torch.OutOfMemoryError" in str(error)
    assert "nvidia-smi" in str(error)
    assert f"(log: {workshop.log})" in str(error)
    assert error.tail[-3:] == tuple(lines)


def test_a_command_that_ends_well_without_serving(workshop: Workshop) -> None:
    error = failure(workshop, command=[sys.executable, "-c", "pass", "--port", "{port}"])
    assert "ended with exit code 0 (if its command starts a server in the background, use engine.up)" in str(error)


@pytest.mark.slow
def test_an_engine_that_is_never_ready(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready, "PROGRESS_EVERY_S", 0.2)
    error = failure(workshop, command=fake("--say", "loading shards", "--load-s", "60"), ready_timeout_s=3)
    assert "baseline is not ready after" in str(error)
    assert "raise engine.ready_timeout_s" in str(error)
    assert any("starting baseline … " in line and "last log line: loading shards" in line for line in workshop.news)


@pytest.mark.slow
def test_an_engine_that_goes_on_loading(workshop: Workshop) -> None:
    assert "answered 503: still loading" in str(
        failure(workshop, command=fake("--manners", "loading"), ready_timeout_s=4)
    )
    assert "/health answered 503" in str(failure(workshop, command=fake("--manners", "unhealthy"), ready_timeout_s=4))


def test_another_model_is_served(workshop: Workshop) -> None:
    error = failure(workshop, command=fake(), model="large")
    assert error.reason == "wrong_model"
    assert "serves tiny, the spec asks for large; set engine.model: tiny" in str(error)
    assert f"(log: {workshop.log})" in str(error)
    error = failure(workshop, command=fake("--model", "other"))
    assert "serves tiny, other, so which one is meant is unclear; name the model in engine.model" in str(error)
    assert "serves no model" in str(failure(workshop, command=[*fake()[:-2]]))


def test_one_of_several_models_is_picked(workshop: Workshop) -> None:
    configuration = workshop.configuration(command=fake("--model", "other"), model="other")
    engine = workshop.start(command=fake("--model", "other"), model="other")
    assert engine.target(configuration.workload).model == "other"
    assert engine.identity.model_ids == ("tiny", "other")


def test_another_version_is_served(workshop: Workshop) -> None:
    error = failure(workshop, command=fake("--version", "0.31.0"), version="0.32.0")
    assert error.reason == "wrong_version"
    assert "is version 0.31.0, the spec asks for 0.32.0" in str(error)
    assert "does not tell its version" in str(failure(workshop, command=fake(), version="0.32.0"))
    assert workshop.start(command=fake("--version", "0.32.0+cpu"), version="v0.32.0").identity.version == "0.32.0+cpu"


class Impostor(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        payload = json.dumps({"data": [{"id": "tiny"}]}).encode()
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)


@contextmanager
def impostor(port: int) -> Iterator[None]:
    with HTTPServer(("127.0.0.1", port), Impostor) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def test_a_port_that_is_taken_before_the_start(workshop: Workshop) -> None:
    claim = claim_free_port()
    claim.release()
    with impostor(claim.port):
        error = failure(workshop, command=[sys.executable, FAKE, "--port", str(claim.port), "--model", "tiny"])
    assert error.reason == "endpoint_in_use"
    assert "something answers at" in str(error)


def test_a_port_that_is_stolen_during_the_start(workshop: Workshop) -> None:
    claim = claim_free_port()
    claim.release()
    ended = threading.Event()

    def steal() -> None:
        wait_for(workshop.log.exists)
        with impostor(claim.port):
            ended.wait(20)

    thief = threading.Thread(target=steal)
    thief.start()
    command = [sys.executable, FAKE, "--port", str(claim.port), "--model", "tiny", "--load-s", "60"]
    try:
        error = failure(workshop, command=command)
    finally:
        ended.set()
        thief.join(10)
    assert error.reason == "foreign_listener"
    assert f"port {claim.port} is answered by a process that engine baseline did not start" in str(error)


def test_two_runs_take_different_ports(workshop: Workshop) -> None:
    first = workshop.start(command=fake())
    second = workshop.start(command=fake())
    assert first.endpoint != second.endpoint


def test_output_is_never_a_pipe_that_fills_up(workshop: Workshop) -> None:
    engine = workshop.start(command=fake("--flood-mib", "8", "--say", "after"))
    assert workshop.log.stat().st_size > 8 << 20
    assert engine.death() is None


def test_a_stubborn_tree_is_gone_after_the_stop(workshop: Workshop) -> None:
    engine = workshop.start(command=fake("--stubborn-child", "--ignore-sigterm"), stop_timeout_s=1)
    assert wait_for(lambda: len(workshop.leftovers) == 2)
    engine.stop()
    assert workshop.leftovers == []


def test_a_failed_start_leaves_no_grandchild(workshop: Workshop) -> None:
    failure(
        workshop,
        command=fake("--stubborn-child", "--exit-after-s", "1", "--exit-code", "1", "--load-s", "60"),
        stop_timeout_s=1,
    )

"""Every fault that the embedded engine can be told to have."""

from __future__ import annotations

import http.client
import json
import time

import pytest
from served import Served, launch, serving

BODY = {"prompt": [10, 11, 12], "max_tokens": 8, "ignore_eos": True}


def stream(served: Served) -> tuple[int, str]:
    return served.post("/v1/completions", **BODY, stream=True)


def test_slow_start_answers_nothing_for_a_while() -> None:
    began_s = time.monotonic()
    with serving("--fault", "slow-start=1.0") as served:
        assert time.monotonic() - began_s >= 1.0
        assert served.get("/health")[0] == 200


def test_never_ready_never_listens_and_still_ends_on_sigterm() -> None:
    served = launch("--fault", "never-ready")
    assert served.process.stdout is not None
    assert served.process.stdout.readline()  # it has begun, and listens to signals

    with pytest.raises(ConnectionRefusedError):
        served.get("/health")
    assert served.stop()[0] == 0


def test_exit_ends_the_start_with_its_code_and_a_line_in_the_log() -> None:
    served = launch("--fault", "exit=3")
    log, _ = served.process.communicate(timeout=20)

    assert served.process.returncode == 3
    assert "Engine core initialization failed" in log


def test_crash_after_breaks_open_streams() -> None:
    with serving("--fault", "crash-after=1") as served:
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            served.post("/v1/completions", **{**BODY, "max_tokens": 4000}, stream=True)
        assert served.process.wait(10) == 1


def test_stall_leaves_requests_without_tokens() -> None:
    with serving("--fault", "stall=0") as served:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=0.5)
        connection.request("POST", "/v1/completions", json.dumps({**BODY, "stream": True}))
        with pytest.raises(TimeoutError):
            connection.getresponse().readline()
        connection.close()
        assert served.get("/health")[0] == 200


def test_wrong_model_serves_another_id() -> None:
    with serving("--fault", "wrong-model") as served:
        assert json.loads(served.get("/v1/models")[1])["data"][0]["id"] == "tokenwatt/some-other-model"
        assert served.post("/v1/completions", **BODY, model="tokenwatt/embedded-tiny")[0] == 404


def test_canned_gives_everybody_the_same_text() -> None:
    with serving("--fault", "canned") as served:
        texts = {served.complete(prompt=[token] * 4, max_tokens=6)["choices"][0]["text"] for token in (10, 20, 300)}

    assert len(texts) == 1


def test_refusals_and_broken_streams_hit_their_share_of_the_requests() -> None:
    with serving("--fault", "http-429=0.5", "--seed", "1") as served:
        statuses = [served.post("/v1/completions", **BODY)[0] for _ in range(20)]
    assert set(statuses) == {200, 429}

    with serving("--fault", "http-500") as served:
        status, text = served.post("/v1/completions", **BODY)
    assert (status, json.loads(text)["error"]["code"]) == (500, 500)


def test_stream_error_puts_an_error_object_into_a_stream_of_status_200() -> None:
    with serving("--fault", "stream-error") as served:
        status, text = stream(served)

    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert (status, events[-1]) == (200, "[DONE]")
    assert json.loads(events[-2])["error"]["code"] == 500
    assert json.loads(events[0])["choices"]


def test_cut_stream_closes_the_connection_before_the_end() -> None:
    with serving("--fault", "cut-stream") as served:
        with pytest.raises(http.client.IncompleteRead) as cut:
            stream(served)
        assert b"data:" in cut.value.partial
        assert served.get("/health")[0] == 200

"""The embedded engine over HTTP: vLLM's API, formats, errors, metrics and log."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator

import pytest
from served import Served, launch, serving

from pytest_tokenwatt.sim.tokenizer import Tokenizer

PROMPT = [10, 11, 12, 300, 400]


@pytest.fixture(scope="module")
def engine() -> Iterator[Served]:
    with serving() as served:
        yield served


def test_it_says_that_it_is_simulated(engine: Served) -> None:
    card = json.loads(engine.get("/v1/models")[1])["data"][0]

    assert (card["id"], card["owned_by"]) == ("tokenwatt/embedded-tiny", "tokenwatt-simulated")
    assert (card["max_model_len"], card["root"]) == (4096, "tokenwatt/embedded-tiny")
    assert "simulated" in json.loads(engine.get("/version")[1])["version"]
    assert engine.get("/health") == (200, "")


def test_a_stream_carries_ids_and_running_usage_and_ends_with_the_total(engine: Served) -> None:
    events = engine.events(
        "/v1/completions",
        prompt=PROMPT,
        max_tokens=4,
        temperature=0,
        ignore_eos=True,
        return_token_ids=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
    )

    chunks, last = events[:-1], events[-1]
    assert chunks[0]["choices"][0]["prompt_token_ids"] == PROMPT
    assert [chunk["choices"][0]["prompt_token_ids"] for chunk in chunks[1:]] == [None] * (len(chunks) - 1)
    counted = [len(chunk["choices"][0]["token_ids"]) for chunk in chunks]
    assert sum(counted) == 4
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [
        sum(counted[: k + 1]) for k in range(len(counted))
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 5, "total_tokens": 9, "completion_tokens": 4}
    assert last["system_fingerprint"].startswith("tokenwatt-")


def test_a_chat_stream_opens_with_a_role_that_is_no_token(engine: Served) -> None:
    events = engine.events(
        "/v1/chat/completions",
        messages=[{"role": "user", "content": "say the word"}],
        max_tokens=3,
        temperature=0,
        ignore_eos=True,
        return_token_ids=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
    )

    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert events[0]["usage"]["completion_tokens"] == 0
    assert events[0]["prompt_token_ids"]
    assert "token_ids" not in events[0]["choices"][0]
    assert events[-1]["usage"]["completion_tokens"] == 3


def test_streamed_and_whole_replies_say_the_same(engine: Served) -> None:
    whole = engine.complete(prompt=PROMPT, max_tokens=20, return_token_ids=True)
    events = engine.events("/v1/completions", prompt=PROMPT, max_tokens=20, temperature=0, return_token_ids=True)

    choice = whole["choices"][0]
    assert "".join(event["choices"][0]["text"] for event in events) == choice["text"]
    assert [token for event in events for token in event["choices"][0]["token_ids"]] == choice["token_ids"]
    assert whole["usage"]["completion_tokens"] == len(choice["token_ids"])
    assert "usage" not in events[0]


def test_text_and_ids_are_the_same_prompt(engine: Served) -> None:
    ids = json.loads(engine.post("/tokenize", prompt="find the water")[1])

    assert (ids["count"], ids["max_model_len"]) == (len(ids["tokens"]), 4096)
    assert json.loads(engine.post("/detokenize", tokens=ids["tokens"])[1]) == {"prompt": "find the water"}
    by_text = engine.complete(prompt="find the water", max_tokens=8)["choices"][0]["text"]
    assert by_text == engine.complete(prompt=ids["tokens"], max_tokens=8)["choices"][0]["text"]


def test_a_stop_string_ends_the_text_before_it(engine: Served) -> None:
    free = engine.complete(prompt=PROMPT, max_tokens=12, ignore_eos=True)["choices"][0]["text"]
    stop = free[8:13]

    choice = engine.complete(prompt=PROMPT, max_tokens=12, ignore_eos=True, stop=[stop])["choices"][0]
    events = engine.events("/v1/completions", prompt=PROMPT, max_tokens=12, temperature=0, ignore_eos=True, stop=stop)

    assert choice["text"] == free[: free.index(stop)]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
    assert "".join(event["choices"][0]["text"] for event in events) == choice["text"]


def test_the_end_of_text_ends_generation_unless_it_is_ignored(engine: Served) -> None:
    natural = engine.complete(prompt=PROMPT, max_tokens=2000, return_token_ids=True)["choices"][0]
    forced = engine.complete(prompt=PROMPT, max_tokens=len(natural["token_ids"]) + 5, ignore_eos=True)

    assert natural["finish_reason"] == "stop"
    assert natural["token_ids"][-1] == 0
    assert forced["choices"][0]["finish_reason"] == "length"


def test_sampling_is_repeatable_by_seed(engine: Served) -> None:
    def draw(seed: int) -> str:
        text: str = engine.complete(prompt=PROMPT, max_tokens=12, temperature=1.0, seed=seed)["choices"][0]["text"]
        return text

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_logprobs_of_output_and_prompt(engine: Served) -> None:
    choice = engine.complete(
        prompt=PROMPT, max_tokens=3, ignore_eos=True, logprobs=2, prompt_logprobs=3, return_tokens_as_token_ids=True
    )["choices"][0]

    logprobs, prompt = choice["logprobs"], choice["prompt_logprobs"]
    assert [name.startswith("token_id:") for name in logprobs["tokens"]] == [True] * 3
    assert all(len(top) == 2 for top in logprobs["top_logprobs"])
    assert all(
        max(top.values()) == value
        for top, value in zip(logprobs["top_logprobs"], logprobs["token_logprobs"], strict=True)
    )
    assert prompt[0] is None
    assert [str(token) in entry for token, entry in zip(PROMPT[1:], prompt[1:], strict=True)] == [True] * 4
    assert all(len(entry) in (3, 4) for entry in prompt[1:])
    assert {entry["rank"] for entry in prompt[1].values()} >= {1, 2, 3}


def test_output_ends_at_the_context_length(engine: Served) -> None:
    reply = engine.complete(prompt=[7] * 4090, max_tokens=50, ignore_eos=True)

    assert reply["usage"] == {
        "prompt_tokens": 4090,
        "total_tokens": 4096,
        "completion_tokens": 6,
        "prompt_tokens_details": None,
    }
    assert reply["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("body", "status", "kind", "words"),
    [
        ({"prompt": [7] * 5000}, 400, "BadRequestError", "maximum context length is 4096 tokens"),
        ({"prompt": [512]}, 400, "BadRequestError", "out of vocabulary"),
        ({"prompt": []}, 400, "BadRequestError", "at least one prompt"),
        ({"prompt": [7], "max_tokens": 0}, 400, "BadRequestError", "max_tokens must be at least 1"),
        ({"prompt": [7], "model": "nope"}, 404, "NotFoundError", "does not exist"),
        ({"prompt": [7], "prompt_logprobs": 50}, 400, "BadRequestError", "greater than max allowed: 20"),
        ({"prompt": [7], "prompt_logprobs": 2, "stream": True}, 400, "BadRequestError", "not available"),
        ({"prompt": [7], "top_p": 0.5}, 400, "BadRequestError", "temperature and seed only"),
        ([1, 2], 400, "Bad Request", "must be a JSON object"),
    ],
)
def test_bad_requests_get_vllms_errors(engine: Served, body: object, status: int, kind: str, words: str) -> None:
    answered, text = engine.request("POST", "/v1/completions", body)
    error = json.loads(text)["error"]

    assert (answered, error["type"], error["code"]) == (status, kind, status)
    assert words in error["message"]


def test_unknown_paths_and_methods(engine: Served) -> None:
    assert engine.get("/nope") == (404, '{"detail":"Not Found"}')
    assert engine.get("/v1/completions") == (405, '{"detail":"Method Not Allowed"}')


def test_a_client_that_disconnects_frees_its_place(engine: Served) -> None:
    before = engine.metric(
        'vllm:request_success_total{engine="0",model_name="tokenwatt/embedded-tiny",finished_reason="abort"}'
    )
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=10)
    body = json.dumps({"prompt": PROMPT, "max_tokens": 4000, "ignore_eos": True, "stream": True})
    connection.request("POST", "/v1/completions", body)
    response = connection.getresponse()
    response.readline()
    assert engine.metric("vllm:num_requests_running") == 1
    response.close()
    connection.close()

    deadline_s = time.monotonic() + 30
    while engine.metric("vllm:num_requests_running") and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert engine.metric("vllm:num_requests_running") == 0
    assert engine.metric("vllm:kv_cache_usage_perc") == 0
    after = engine.metric(
        'vllm:request_success_total{engine="0",model_name="tokenwatt/embedded-tiny",finished_reason="abort"}'
    )
    assert after == before + 1


def test_metrics_count_what_was_done(engine: Served) -> None:
    names = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:iteration_tokens_total_count")
    before = [engine.metric(name) for name in names]

    engine.complete(prompt=PROMPT, max_tokens=7, ignore_eos=True)

    assert [engine.metric(name) - old for name, old in zip(names, before, strict=True)] == [7, 5, 7]
    assert 'cache_dtype="auto"' in engine.get("/metrics")[1]


def test_a_smaller_kv_cache_shows_in_log_metrics_and_fingerprint(engine: Served) -> None:
    with serving("--kv-cache-dtype", "fp8", "--max-model-len", "2048", "--max-num-seqs", "4") as other:
        metrics = other.get("/metrics")[1]
        prints = [each.complete(prompt=[7], max_tokens=1)["system_fingerprint"] for each in (engine, other)]
        code, log = other.stop()

    assert 'cache_dtype="fp8"' in metrics
    assert 'kv_cache_size_tokens="65536"' in metrics
    assert prints[0] != prints[1]
    assert "GPU KV cache size: 65,536 tokens, Maximum concurrency for 2,048 tokens per request: 32.00x" in log
    assert "SIMULATED" in log
    assert code == 0


def test_sigterm_ends_it_cleanly_with_a_stream_under_way() -> None:
    with serving() as served:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
        body = json.dumps({"prompt": PROMPT, "max_tokens": 4000, "ignore_eos": True, "stream": True})
        connection.request("POST", "/v1/completions", body)
        connection.getresponse().readline()
        code, log = served.stop()
        connection.close()

    assert code == 0
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--fault", "explode"], "unknown fault 'explode'"),
        (["--fault", "crash-after"], "write crash-after=SECONDS"),
        (["--fault", "http-429=7"], "a share from 0 to 1"),
        (["--slowdown", "0"], "--slowdown"),
        (["--profile", "h100-qwen3-30b-a3b-fp8", "--max-model-len", "9000000"], "lower it"),
        (["--speed", "9"], "unrecognized arguments"),
    ],
)
def test_wrong_options_are_usage_errors_in_one_line(options: list[str], words: str) -> None:
    served = launch(*options)
    output, _ = served.process.communicate(timeout=20)

    assert served.process.returncode == 4
    assert words in output
    assert output.count("\n") == 1


def test_a_taken_port_is_said_in_the_log() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        served = launch("--port", str(taken.getsockname()[1]))
        output, _ = served.process.communicate(timeout=20)

    assert served.process.returncode == 1
    assert "cannot listen on 127.0.0.1" in output
    assert "Traceback" not in output


def test_many_requests_at_once_are_batched(engine: Served) -> None:
    tokenizer = Tokenizer()
    connections = []
    steps = engine.metric("vllm:iteration_tokens_total_count")
    for number in range(16):
        connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=20)
        body = json.dumps({"prompt": tokenizer.encode(f" the {number}"), "max_tokens": 30, "ignore_eos": True})
        connection.request("POST", "/v1/completions", body)
        connections.append(connection)
    replies = [json.loads(connection.getresponse().read()) for connection in connections]
    for connection in connections:
        connection.close()

    assert [reply["usage"]["completion_tokens"] for reply in replies] == [30] * 16
    assert engine.metric("vllm:iteration_tokens_total_count") - steps < 16 * 30 / 4

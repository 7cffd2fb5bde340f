"""A cut KV cache over HTTP: usage and preemptions as a client sees them, and what outputs and audits need."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from served import Served, serving

from pytest_tokenwatt.sim.tokenizer import Tokenizer

CUT = ("--kv-cache-memory-bytes", str(64 * 2**20), "--max-model-len", "512")
PROMPT = [300, 301, 302, 303, 304]


@pytest.fixture(scope="module")
def engine() -> Iterator[Served]:
    with serving() as served:
        yield served


def crowd(served: Served, requests: int) -> tuple[list[int], float, float]:
    """Token counts of equal requests at once; the most that ran, and the highest usage of the cache, meanwhile."""
    with ThreadPoolExecutor(requests) as pool:
        futures = [
            pool.submit(served.complete, prompt=[300 + k] * 200, max_tokens=240, ignore_eos=True)
            for k in range(requests)
        ]
        running, usage = 0.0, 0.0
        while not all(future.done() for future in futures):
            running = max(running, served.metric("vllm:num_requests_running{"))
            usage = max(usage, served.metric("vllm:kv_cache_usage_perc{"))
            time.sleep(0.02)
        return [future.result()["usage"]["completion_tokens"] for future in futures], running, usage


@pytest.mark.slow
def test_a_full_cache_preempts_and_every_request_still_gets_its_tokens() -> None:
    with serving(*CUT) as served:
        counts, _, usage = crowd(served, 4)

        assert counts == [240] * 4
        assert served.metric("vllm:num_preemptions_total{") > 0
        assert 0.9 < usage <= 1.0
        assert served.metric("vllm:kv_cache_usage_perc{") == 0.0


@pytest.mark.slow
def test_with_fp8_twice_as_many_fit() -> None:
    with serving(*CUT, "--kv-cache-dtype", "fp8") as served:
        counts, running, usage = crowd(served, 4)

        assert (counts, running) == ([240] * 4, 4)
        assert served.metric("vllm:num_preemptions_total{") == 0
        # At the peak all four hold 439 or 440 tokens, in blocks of 16, of the 2,048.
        assert 0.7 < usage <= 4 * 28 / 128


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_stream_echoes_the_prompts_ids_once_and_in_front(engine: Served, path: str) -> None:
    chat = path.endswith("chat/completions")
    prompt = {"messages": [{"role": "user", "content": "say"}]} if chat else {"prompt": PROMPT}

    events = engine.events(path, **prompt, max_tokens=4, ignore_eos=True, return_token_ids=True, temperature=0)

    places = [event if chat else event["choices"][0] for event in events]
    expected = Tokenizer().encode_chat([{"role": "user", "content": "say"}]) if chat else PROMPT
    assert [place.get("prompt_token_ids") for place in places] == [expected] + [None] * (len(events) - 1)
    assert sum(len(event["choices"][0].get("token_ids") or ()) for event in events) == 4


def test_what_was_served_can_be_scored_as_it_was_decoded(engine: Served) -> None:
    choice = engine.complete(prompt=PROMPT, max_tokens=12, ignore_eos=True, return_token_ids=True, logprobs=1)
    served = choice["choices"][0]

    scored = engine.complete(prompt=[*PROMPT, *served["token_ids"]], max_tokens=1, prompt_logprobs=1)
    entries = scored["choices"][0]["prompt_logprobs"][len(PROMPT) :]

    again = [entry[str(token)] for entry, token in zip(entries, served["token_ids"], strict=True)]
    assert [entry["logprob"] for entry in again] == pytest.approx(served["logprobs"]["token_logprobs"], abs=1e-9)
    assert {entry["rank"] for entry in again} == {1}


def test_a_chat_can_be_scored_too(engine: Served) -> None:
    status, text = engine.post(
        "/v1/chat/completions", messages=[{"role": "user", "content": "say"}], max_tokens=1, prompt_logprobs=2
    )

    reply = json.loads(text)
    assert status == 200
    assert len(reply["prompt_logprobs"]) == reply["usage"]["prompt_tokens"]


def output_ids(served: Served, prompt: list[int]) -> list[int]:
    reply = served.complete(prompt=prompt, max_tokens=8, ignore_eos=True, return_token_ids=True)
    ids: list[int] = reply["choices"][0]["token_ids"]
    return ids


def mean_logprob(served: Served, prompt: list[int], output: list[int]) -> float:
    scored = served.complete(prompt=[*prompt, *output], max_tokens=1, prompt_logprobs=0)
    entries = scored["choices"][0]["prompt_logprobs"][len(prompt) :]
    logprobs: list[float] = [entry[str(token)]["logprob"] for entry, token in zip(entries, output, strict=True)]
    return sum(logprobs) / len(logprobs)


def test_canned_ids_are_the_same_for_everybody_and_unlikely_to_the_model(engine: Served) -> None:
    with serving("--fault", "canned") as canned:
        said = [output_ids(canned, PROMPT), output_ids(canned, [400, 401])]
        events = canned.events("/v1/completions", prompt=[77], max_tokens=8, ignore_eos=True, return_token_ids=True)

    assert [token for event in events for token in event["choices"][0]["token_ids"]] == said[0] == said[1]
    assert Tokenizer().decode(said[0]).startswith(" the same ")
    assert mean_logprob(engine, PROMPT, said[0]) < mean_logprob(engine, PROMPT, output_ids(engine, PROMPT)) - 2

"""What accuracy clients meet at the embedded engine: answers, how they end, and replies that lack something."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from served import Served, serving

from pytest_tokenwatt.arithmetic import generate

SUITE = Path(__file__).parents[2] / "specs/suites/arithmetic-200.jsonl"
PROMPT = "Question: 369 + 485 = ?\nAnswer:"
SHOTS = "Question: 2 + 3 = ?\nAnswer: 5\n\n"
TURNS = [{"role": "user", "content": "369 + 485 = ?"}]
NEUTRAL = {
    "temperature": 0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "length_penalty": 1.0,
    "min_tokens": 0,
    "logit_bias": {},
    "bad_words": [],
    "n": 1,
    "seed": 7,
    "stop": ["\n\nQuestion:"],
}


@pytest.fixture(scope="module")
def engine() -> Iterator[Served]:
    with serving() as served:
        yield served


@pytest.fixture(scope="module")
def coarse() -> Iterator[Served]:
    with serving("--kv-cache-dtype", "int4") as served:
        yield served


def chat(served: Served, **body: Any) -> dict[str, Any]:
    status, text = served.post("/v1/chat/completions", **{"messages": TURNS, "temperature": 0, **body})
    assert status == 200, text
    reply: dict[str, Any] = json.loads(text)
    return reply


def percent_right(served: Served) -> float:
    items = [json.loads(line) for line in SUITE.read_text(encoding="utf-8").splitlines()]

    def right(item: Mapping[str, str]) -> bool:
        choice = served.complete(prompt=item["prompt"], max_tokens=16, **NEUTRAL)["choices"][0]
        assert choice["finish_reason"] == "stop"
        return bool(choice["text"].strip() == item["answer"])

    with ThreadPoolExecutor(32) as pool:
        return 100 * sum(pool.map(right, items)) / len(items)


def test_the_shipped_suite_is_the_generated_one() -> None:
    rows = [json.loads(line) for line in SUITE.read_text(encoding="utf-8").splitlines()]

    assert [(row["id"], row["prompt"], row["answer"]) for row in rows] == [
        (item.id, item.prompt, item.answer) for item in generate(200)
    ]


def test_a_served_suite_loses_with_the_kv_cache_what_the_model_does(engine: Served, coarse: Served) -> None:
    assert percent_right(engine) == 96.0
    assert percent_right(coarse) == 85.5


def test_an_answer_ends_by_itself_and_by_its_length(engine: Served) -> None:
    whole = engine.complete(prompt=PROMPT, max_tokens=16, return_token_ids=True)["choices"][0]
    short = engine.complete(prompt=PROMPT, max_tokens=3)["choices"][0]
    exact = engine.complete(prompt=PROMPT, max_tokens=5)["choices"][0]

    assert (whole["text"], whole["finish_reason"], whole["stop_reason"]) == (" 854", "stop", None)
    assert whole["token_ids"][-1] == 0
    assert (short["text"], short["finish_reason"]) == (" 85", "length")
    assert (exact["text"], exact["finish_reason"]) == (" 854", "stop")


def test_an_ignored_end_is_gone_on_from(engine: Served) -> None:
    choice = engine.complete(prompt=PROMPT, max_tokens=16, ignore_eos=True, return_token_ids=True)["choices"][0]

    assert choice["text"].startswith(" 854")
    assert (len(choice["token_ids"]), choice["token_ids"][4], choice["finish_reason"]) == (16, 0, "length")


@pytest.mark.parametrize("stop", ["5", ["x", "5"], ["854", "54"]])
def test_stop_strings_end_an_answer(engine: Served, stop: object) -> None:
    choice = engine.complete(prompt=PROMPT, max_tokens=16, stop=stop)["choices"][0]
    streamed = engine.events("/v1/completions", prompt=PROMPT, max_tokens=16, temperature=0, stop=stop)

    assert choice["text"] in (" 8", " ")
    assert (choice["finish_reason"], choice["stop_reason"] in stop) == ("stop", True)  # type: ignore[operator]
    assert "".join(event["choices"][0]["text"] for event in streamed) == choice["text"]
    assert streamed[-1]["choices"][0]["finish_reason"] == "stop"


def test_a_chat_answers_with_examples_and_template_arguments(engine: Served) -> None:
    shots = [{"role": "user", "content": "2 + 3 = ?"}, {"role": "assistant", "content": "5"}]
    asked = {"messages": [*shots, *TURNS], "max_tokens": 16, "chat_template_kwargs": {"enable_thinking": False}}

    choice = chat(engine, **NEUTRAL, **asked)["choices"][0]

    assert choice["message"]["content"] == "854"
    assert choice["finish_reason"] == "stop"
    assert engine.complete(prompt=SHOTS + PROMPT)["choices"][0]["text"] == " 854"


def test_a_temperature_draws_from_the_same_logits(coarse: Served) -> None:
    def draw(seed: int) -> str:
        text: str = coarse.complete(prompt=PROMPT, max_tokens=16, temperature=1.0, seed=seed)["choices"][0]["text"]
        return text

    with ThreadPoolExecutor(8) as pool:
        first, again = (list(pool.map(draw, range(40))) for _ in range(2))
    assert first == again
    assert len(set(first)) > 1
    assert all(len(text) == 4 for text in first)


@pytest.mark.parametrize("prompt", [PROMPT, SHOTS + PROMPT, [10, 11, 300, 400]])
def test_decoded_tokens_have_the_log_probabilities_of_a_scored_prompt(coarse: Served, prompt: object) -> None:
    decoded = coarse.complete(
        prompt=prompt,
        max_tokens=12,
        ignore_eos=True,
        logprobs=3,
        return_token_ids=True,
        return_tokens_as_token_ids=True,
    )["choices"][0]
    ids = [*decoded["prompt_token_ids"], *decoded["token_ids"]]
    scored = coarse.complete(prompt=ids, max_tokens=1, prompt_logprobs=3)["choices"][0]["prompt_logprobs"][-12:]

    assert_same(decoded["token_ids"], decoded["logprobs"]["token_logprobs"], scored)
    for top, entry in zip(decoded["logprobs"]["top_logprobs"], scored, strict=True):
        assert {name.removeprefix("token_id:") for name in top} == set(entry)


def test_a_chats_tokens_have_the_log_probabilities_of_a_scored_prompt(coarse: Served) -> None:
    reply = chat(coarse, max_tokens=8, ignore_eos=True, logprobs=True, top_logprobs=2, return_token_ids=True)
    choice = reply["choices"][0]
    ids = [*reply["prompt_token_ids"], *choice["token_ids"]]
    scored = coarse.complete(prompt=ids, max_tokens=1, prompt_logprobs=2)["choices"][0]["prompt_logprobs"][-8:]

    assert_same(choice["token_ids"], [entry["logprob"] for entry in choice["logprobs"]["content"]], scored)


def assert_same(ids: list[int], logprobs: list[float], scored: list[dict[str, dict[str, float]]]) -> None:
    assert logprobs == pytest.approx(
        [entry[str(token)]["logprob"] for token, entry in zip(ids, scored, strict=True)], abs=1e-9
    )


def test_an_empty_stop_string_is_refused(engine: Served) -> None:
    status, text = engine.post("/v1/completions", prompt=PROMPT, stop=[""])

    assert (status, "empty string" in text) == (400, True)
    assert engine.complete(prompt=PROMPT, stop=None)["choices"][0]["text"] == " 854"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("null-content", {"role": "assistant", "content": None}),
        ("reasoning-only", {"role": "assistant", "content": None, "reasoning_content": "854"}),
    ],
)
def test_a_chat_without_content(fault: str, message: object) -> None:
    with serving("--fault", fault) as served:
        assert chat(served)["choices"][0]["message"] == message
        deltas = [
            event["choices"][0]["delta"]
            for event in served.events("/v1/chat/completions", messages=TURNS, temperature=0, max_tokens=16)
        ]
        assert served.complete(prompt=PROMPT)["choices"][0]["text"] == " 854"

    assert {delta["content"] for delta in deltas[1:]} == {None}
    said = "".join(delta.get("reasoning_content", "") for delta in deltas)
    assert said == ("854" if fault == "reasoning-only" else "")


def test_no_reason_for_the_end() -> None:
    with serving("--fault", "no-finish-reason") as served:
        replies = [chat(served), served.complete(prompt=PROMPT)]
        last = served.events("/v1/completions", prompt=PROMPT, max_tokens=16)[-1]

    assert [reply["choices"][0]["finish_reason"] for reply in [*replies, last]] == [None] * 3


def test_such_replies_may_be_a_share_of_all() -> None:
    with serving("--fault", "null-content=0.5", "--seed", "1") as served:
        contents = {chat(served, max_tokens=1)["choices"][0]["message"]["content"] is None for _ in range(20)}

    assert contents == {True, False}


@pytest.mark.parametrize(("faults", "seconds"), [((), "1"), (("--fault", "retry-after=0"), "0")])
def test_a_refusal_says_when_to_come_again(faults: tuple[str, ...], seconds: str) -> None:
    with serving("--fault", "http-429", *faults) as served:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
        connection.request("POST", "/v1/completions", json.dumps({"prompt": PROMPT}))
        response = connection.getresponse()
        response.read()
        connection.close()

    assert (response.status, response.headers["Retry-After"]) == (429, seconds)

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_workshop import Workshop, fake, open_workshop

from pytest_tokenwatt.records import Contract, ProbeOutcome

pytestmark = pytest.mark.slow


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    with open_workshop(tmp_path) as made:
        yield made


def contract(workshop: Workshop, manners: str, **engine: Any) -> Contract:
    model = {"vocab_size": 256}
    return workshop.start(model, command=fake("--manners", manners, "--version", "3"), **engine).check_contract()


def probe(told: Contract, name: str) -> ProbeOutcome:
    return next(outcome for outcome in told.probes if outcome.name == name)


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_an_engine_that_can_do_everything(workshop: Workshop, api: str) -> None:
    told = contract(workshop, "metrics", api=api)
    assert told.passed
    assert {outcome.state for outcome in told.probes} == {"pass"}
    assert {outcome.cost for outcome in told.probes} == {""}
    required = {outcome.name for outcome in told.probes if outcome.required}
    assert required == {"model_served", "stream_usage"} | ({"prompt_ids"} if api == "completions" else set())


def test_a_plain_server_passes_with_what_it_costs(workshop: Workshop) -> None:
    told = contract(workshop, "plain,deaf", prompt="text")
    assert told.passed
    lacking = {outcome.name: outcome.state for outcome in told.probes if outcome.state != "pass"}
    assert lacking == {
        "continuous_usage": "missing",
        "token_ids": "missing",
        "stop_string": "wrong",
        "logprobs": "missing",
        "prompt_logprobs": "missing",
        "tokenize": "missing",
        "server_metrics": "missing",
        "cancellation": "missing",
    }
    assert all(outcome.cost for outcome in told.probes if outcome.state != "pass")


@pytest.mark.parametrize(
    ("manners", "said"),
    [
        ("no-usage,plain", "carried no usage although it was asked for"),
        ("cut", "broke off without [DONE]"),
        ("stream-error", "engine core is gone"),
        ("error500", "answered 500: the engine has a bad day"),
        ("strict", "the load's request is refused"),
    ],
)
def test_streams_that_cannot_be_measured(workshop: Workshop, manners: str, said: str) -> None:
    told = contract(workshop, manners)
    assert not told.passed
    assert probe(told, "stream_usage").state == "wrong"
    assert said in probe(told, "stream_usage").detail
    assert probe(told, "tokenize").detail == "not tried, since a required probe failed"


def test_a_field_that_is_refused_is_named(workshop: Workshop) -> None:
    told = contract(workshop, "strict", ignore_eos=False)
    detail = probe(told, "stream_usage").detail
    assert "the field return_token_ids is refused" in detail
    assert "set engine.extra_body: {return_token_ids: null}" in detail
    told = contract(workshop, "strict", ignore_eos=False, extra_body={"return_token_ids": None})
    assert probe(told, "stream_usage").state == "pass"


def test_a_server_that_refuses_token_ids(workshop: Workshop) -> None:
    told = contract(workshop, "no-ids")
    assert not told.passed
    told = contract(workshop, "no-ids", prompt="text")
    assert told.passed
    assert probe(told, "prompt_ids").state == "missing"
    assert "prompt must be a string" in probe(told, "prompt_ids").detail


def test_an_overloaded_server_has_not_refused_token_ids(workshop: Workshop) -> None:
    told = contract(workshop, "overloaded")
    assert not told.passed
    detail = probe(told, "prompt_ids").detail
    assert "no capacity" in detail
    assert "engine.prompt" not in detail


def test_a_server_that_adds_a_token_to_the_prompt(workshop: Workshop) -> None:
    told = contract(workshop, "bos")
    assert not told.passed
    assert probe(told, "prompt_ids").detail == "24 ids were sent and the server counted 25; set engine.prompt: text"


WRONGS = {
    "usage-at-end,no-template,more-ids,no-tokens,no-logprobs": {
        "continuous_usage": ("missing", "0 of 24 chunks carried a count"),
        "chat_stream": ("missing", "there is no chat template"),
        "token_ids": ("wrong", "9 ids for 8 output tokens"),
        "tokenize": ("wrong", "answers without tokens"),
        "logprobs": ("missing", "the reply carries no log-probabilities"),
        "prompt_logprobs": ("missing", "no log-probabilities of the prompt"),
    },
    "no-chat-usage,other-echo,deaf,few-logprobs": {
        "chat_stream": ("wrong", "carried no usage although it was asked for"),
        "token_ids": ("wrong", "24 prompt ids were sent, other ones (25) came back"),
        "stop_string": ("wrong", "ran past the stop string"),
        "logprobs": ("wrong", "3 log-probabilities for 4 output tokens"),
        "prompt_logprobs": ("wrong", "5 positions for a prompt of 24 ids"),
    },
    "one-stream,raw-scores": {
        "concurrency": ("wrong", "of two streams at once one failed: POST"),
        "logprobs": ("wrong", "7.5 is no log-probability"),
        "prompt_logprobs": ("wrong", "None is no log-probability"),
    },
    "eos,other-ids": {
        "ignore_eos": ("wrong", "24 tokens were asked for, 12 came"),
        "prompt_logprobs": ("wrong", "has no entry for its own id"),
    },
}


@pytest.mark.parametrize("manners", WRONGS)
def test_optional_probes_that_fail_say_what_it_costs(workshop: Workshop, manners: str) -> None:
    told = contract(workshop, f"metrics,{manners}")
    assert told.passed
    lacking = {outcome.name: outcome for outcome in told.probes if outcome.state != "pass"}
    assert lacking.keys() == WRONGS[manners].keys()
    for name, (state, detail) in WRONGS[manners].items():
        assert lacking[name].state == state
        assert detail in lacking[name].detail
        assert lacking[name].cost


def test_a_server_that_serves_one_request_after_the_other(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_tokenwatt.engine.paired_streams._LONG", (32,))
    told = contract(workshop, "metrics,one-slot")
    assert {outcome.name for outcome in told.probes if outcome.state != "pass"} == {"concurrency"}
    found = probe(told, "concurrency")
    assert (found.state, found.required) == ("wrong", False)
    assert "requests are served in turn" in found.detail
    assert "batching" in found.cost


def test_what_an_engine_does_not_offer_is_missing(workshop: Workshop) -> None:
    told = workshop.start({"vocab_size": 256}, command=fake()).check_contract()
    assert told.passed
    lacking = {outcome.name: outcome.state for outcome in told.probes if outcome.state != "pass"}
    assert lacking == dict.fromkeys(("tokenize", "server_metrics", "version", "cancellation"), "missing")


def test_dropped_requests_that_go_on_running(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_tokenwatt.engine.probes._CANCEL_WITHIN_S", 0.5)
    told = contract(workshop, "metrics,stubborn-work")
    assert told.passed
    assert probe(told, "cancellation").state == "wrong"
    assert "still ran after 0.5 s" in probe(told, "cancellation").detail


def test_a_dead_engine_fails_the_contract_in_bounded_time(workshop: Workshop) -> None:
    engine = workshop.start(command=fake())
    workshop.kill_all()
    told = engine.check_contract()
    assert not told.passed
    # A pooled connection dies with its server, a new one is refused: either may come first.
    assert re.search("Connection (refused|reset)|[Dd]isconnected", probe(told, "model_served").detail)


def test_the_vocabulary_is_asked_of_engines_that_refuse_unknown_ids(workshop: Workshop) -> None:
    configuration = workshop.configuration(command=fake())
    asked = workshop.start(command=fake("--owner", "vllm"))
    assert asked.target(configuration.workload).vocab_size == 300
    assert workshop.start(command=fake()).target(configuration.workload).vocab_size == 0


def test_the_target_holds_what_the_load_needs(workshop: Workshop) -> None:
    (workshop.folder / "weights").mkdir()
    (workshop.folder / "weights" / "config.json").write_text('{"vocab_size": 260, "eos_token_id": [2, 3]}')
    (workshop.folder / "weights" / "tokenizer_config.json").write_text('{"added_tokens_decoder": {"259": {}}}')
    engine = {"command": fake(model="w"), "extra_body": {"priority": 1}, "api": "chat", "ignore_eos": False}
    configuration = workshop.configuration({"path": "weights"}, **engine)
    workload = configuration.workload.model_copy(update={"content": "book.txt"})
    target = workshop.start({"path": "weights"}, **engine).target(workload)
    assert (target.model, target.api, target.ignore_eos, target.extra_body) == ("w", "chat", False, {"priority": 1})
    assert (target.vocab_size, target.special_ids) == (260, frozenset({2, 3, 259}))
    assert target.content_file == str(workshop.folder / "book.txt")

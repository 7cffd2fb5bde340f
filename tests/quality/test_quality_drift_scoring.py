"""Scoring through a client: order, limits that the server tells, its refusals, its death, and other tokenizers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from drift_server import VOCABULARY, Server, logprob, refusal

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.quality.drift.limits import Limits, ask_limits
from pytest_tokenwatt.quality.drift.scoring import Scores, score
from pytest_tokenwatt.records import Reply, drift

SEQUENCES = tuple(
    drift.Sequence(f"s{number}", tuple((number * 5 + at * at) % VOCABULARY for at in range(6 + number % 3)), 3)
    for number in range(24)
)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_tokenwatt.quality.insisting._PAUSE_S", 0.0)


def scored(server: Server, top_k: int = 4, **given: Any) -> Scores:
    return asyncio.run(score(server, SEQUENCES, top_k, **given))


def test_only_positions_behind_the_prompt_count_and_order_does_not() -> None:
    kept: dict[int, drift.TopK] = {}
    server, other = Server(), Server()
    plain = scored(server, in_flight=5)
    shuffled = scored(other, in_flight=2, order_seed=7, keep=kept.__setitem__)
    assert plain.tops == shuffled.tops
    assert kept == dict(enumerate(plain.tops))
    assert (server.busiest, other.busiest) == (5, 2)
    assert [each["prompt"] for each in server.sent] == [each.ids for each in SEQUENCES]
    assert [each["prompt"] for each in other.sent] != [each.ids for each in SEQUENCES]
    for sequence, top in zip(SEQUENCES, plain.tops, strict=True):
        expected = [logprob(a, b) for a, b in zip(sequence.ids[2:], sequence.ids[3:], strict=False)]
        assert list(top.chosen) == pytest.approx(expected, rel=1e-6)


def test_what_is_sent() -> None:
    server = Server()
    scored(server, top_k=20)
    sent = server.sent[0]
    told = {name: sent[name] for name in ("max_tokens", "temperature", "prompt_logprobs", "return_token_ids")}
    assert told == {"max_tokens": 1, "temperature": 0, "prompt_logprobs": 20, "return_token_ids": True}


def test_the_whole_vocabulary_is_as_wide_as_it_is() -> None:
    result = scored(Server(max_logprobs=-1, errors=[refusal(404)]), top_k=-1, in_flight=1)
    assert {top.k for top in result.tops} == {VOCABULARY}


def test_a_sequence_that_fails_is_nan_and_told() -> None:
    server = Server(errors=[refusal(500, "Out of range float values are not JSON compliant")] * 3)
    result = scored(server, in_flight=1)
    assert list(result.failed) == [0]
    assert all(map(math.isnan, result.tops[0].chosen))
    assert result.tops[0].positions == 3
    assert [reason.code for reason in result.invalid] == ["sequences_failed"]
    assert "1 of 24 sequences were not scored" in result.notes[0]
    assert not scored(Server(errors=[refusal(500), refusal(None)]), in_flight=1).failed


def test_an_engine_that_dies_from_it_is_named_with_the_smaller_setting() -> None:
    deaths = iter([None, None, "engine tuned died with exit code 137"])
    with pytest.raises(EngineError) as caught:
        scored(Server(errors=[refusal(500)], always=refusal(None)), 20, death=lambda: next(deaths, "engine tuned died"))
    assert caught.value.reason == "engine_died"
    assert "up to 8 tokens with prompt_logprobs 20, 4 at a time" in str(caught.value)
    assert "set drift.tokens (of texts: window) to 2; drift.top_k 10" in str(caught.value)


def test_an_engine_that_nobody_watches_is_not_asked_for_ever() -> None:
    server = Server(always=refusal(None, "cannot connect"))
    with pytest.raises(EngineError, match=r"it stopped to answer while it scored .*set drift\.tokens") as caught:
        scored(server, in_flight=1)
    assert caught.value.reason == "engine_unreachable"
    assert len(server.sent) == 60


def add_one(choice: dict[str, Any]) -> None:
    choice["prompt_token_ids"].insert(0, 11)


def drop_one(choice: dict[str, Any]) -> None:
    choice["prompt_token_ids"].pop()


def count_them(choice: dict[str, Any]) -> None:
    choice["prompt_token_ids"] = 6


def score_another(choice: dict[str, Any]) -> None:
    choice["prompt_logprobs"][4] = {"11": {"logprob": -1.0}}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (add_one, "6 token ids were sent and those that came back differ from position 0 on; let the server take ids"),
        (drop_one, "6 token ids were sent and 5 came back"),
        (count_them, "6 token ids were sent and no list of ids came back"),
        (score_another, "at position 4 are not of token 4, which stands there"),
    ],
)
def test_another_text_than_the_one_sent_is_refused(change: Callable[[dict[str, Any]], None], what: str) -> None:
    with pytest.raises(EngineError, match=what) as caught:
        scored(Server(change=change), in_flight=1)
    assert caught.value.reason == "wrong_echo"


def test_a_server_that_counts_other_tokens_is_refused() -> None:
    class Counting(Server):
        async def complete(self, prompt: str | Sequence[int], *, max_tokens: int = 16, **sampling: Any) -> Reply:
            reply = await super().complete(prompt, max_tokens=max_tokens, **sampling)
            return replace(reply, prompt_tokens=len(prompt) + 1)

    with pytest.raises(EngineError, match="6 token ids were sent and the server counts 7"):
        scored(Counting(change=lambda choice: choice.update(prompt_token_ids=None)), in_flight=1)


def test_a_server_that_is_silent_is_not_said_to_refuse() -> None:
    with pytest.raises(EngineError, match="cannot connect") as caught:
        limits(Server(always=refusal(None, "cannot connect")), 20)
    assert caught.value.status is None


def test_a_server_that_takes_the_field_and_scores_nothing_is_refused() -> None:
    with pytest.raises(EngineError, match="takes prompt_logprobs and tells none") as caught:
        scored(Server(change=lambda choice: choice.update(prompt_logprobs=None)))
    assert caught.value.reason == "no_prompt_logprobs"


def test_an_id_beyond_the_vocabulary_is_another_tokenizer() -> None:
    foreign = [drift.Sequence("s", (1, VOCABULARY + 3, 2, 2), 1)]
    with pytest.raises(EngineError, match=r"Token id 15 is out of vocabulary; compare models") as caught:
        asyncio.run(score(Server(), foreign, 4))
    assert caught.value.reason == "other_tokenizer"


def limits(server: Server, top_k: int, **given: Any) -> Limits:
    return asyncio.run(ask_limits(server, SEQUENCES[0].ids, top_k, **given))


def test_what_the_server_allows_is_used_and_noted() -> None:
    assert limits(Server(), 20) == Limits(20)
    less = limits(Server(max_logprobs=5), 10)
    assert less.top_k == 5
    assert less.notes == (
        "the server gives 5 log-probabilities, not drift.top_k 10; start it with --max-logprobs 10 for that",
    )


def test_the_whole_vocabulary_needs_the_servers_leave() -> None:
    assert limits(Server(max_logprobs=-1), -1) == Limits(-1)
    less = limits(Server(max_logprobs=8), -1)
    assert less.top_k == 8
    assert "not the whole vocabulary; start it with --max-logprobs -1" in less.notes[0]


def test_the_question_warms_up_both_kinds_of_log_probabilities() -> None:
    server = Server()
    limits(server, 20)
    assert (server.sent[0]["prompt_logprobs"], server.sent[0]["logprobs"]) == (20, 1)


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (Server(max_logprobs=1), "max_logprobs"),
        (Server(always=refusal(400, "unknown field")), "no_prompt_logprobs"),
        (Server(always=refusal(500)), "no_prompt_logprobs"),
    ],
)
def test_a_server_that_gives_none_is_told_of(server: Server, reason: str) -> None:
    with pytest.raises(EngineError) as caught:
        limits(server, 20)
    assert caught.value.reason == reason


def test_an_engine_that_dies_at_the_first_request_is_named() -> None:
    with pytest.raises(EngineError, match="for the first time with prompt_logprobs 20") as caught:
        limits(Server(always=refusal(None)), 20, death=lambda: "engine tuned died")
    assert caught.value.reason == "engine_died"

"""How long answers to the prompts of drift are, and how long an engine that hangs is waited for."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from drift_server import Server, refusal

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.quality.drift.answers import answer_lengths, answers_sha256
from pytest_tokenwatt.quality.drift.limits import ask_limits
from pytest_tokenwatt.quality.drift.scoring import score
from pytest_tokenwatt.records import Reply, drift
from pytest_tokenwatt.records.accuracy import SuiteItem
from pytest_tokenwatt.records.drift import AnswerLength

PROMPTS = [
    SuiteItem(id="text", answer="", prompt="abc"),
    SuiteItem(id="chat", answer="", messages=({"role": "user", "content": "def"},)),
]


class Stops(Server):
    """Ends by itself."""

    async def complete(self, *given: Any, **named: Any) -> Reply:
        return replace(await super().complete(*given, **named), finish_reason="stop")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_tokenwatt.quality.insisting._PAUSE_S", 0.0)


def lengths(server: Server, tokens: int = 9) -> tuple[AnswerLength, ...]:
    return asyncio.run(answer_lengths(server, PROMPTS, tokens))


def test_greedy_answers_with_their_natural_end_and_those_that_are_cut() -> None:
    server = Stops()
    assert lengths(server)[0] == AnswerLength("text", 5)
    assert all((sent["temperature"], sent["max_tokens"]) == (0, 9) for sent in server.sent)
    assert not any("ignore_eos" in sent for sent in server.sent)
    assert lengths(Server(), 3) == (AnswerLength("text", 3, cut=True), AnswerLength("chat", 3, cut=True))


def test_one_that_fails_has_no_length() -> None:
    assert lengths(Server(errors=[refusal(400)]))[0] == AnswerLength("text", None)


def test_the_hash_is_of_what_was_asked() -> None:
    known = answers_sha256(PROMPTS, 9)
    assert known == answers_sha256(list(PROMPTS), 9)
    assert len({known, answers_sha256(PROMPTS, 8), answers_sha256(PROMPTS[:1], 9), answers_sha256([], 9)}) == 4


def test_three_silences_in_a_row_are_a_hang_with_its_cause_and_the_smaller_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("insisting._PATIENCE_S", "drift.patience._LONG_S"):
        monkeypatch.setattr(f"pytest_tokenwatt.quality.{name}", -1.0)
    sequences = [drift.Sequence(f"s{number}", (1, 2, 3, 4, 5, 6), 2) for number in range(30)]
    server = Server(always=refusal(None, "no answer within 300 s"))
    with pytest.raises(EngineError, match=r"no answer within 300 s; it stopped to answer while it scored .*top_k 10"):
        asyncio.run(score(server, sequences, 20, in_flight=1))
    assert len(server.sent) == 3
    answers_between = Server(errors=[refusal(None), refusal(None)])
    assert len(asyncio.run(score(answers_between, sequences, 20, in_flight=1)).failed) == 2


def test_the_first_request_that_hangs_is_told_with_the_smaller_setting() -> None:
    with pytest.raises(EngineError, match=r"while it scored 3 tokens for the first time .*set drift\.tokens"):
        asyncio.run(ask_limits(Server(always=refusal(None, "no answer within 300 s")), (1, 2, 3), 20))

"""The decode path against the prefill of the same engine: a bug that only decoding shows is seen."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from drift_server import Server, refusal

from pytest_tokenwatt.quality.drift.decode_gap import DecodeGap, decode_gap
from pytest_tokenwatt.records import drift

SEQUENCES = [drift.Sequence(f"s{number}", (1, 2, number % 3, 4, 5), 3) for number in range(7)]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_tokenwatt.quality.insisting._PAUSE_S", 0.0)


def gap(server: Server, tokens: int = 5, **given: Any) -> DecodeGap:
    return asyncio.run(decode_gap(server, SEQUENCES, tokens, **given))


def test_paths_that_agree_have_no_gap() -> None:
    server = Server()
    found = gap(server)
    assert found.tokens == 3 * 5
    assert found.mean_nats == pytest.approx(0.0, abs=1e-6)
    generated = [each for each in server.sent if "logprobs" in each]
    assert [each["prompt"] for each in generated] == [(1, 2, 0), (1, 2, 1), (1, 2, 2)]
    assert all(each["return_token_ids"] and each["temperature"] == 1 for each in generated)
    assert len({each["seed"] for each in generated}) == 3


def test_an_error_of_decoding_alone_is_the_gap() -> None:
    found = gap(Server(decode_error=0.25))
    assert found.mean_nats == pytest.approx(0.25, rel=1e-5)
    assert found.max_nats == pytest.approx(0.25, rel=1e-5)


def test_the_largest_one_is_told_beside_the_mean() -> None:
    def spoil(choice: dict[str, Any]) -> None:
        if choice["logprobs"]:
            choice["logprobs"]["token_logprobs"][2] -= 1.5

    found = gap(Server(change=spoil))
    assert found.max_nats == pytest.approx(1.5, rel=1e-5)
    assert found.mean_nats == pytest.approx(0.3, rel=1e-5)


def test_a_token_that_only_one_path_thinks_possible_is_a_broken_path() -> None:
    def spoil(choice: dict[str, Any]) -> None:
        if choice["logprobs"]:
            choice["logprobs"]["token_logprobs"][0] = -9999.0

    found = gap(Server(change=spoil))
    assert (found.mean_nats, found.max_nats, found.tokens) == (None, None, 15)
    assert [reason.code for reason in found.invalid] == ["decode_path_broken"]
    assert "3 of 15" in found.invalid[0].text


@pytest.mark.parametrize(
    ("spoiled", "why"),
    [
        ({"token_ids": None}, "no ids"),
        ({"token_ids": []}, "no ids"),
        ({"logprobs": None}, "no log-probabilities"),
        ({"logprobs": {"token_logprobs": [-1.0]}}, "no log-probabilities"),
    ],
)
def test_a_server_that_does_not_tell_leaves_no_figure_and_why(spoiled: dict[str, Any], why: str) -> None:
    found = gap(Server(change=lambda choice: choice.update(spoiled)))
    assert (found.mean_nats, found.tokens) == (None, 0)
    assert [reason.code for reason in found.invalid] == ["no_decode_path"]
    assert why in found.invalid[0].text


def test_answers_that_fail_and_tokens_beyond_the_context_are_left_out() -> None:
    found = gap(Server(errors=[refusal(404, "gone")]), in_flight=1, max_model_len=7)
    assert found.tokens == 2 * 3
    assert "1 of 3 answers have no decode path to look at" in found.notes[0]
    assert gap(Server(), most=1).tokens == 5


@pytest.mark.parametrize("odd", [{"logprobs": [1, 2]}, {"token_ids": ["three", "one"]}])
def test_an_answer_of_another_shape_has_no_decode_path(odd: dict[str, Any]) -> None:
    found = gap(Server(change=lambda choice: choice.update(odd)))
    assert [reason.code for reason in found.invalid] == ["no_decode_path"]


def test_served_tokens_that_nobody_scored_are_told_so() -> None:
    def spoil(choice: dict[str, Any]) -> None:
        choice["prompt_logprobs"] = choice["prompt_logprobs"] and [None] * len(choice["prompt_logprobs"])

    assert [reason.text for reason in gap(Server(change=spoil)).invalid] == ["none of the served tokens was scored"]

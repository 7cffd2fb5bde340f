"""The decode path by trace replay: the sequences themselves, decoded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from drift_server import Server, logprob, refusal

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.quality.drift.decode_gap import DecodeGap
from pytest_tokenwatt.quality.drift.scoring import score
from pytest_tokenwatt.quality.drift.trace_replay import REPLAYED, replay_gap
from pytest_tokenwatt.records import drift

SEQUENCES = tuple(drift.Sequence(f"s{number}", (1, 2, number % 3, 4, 5, number), 3) for number in range(7))
TOPS = asyncio.run(score(Server(), SEQUENCES, 2)).tops


class Replays:
    def __init__(
        self, error_nats: float = 0.0, change: Callable[[dict[str, Any]], None] = lambda _choice: None
    ) -> None:
        self.error_nats, self.change = error_nats, change
        self.sent: list[Mapping[str, Any]] = []
        self.fails: EngineError | None = None

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        assert path == "/inference/v1/generate"
        self.sent.append(body)
        if self.fails is not None:
            raise self.fails
        trace = body["sampling_params"]["trace_decode_token_ids"]
        befores = (body["token_ids"][-1], *trace)
        told = [
            {"token_id": token, "logprob": logprob(before, token) - self.error_nats}
            for before, token in zip(befores, trace, strict=False)
        ]
        choice: dict[str, Any] = {"token_ids": list(trace), "logprobs": {"content": told}}
        self.change(choice)
        return {"choices": [choice]}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_tokenwatt.quality.insisting._PAUSE_S", 0.0)


def gap(server: Replays, **given: Any) -> DecodeGap | None:
    return asyncio.run(replay_gap(server.post, SEQUENCES, TOPS, **given))


@pytest.mark.parametrize("error_nats", [0.0, 0.25])
def test_an_error_of_decoding_is_the_gap(error_nats: float) -> None:
    server = Replays(error_nats)
    found = gap(server)
    assert found is not None
    assert (found.tokens, found.route, found.invalid) == (3 * 3, REPLAYED, ())
    assert found.mean_nats == pytest.approx(error_nats, abs=1e-6)
    assert len(server.sent) == 3  # prompts that differ
    sampling = server.sent[0]["sampling_params"]
    assert (server.sent[0]["token_ids"], sampling["max_tokens"], sampling["ignore_eos"]) == ([1, 2, 0], 3, True)
    fewer = gap(Replays(), most=1)
    assert fewer is not None
    assert fewer.tokens == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda choice: choice.update(token_ids=[9, 9, 9]),
        lambda choice: choice.update(logprobs=None),
        lambda choice: choice.update(logprobs={"content": [1, 2, 3]}),
    ],
)
def test_a_server_that_ignores_the_trace_does_not_replay(change: Callable[[dict[str, Any]], None]) -> None:
    server = Replays(change=change)
    assert gap(server) is None
    assert len(server.sent) == 1


def test_a_server_that_refuses_is_asked_once_and_one_that_dies_is_told() -> None:
    server = Replays()
    server.fails = refusal(400, "trace replay is not enabled")
    assert gap(server) is None
    assert len(server.sent) == 1
    server.fails = refusal(None, "cannot connect")
    with pytest.raises(EngineError, match=r"while it decoded given sequences of up to 3 tokens.*drift\.decode: false"):
        gap(server, death=lambda: "engine tuned died")

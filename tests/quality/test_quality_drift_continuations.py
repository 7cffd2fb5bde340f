"""Sampling the baseline's continuations: ids from the server, seeds, what is left out, and cutting to a limit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from drift_server import Server, refusal

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.quality.drift.continuations import Continuations, sample_sequences
from pytest_tokenwatt.quality.drift.digest import drift_sha256
from pytest_tokenwatt.quality.drift.fitting import aligned, fit, narrowed
from pytest_tokenwatt.quality.drift.scoring import score
from pytest_tokenwatt.records import drift
from pytest_tokenwatt.records.accuracy import SuiteItem
from pytest_tokenwatt.spec.quality import Drift

PROMPTS = [
    SuiteItem(id="a", answer="", prompt="one two"),
    SuiteItem(id="b", answer="", messages=({"role": "user", "content": "hello"},)),
    SuiteItem(id="c", answer="", prompt="three"),
]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_tokenwatt.quality.insisting._PAUSE_S", 0.0)


def sample(server: Server, sequences: int = 7, tokens: int = 4, **given: Any) -> Continuations:
    settings = Drift(sequences=sequences, tokens=tokens)
    return asyncio.run(sample_sequences(server, PROMPTS, settings, **given))


def test_prompts_are_repeated_with_seeds_of_their_own_and_ids_come_from_the_server() -> None:
    server = Server()
    found = sample(server, in_flight=3, seed=100)
    assert [each.name for each in found.sequences] == ["a/0", "b/1", "c/2", "a/3", "b/4", "c/5", "a/6"]
    assert all(each.ids[each.prompt :] == (3, 1, 4, 1) for each in found.sequences)
    assert found.sequences[1].prompt == len("<user>hello")
    assert sorted(each["seed"] for each in server.sent) == list(range(100, 107))
    assert server.busiest == 3
    assert not found.notes
    assert not found.invalid


def test_every_sampling_field_is_sent() -> None:
    server = Server()
    sample(server, sequences=1)
    assert server.sent[0] == {
        "prompt": "one two",
        "max_tokens": 4,
        "temperature": 1,
        "top_p": 1,
        "top_k": 0,
        "min_p": 0,
        "repetition_penalty": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "seed": 0,
        "return_token_ids": True,
    }


def test_continuations_of_fewer_than_two_tokens_and_failed_ones_are_left_out_and_noted() -> None:
    outputs = iter([[3, 1], [], [7], [3, 1, 4], [2, 2], [2, 2]])

    def shorten(choice: dict[str, Any]) -> None:
        choice["token_ids"] = next(outputs)

    found = sample(Server(change=shorten, errors=[refusal(404, "gone")]), in_flight=1)
    assert [each.name for each in found.sequences] == ["b/1", "b/4", "c/5", "a/6"]
    assert "2 of 7 continuations of fewer than 2 tokens are left out" in found.notes
    assert "1 of 7 continuations that failed are left out" in found.notes
    assert any("gone" in note for note in found.notes)


@pytest.mark.parametrize("told", [None, ["three", "one"], [1, 2**40], [1, -1]])
@pytest.mark.parametrize("missing", ["token_ids", "prompt_token_ids"])
def test_a_server_without_ids_leaves_nothing_and_a_reason(missing: str, told: list[Any] | None) -> None:
    found = sample(Server(change=lambda choice: choice.update({missing: told})))
    assert found.sequences == ()
    assert [reason.code for reason in found.invalid] == ["no_sequences"]
    assert "return_token_ids" in found.invalid[0].text


def test_passing_trouble_is_asked_again_and_silence_ends_it() -> None:
    assert len(sample(Server(errors=[refusal(500), refusal(None)]), in_flight=1).sequences) == 7
    with pytest.raises(EngineError, match=r"while it sampled continuations of 4 tokens.*set drift.tokens"):
        sample(Server(always=refusal(None)), sequences=40)


def test_a_dead_engine_is_named_with_the_setting() -> None:
    with pytest.raises(EngineError, match=r"exit code 137, while .*; set drift.tokens below 4") as caught:
        sample(Server(always=refusal(None)), death=lambda: "engine base died with exit code 137")
    assert caught.value.reason == "engine_died"


def test_sequences_are_cut_to_one_below_the_context_length() -> None:
    found = sample(Server(), sequences=3, max_model_len=12)
    assert [(each.name, len(each.ids)) for each in found.sequences] == [("a/0", 11), ("c/2", 9)]
    assert found.notes == ("max_model_len is 12: 0 sequences are cut to 11 tokens and 1 left out",)
    assert [len(each.ids) for each in sample(Server(), sequences=1, max_model_len=11).sequences] == [10]


def test_scores_follow_sequences_that_a_shorter_context_cuts() -> None:
    sequences = [drift.Sequence("long", tuple(range(10)), 4), drift.Sequence("short", (1, 2, 3, 4), 1)]
    tops = asyncio.run(score(Server(), sequences, 3)).tops
    fitted = fit(sequences, 9).sequences
    scored = asyncio.run(score(Server(max_model_len=9), fitted, 3))
    assert not scored.failed
    assert aligned(sequences, tops, fitted) == list(scored.tops)
    assert [top.positions for top in scored.tops] == [4, 3]
    assert fit(sequences, 5).sequences == (sequences[1],)
    assert fit(sequences, None).sequences == tuple(sequences)


def test_a_wider_scoring_narrowed_is_the_narrower_one() -> None:
    sequences = [drift.Sequence("s", (1, 2, 3, 4, 9, 8), 2)]
    wide, narrow = (asyncio.run(score(Server(), sequences, k)).tops[0] for k in (5, 3))
    assert narrowed(wide, 3) == narrow
    assert narrowed(narrow, 5) == narrow


def test_aligning_refuses_other_ids() -> None:
    sequence = drift.Sequence("s", (1, 2, 3, 4), 1)
    tops = asyncio.run(score(Server(), [sequence], 3)).tops
    with pytest.raises(ValueError, match="s is another sequence"):
        aligned([sequence], tops, [drift.Sequence("s", (1, 2, 4), 1)])


def test_the_hash_is_of_ids_and_prompts_in_order() -> None:
    one, two = drift.Sequence("x", (1, 2, 3), 1), drift.Sequence("x", (4, 5), 1)
    assert drift_sha256([one, two]) == drift_sha256([drift.Sequence("other", (1, 2, 3), 1), two])
    others = [[two, one], [one], [drift.Sequence("x", (1, 2, 3), 2), two], [drift.Sequence("x", (1, 2, 3, 4, 5), 1)]]
    assert len({drift_sha256([one, two]), *map(drift_sha256, others)}) == 5


def test_prompts_of_several_suites_may_share_their_ids() -> None:
    twice = [SuiteItem(id="1", prompt=text, answer="2") for text in ("one", "another")]
    found = asyncio.run(sample_sequences(Server(), twice, Drift(sequences=4, tokens=4)))
    assert len({each.name for each in found.sequences}) == 4

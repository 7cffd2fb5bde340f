"""The binary route: what is sent, what is read, and how a server that does not offer it is told from one that does."""

from __future__ import annotations

import asyncio
import base64
import io
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from drift_server import VOCABULARY, Server, logprob, refusal
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.metrics.divergence import divergence
from pytest_tokenwatt.quality.drift.fixed_ids import (
    NOT_OFFERED,
    PATH,
    Offer,
    ask_fixed_ids,
    read_fixed_ids,
    score_fixed_ids,
)
from pytest_tokenwatt.quality.drift.scoring import Scores, score
from pytest_tokenwatt.records import drift

K = 4
SEQUENCES = tuple(
    drift.Sequence(f"s{number}", tuple((number * 5 + at * at) % VOCABULARY for at in range(6 + number % 3)), 3)
    for number in range(9)
)
BASE = asyncio.run(score(Server(), SEQUENCES, K)).tops


def in_base64(scores: Any) -> str:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(scores, dtype=np.float32), allow_pickle=False)
    return base64.b64encode(buffer.getvalue()).decode()


@dataclass
class Binary:
    """Answers as ``/inference/v1/generate`` does; ``changes`` replace fields of every reply."""

    most: int = 20
    changes: Mapping[str, Any] = field(default_factory=dict)
    error: EngineError | None = None
    after: int = 0
    sent: list[Mapping[str, Any]] = field(default_factory=list)

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        self.sent.append(body)
        await asyncio.sleep(0)
        if self.error is not None and len(self.sent) > self.after:
            raise self.error
        assert path == PATH
        ids, asked = body["token_ids"], body["sampling_params"]
        rows, start = asked["prompt_logprob_token_ids"], asked["prompt_logprob_start"]
        if len(rows[0]) > self.most:
            raise refusal(
                400, f"Requested {len(rows[0])} token ids, which is greater than max allowed: {self.most}. Set"
            )
        assert len(rows) == len(ids) - 1 - start
        scores = [
            [-math.inf if token < 0 else logprob(ids[start + at], token) for token in row]
            for at, row in enumerate(rows)
        ]
        usage = {"prompt_tokens": len(ids)}
        return {"usage": usage, "prompt_token_ids": ids, "prompt_token_id_logprobs": in_base64(scores), **self.changes}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_tokenwatt.quality.insisting._PAUSE_S", 0.0)


def asked(server: Binary, base: drift.TopK = BASE[0]) -> Offer:
    return asyncio.run(ask_fixed_ids(server.post, SEQUENCES[0], base))


def scored(server: Binary, width: int = K, base: Sequence[drift.TopK] = BASE) -> Scores:
    return asyncio.run(score_fixed_ids(server.post, SEQUENCES, base, width))


def test_an_equal_engine_says_what_the_json_route_says() -> None:
    assert asked(Binary()) == Offer(K)
    found = scored(Binary())
    assert not found.failed
    for ours, theirs in zip(BASE, found.tops, strict=True):
        assert theirs.ids == ours.ids
        assert list(theirs.logprobs) == pytest.approx(list(ours.logprobs), rel=1e-6)
        assert list(theirs.chosen) == pytest.approx(list(ours.chosen), rel=1e-6)
    assert divergence(BASE, found.tops, drawn=SEQUENCES, fixed_ids=True).kl == pytest.approx(0.0, abs=1e-6)


def test_what_is_sent() -> None:
    server = Binary()
    scored(server)
    body, sequence = server.sent[0], SEQUENCES[0]
    assert (body["token_ids"], body["stream"], body["return_token_ids"]) == (list(sequence.ids), False, True)
    sampling = body["sampling_params"]
    assert (sampling["max_tokens"], sampling["temperature"], sampling["prompt_logprob_start"]) == (1, 0, 2)
    assert [row[-1] for row in sampling["prompt_logprob_token_ids"]] == list(sequence.ids[3:])
    assert [row[:K] for row in sampling["prompt_logprob_token_ids"]] == np.reshape(BASE[0].ids, (-1, K)).tolist()


@pytest.mark.parametrize("status", sorted(NOT_OFFERED))
def test_a_server_that_does_not_offer_it_is_asked_once_and_nothing_is_said(status: int) -> None:
    server = Binary(error=refusal(status, "Scale-out endpoints are disabled"))
    assert asked(server) == Offer(0)
    assert len(server.sent) == 1


def test_other_trouble_is_told_and_costs_the_route_only() -> None:
    (note,) = asked(Binary(error=refusal(500, "boom"))).notes
    assert "scored by JSON, since /inference/v1/generate cannot be used: POST answered 500: boom" in note
    offer = asked(Binary(changes={"prompt_token_id_logprobs": None}))
    assert offer.width == 0
    assert "are no array" in offer.notes[0]


def test_the_token_that_stands_there_takes_one_of_those_allowed() -> None:
    offer = asked(Binary(most=K))
    assert offer.width == K - 1
    assert "3 of the baseline's 4 likeliest tokens are scored; start the server with --max-logprobs 5" in offer.notes[0]
    found = scored(Binary(most=K), offer.width)
    assert {top.k for top in found.tops} == {K - 1}
    assert list(found.tops[0].ids) == np.reshape(BASE[0].ids, (-1, K))[:, : K - 1].ravel().tolist()
    assert asked(Binary(most=2)).width == 0  # nothing would be left to extrapolate from


def test_places_that_the_baseline_did_not_use_are_unused() -> None:
    ids, logprobs = array("i", BASE[0].ids), array("f", BASE[0].logprobs)
    ids[K - 1], logprobs[K - 1] = -1, math.nan
    base = drift.TopK(K, ids, logprobs, BASE[0].chosen)
    top = scored(Binary(), base=(base, *BASE[1:])).tops[0]
    assert (top.ids[K - 1], math.isnan(top.logprobs[K - 1])) == (-1, True)
    assert divergence([base], [top], drawn=None, fixed_ids=True).invalid_positions == 0


@pytest.mark.parametrize(
    ("changes", "reason", "what"),
    [
        ({"prompt_token_ids": [1, 2]}, "wrong_echo", "6 token ids were sent and those that came back differ"),
        ({"prompt_token_ids": None, "usage": {"prompt_tokens": 7}}, "wrong_echo", "the server counts 7"),
        ({"prompt_token_id_logprobs": in_base64([[0.0]])}, "no_prompt_logprobs", r"scores \(1, 1\) ids, not \(3, 5\)"),
        ({"prompt_token_id_logprobs": "@@"}, "no_prompt_logprobs", "are no array"),
    ],
)
def test_another_answer_than_the_one_asked_for_is_refused(changes: dict[str, Any], reason: str, what: str) -> None:
    with pytest.raises(EngineError, match=what) as caught:
        scored(Binary(changes=changes))
    assert caught.value.reason == reason


def test_sequences_that_fail_and_foreign_ids_are_as_on_the_other_route() -> None:
    found = scored(Binary(error=refusal(404, "gone"), after=4))
    assert 0 < len(found.failed) < len(SEQUENCES)
    assert [reason.code for reason in found.invalid] == ["sequences_failed"]
    with pytest.raises(EngineError) as caught:
        scored(Binary(error=refusal(400, "contain out-of-vocab token ids (-1 pads a row)")))
    assert caught.value.reason == "other_tokenizer"


def test_a_dead_engine_is_named_with_the_smaller_setting() -> None:
    server = Binary(error=refusal(None, "cannot connect"))
    with pytest.raises(EngineError, match=r"engine tuned died, while it scored .*drift\.top_k 2") as caught:
        asyncio.run(score_fixed_ids(server.post, SEQUENCES, BASE, K, death=lambda: "engine tuned died"))
    assert caught.value.reason == "engine_died"


@given(st.one_of(st.binary(max_size=200).map(lambda raw: base64.b64encode(raw).decode()), st.text(), st.none()))
def test_nonsense_is_refused_and_nothing_else(told: str | None) -> None:
    with pytest.raises(EngineError):
        read_fixed_ids({"prompt_token_id_logprobs": told}, SEQUENCES[0], BASE[0], K)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_any_json_is_refused(told: Any) -> None:
    with pytest.raises(EngineError):
        read_fixed_ids(told, SEQUENCES[0], BASE[0], K)


@given(st.integers(0, 5))
def test_numbers_are_read_as_they_are(place: int) -> None:
    scores = np.linspace(-3, -1, 3 * (K + 1)).reshape(3, K + 1)
    scores.flat[place] = -9999.0
    top = read_fixed_ids({"prompt_token_id_logprobs": in_base64(scores)}, SEQUENCES[0], BASE[0], K)
    whole = np.column_stack([np.reshape(top.logprobs, (3, K)), top.chosen])
    assert np.isneginf(whole.flat[place])
    kept = np.arange(whole.size) != place
    assert whole.ravel()[kept] == pytest.approx(scores.ravel()[kept], rel=1e-6)

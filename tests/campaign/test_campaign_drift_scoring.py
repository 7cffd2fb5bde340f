"""What is scored of a candidate, what stays when it hangs or has another tokenizer, and what a resumed run keeps."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_tokenwatt.campaign.drift import measure_drift
from pytest_tokenwatt.campaign.observe import Deadline
from pytest_tokenwatt.campaign.session import Session
from pytest_tokenwatt.campaign.suites import Shelf
from pytest_tokenwatt.engine.start import RunningEngine
from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.records import Reply, drift
from pytest_tokenwatt.spec.load import load_spec
from pytest_tokenwatt.store.journal import Journal
from pytest_tokenwatt.store.rundir import RunDirectory

SPEC = """
engine: {endpoint: "http://127.0.0.1:8000/v1", model: m}
configs: [{key: baseline, role: baseline}, {key: tuned, role: tuned}]
drift: {prompts: prompts.jsonl, sequences: 4, tokens: 5, top_k: 2}
"""
VOCABULARY = 8


def logprob(token: int, shift: float = 0.0) -> float:
    weights = [1.0 + other + shift * (other % 3) for other in range(VOCABULARY)]
    return math.log(weights[token] / sum(weights))


class Client:
    """Every token depends on nothing; ``shift`` makes another model. Fails where ``fails`` says so."""

    def __init__(self, shift: float = 0.0) -> None:
        self.shift = shift
        self.sent: list[dict[str, Any]] = []
        self.fails: Any = lambda _sent: False

    async def complete(self, prompt: str | Sequence[int], *, max_tokens: int = 16, **sampling: Any) -> Reply:
        self.sent.append({"prompt": prompt, **sampling})
        if self.fails(self.sent[-1]):
            error = EngineError("engine_http_error", "POST answered 422: no")
            error.status = 422
            raise error
        ids = [3, 4, 5] if isinstance(prompt, str) else list(prompt)
        output = (1, 2, 3, 4, 5)[:max_tokens]
        top = sorted(range(VOCABULARY), key=lambda token: -logprob(token, self.shift))[
            : sampling.get("prompt_logprobs", 0)
        ]
        entries = [
            {str(each): {"logprob": logprob(each, self.shift)} for each in dict.fromkeys([token, *top])}
            for token in ids
        ]
        choice = {
            "prompt_token_ids": ids,
            "prompt_logprobs": [None, *entries[1:]] if "prompt_logprobs" in sampling else None,
            "logprobs": {"token_logprobs": [logprob(token, self.shift) for token in output]},
        }
        return Reply("", "stop", len(ids), len(output), output, {"choices": [choice]})


class Engine(SimpleNamespace):
    def call(self, work: Any) -> Any:
        return asyncio.run(work)

    async def tokenize(self, text: str) -> tuple[int, ...]:
        return tuple((ord(letter) + self.offset) % VOCABULARY for letter in text)

    async def post(self, *_given: Any) -> Any:
        error = EngineError("engine_http_error", "404")
        error.status = 404
        raise error


def engine(client: Client, offset: int = 0) -> RunningEngine:
    made = Engine(
        client=client,
        offset=offset,
        identity=SimpleNamespace(max_model_len=64, model_ids=("m",)),
        vocabulary_size=0,
        fingerprint="p",
        death=lambda: None,
    )
    return cast("RunningEngine", made)


@pytest.fixture
def session(tmp_path: Path) -> Any:
    prompts = '{"id": "1", "prompt": "How many?", "answer": "1"}\n{"id": "2", "prompt": "Where?", "answer": "1"}'
    (tmp_path / "prompts.jsonl").write_text(prompts, encoding="utf-8")
    (tmp_path / "spec.yaml").write_text(SPEC, encoding="utf-8")
    spec, run_dir = load_spec(tmp_path / "spec.yaml"), RunDirectory(tmp_path / "run")
    with Journal(run_dir.file("journal.jsonl")) as journal:
        yield Session(spec, run_dir, journal, "r1", 7, Deadline(), os.environ, lambda _: None, Shelf(spec))


def measure(session: Session, place: int, on: RunningEngine) -> drift.DriftRecord:
    return measure_drift(session.spec.configurations[place], on, session)


def test_both_are_scored_on_the_same_ids_and_answer_the_same_prompts(session: Session) -> None:
    baseline = measure(session, 0, engine(Client()))
    tuned = measure(session, 1, engine(Client(0.2)))
    assert (tuned.sha256, tuned.answers) == (baseline.sha256, baseline.answers)
    assert [(answer.id, answer.tokens) for answer in tuned.answers] == [("1", 5), ("2", 5)]
    assert tuned.answers_sha256 == baseline.answers_sha256 != ""
    assert tuned.against is not None
    assert (tuned.against.kl_lower or 0.0) > 0
    assert baseline.control is not None
    assert baseline.control.kl == 0


def test_another_tokenizer_leaves_the_decode_path_alone(session: Session) -> None:
    measure(session, 0, engine(Client()))
    client = Client()
    found = measure(session, 1, engine(client, offset=1))
    assert [reason.code for reason in found.invalid] == ["other_tokenizer"]
    assert found.against is None
    assert found.decode_gap == pytest.approx(0.0, abs=1e-6)
    own = {tuple((ord(letter) + 1) % VOCABULARY for letter in text) for text in ("How many?", "Where?")}
    assert {tuple(sent["prompt"]) for sent in client.sent if "prompt_logprobs" not in sent} == own


def test_what_fails_behind_the_scoring_costs_itself_only(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("insisting._PATIENCE_S", "drift.patience._LONG_S"):
        monkeypatch.setattr(f"pytest_tokenwatt.quality.{module}", -1.0)
    measure(session, 0, engine(Client()))
    client = Client(0.2)

    async def silent(*_given: Any, **_named: Any) -> Reply:
        raise EngineError("engine_unreachable", "no answer within 300 s")

    monkeypatch.setattr("pytest_tokenwatt.quality.drift.answers._send", silent)
    monkeypatch.setattr("pytest_tokenwatt.quality.drift.decode_gap._send", silent)
    found = measure(session, 1, engine(client))
    assert (found.invalid, found.decode_gap) == ((), None)
    assert [answer.tokens for answer in found.answers] == [None, None]
    assert found.against is not None
    assert any("no_decode_path" in note or "decode path was not scored" in note for note in found.notes)


def test_a_kept_baseline_is_the_capture_of_its_candidates(session: Session) -> None:
    on = engine(Client())
    record = measure(session, 0, on)
    earlier = SimpleNamespace(drift=record, launch={}, fingerprint="p")
    again = replace(session, earlier=cast("Any", {"baseline": earlier}), captures=type(session.captures)())
    client = Client()
    resumed = cast("Any", engine(client))
    resumed.launch = {}
    assert measure(again, 0, resumed) == record
    assert client.sent == []
    held, first = again.captures.held, session.captures.held
    assert held is not None
    assert first is not None
    assert (held.sequences, held.tops, held.probes) == (first.sequences, first.tops, first.probes)
    assert measure(again, 1, engine(Client(0.2))).invalid == ()

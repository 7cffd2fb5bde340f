"""Everything that drift asks, asked of the embedded engine: decoding and prefill agree, precisions do not."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from pytest_tokenwatt.engine.access import Access
from pytest_tokenwatt.engine.control import ControlClient, PrivateLoop
from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.quality.drift.continuations import sample_sequences
from pytest_tokenwatt.quality.drift.decode_gap import decode_gap
from pytest_tokenwatt.quality.drift.fitting import fit
from pytest_tokenwatt.quality.drift.limits import Limits, ask_limits
from pytest_tokenwatt.quality.drift.perplexity import perplexity_record
from pytest_tokenwatt.quality.drift.scoring import score
from pytest_tokenwatt.quality.drift.text_windows import text_windows
from pytest_tokenwatt.records import drift
from pytest_tokenwatt.records.accuracy import SuiteItem
from pytest_tokenwatt.spec.quality import Drift, Perplexity

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
PROMPTS = [
    SuiteItem(id="text", answer="", prompt="Question: What is 4 plus 5?\nAnswer:"),
    SuiteItem(id="chat", answer="", messages=({"role": "user", "content": "Tell me of the sea."},)),
    SuiteItem(id="more", answer="", prompt="The ship"),
]


class Engine:
    """An embedded engine with the real client."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.loop = PrivateLoop()
        self.root = f"http://127.0.0.1:{port}"
        self.client = ControlClient(self.loop, Access(f"{self.root}/v1"), lambda text: text)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.call(work)

    def await_ready(self) -> None:
        deadline_s = time.monotonic() + 20
        while time.monotonic() < deadline_s and self.process.poll() is None:
            try:
                told = json.loads(self.do(self.client.http.get(f"{self.root}/v1/models", 5.0)).text)
                self.client.model = told["data"][0]["id"]
                return
            except EngineError:
                time.sleep(0.05)
        raise AssertionError("the engine did not get ready")

    async def tokenize(self, text: str) -> Sequence[int]:
        told = await self.client.http.ask(f"{self.root}/tokenize", {"prompt": text}, 10.0)
        ids: list[int] = told["tokens"]
        return ids


@contextmanager
def running(*options: str) -> Iterator[Engine]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "pytest_tokenwatt", "simulate", "--port", str(port), *options]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environ)
    engine = Engine(process, port)
    try:
        engine.await_ready()
        yield engine
    finally:
        engine.client.close()
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module")
def baseline() -> Iterator[Engine]:
    with running() as engine:
        yield engine


@pytest.fixture(scope="module")
def sequences(baseline: Engine) -> tuple[drift.Sequence, ...]:
    found = baseline.do(sample_sequences(baseline.client, PROMPTS, Drift(sequences=9, tokens=24)))
    assert not found.invalid
    return found.sequences


def test_continuations_differ_by_seed_and_come_again(baseline: Engine, sequences: tuple[drift.Sequence, ...]) -> None:
    assert len({each.ids for each in sequences}) > len(PROMPTS)  # a sum has one likely answer
    again = baseline.do(sample_sequences(baseline.client, PROMPTS, Drift(sequences=9, tokens=24), in_flight=2))
    assert again.sequences == sequences


def test_the_limit_is_the_servers(baseline: Engine, sequences: tuple[drift.Sequence, ...]) -> None:
    assert baseline.do(ask_limits(baseline.client, sequences[0].ids, 20)) == Limits(20)
    assert baseline.do(ask_limits(baseline.client, sequences[0].ids, 50)).top_k == 20


def test_scores_are_the_same_in_another_order_and_are_probabilities(
    baseline: Engine, sequences: tuple[drift.Sequence, ...]
) -> None:
    scores = baseline.do(score(baseline.client, sequences, 20))
    control = baseline.do(score(baseline.client, sequences, 20, in_flight=2, order_seed=1))
    assert scores.tops == control.tops
    assert not scores.failed
    for sequence, top in zip(sequences, scores.tops, strict=True):
        assert top.positions == len(sequence.ids) - sequence.prompt
        mass = np.exp(np.asarray(top.logprobs)).reshape(-1, 20).sum(axis=1)
        assert ((mass > 0.2) & (mass <= 1.0 + 1e-5)).all()


def test_decoding_and_prefill_agree(baseline: Engine, sequences: tuple[drift.Sequence, ...]) -> None:
    found = baseline.do(decode_gap(baseline.client, sequences, 24))
    assert found.tokens > 40
    assert found.mean_nats == pytest.approx(0.0, abs=1e-5)
    assert found.max_nats == pytest.approx(0.0, abs=1e-4)
    assert not found.invalid


def test_another_precision_says_otherwise_within_its_shorter_context(
    baseline: Engine, sequences: tuple[drift.Sequence, ...]
) -> None:
    with running("--kv-cache-dtype", "int4", "--max-model-len", "24") as tuned:
        fitted = fit(sequences, 24)
        theirs = tuned.do(score(tuned.client, fitted.sequences, 20)).tops
        refused = tuned.do(score(tuned.client, sequences, 20))
    ours = baseline.do(score(baseline.client, fitted.sequences, 20)).tops
    gaps = [abs(a - b) for one, other in zip(ours, theirs, strict=True) for a, b in zip(one.chosen, other.chosen)]  # noqa: B905 - equally long, as the next line says
    assert [top.positions for top in ours] == [top.positions for top in theirs]
    assert fitted.notes
    assert sum(gaps) / len(gaps) > 0.1
    assert "maximum context length" in refused.invalid[0].text


def test_perplexity_of_a_text(baseline: Engine) -> None:
    settings = Perplexity(name="sea", file="sea.txt", window=16, windows=4)
    text = "The ship left the harbour in the morning, and nobody saw it again. " * 6
    found = baseline.do(text_windows(baseline.tokenize, text, settings, bos_id=None))
    tops = baseline.do(score(baseline.client, found.sequences, 2)).tops
    record = perplexity_record("sea", found.sequences, tops)
    assert (record.windows, record.tokens, record.invalid) == (4, 60, ())
    assert record.ppl is not None
    assert record.ppl > 1

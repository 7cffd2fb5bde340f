"""Everything that drift asks, asked of the embedded engine: decoding and prefill agree, precisions do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from embedded_engine import Engine, running

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.quality.drift.continuations import sample_sequences
from pytest_tokenwatt.quality.drift.decode_gap import decode_gap
from pytest_tokenwatt.quality.drift.fitting import fit, narrowed
from pytest_tokenwatt.quality.drift.fixed_ids import PATH, ask_fixed_ids, score_fixed_ids
from pytest_tokenwatt.quality.drift.limits import Limits, ask_limits
from pytest_tokenwatt.quality.drift.perplexity import perplexity_record
from pytest_tokenwatt.quality.drift.scoring import score
from pytest_tokenwatt.quality.drift.text_windows import text_windows
from pytest_tokenwatt.quality.drift.trace_replay import replay_gap
from pytest_tokenwatt.records import drift
from pytest_tokenwatt.records.accuracy import SuiteItem
from pytest_tokenwatt.spec.quality import Drift, Perplexity

PROMPTS = [
    SuiteItem(id="text", answer="", prompt="Question: What is 4 plus 5?\nAnswer:"),
    SuiteItem(id="chat", answer="", messages=({"role": "user", "content": "Tell me of the sea."},)),
    SuiteItem(id="more", answer="", prompt="The ship"),
]


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


def test_the_binary_routes_say_the_same(baseline: Engine, sequences: tuple[drift.Sequence, ...]) -> None:
    base = baseline.do(score(baseline.client, sequences, 20)).tops
    assert baseline.do(ask_fixed_ids(baseline.client.post, sequences[0], base[0])).width == 0
    assert baseline.do(replay_gap(baseline.client.post, sequences, base)) is None
    with running("--enable-scale-out", "--enable-trace-replay") as other:
        offer = other.do(ask_fixed_ids(other.client.post, sequences[0], base[0]))
        scores = other.do(score_fixed_ids(other.client.post, sequences, base, offer.width))
        gap = other.do(replay_gap(other.client.post, sequences, base))
        refusals = [refused(other, body) for body in UNUSABLE]
    assert offer.width == 19
    assert not scores.failed
    for top, found in zip(base, scores.tops, strict=True):
        assert narrowed(top, 19).ids == found.ids
        assert list(narrowed(top, 19).logprobs) == pytest.approx(list(found.logprobs), abs=1e-5)
        assert list(top.chosen) == pytest.approx(list(found.chosen), abs=1e-5)
    assert gap is not None
    assert (gap.tokens, gap.invalid) == (sum(len(each.ids) - each.prompt for each in unlike(sequences)), ())
    assert gap.mean_nats == pytest.approx(0.0, abs=1e-5)
    assert refusals == [400] * len(UNUSABLE)


UNUSABLE: list[dict[str, Any]] = [
    {"token_ids": [5, 6, 7]},
    {"token_ids": [], "sampling_params": {}},
    {"token_ids": [5, 6, 7], "sampling_params": {"prompt_logprob_token_ids": [[]]}},
    {"token_ids": [5, 6, 7], "sampling_params": {"prompt_logprob_token_ids": [[1]]}},
    {"token_ids": [5, 6, 7], "sampling_params": {"prompt_logprob_token_ids": [[1], [10**9]]}},
    {"token_ids": [5, 6, 7], "sampling_params": {"prompt_logprob_token_ids": [[1] * 21] * 2}},
    {"token_ids": [5, 6, 7], "sampling_params": {"trace_decode_token_ids": []}},
]


def refused(engine: Engine, body: dict[str, Any]) -> int | None:
    with pytest.raises(EngineError) as caught:
        engine.do(engine.client.post(PATH, body))
    return caught.value.status


def unlike(sequences: Sequence[drift.Sequence]) -> list[drift.Sequence]:
    """Those that are replayed: one of each prompt."""
    return list({each.ids[: each.prompt]: each for each in sequences}.values())


def test_perplexity_of_a_text(baseline: Engine) -> None:
    settings = Perplexity(name="sea", file="sea.txt", window=16, windows=4)
    text = "The ship left the harbour in the morning, and nobody saw it again. " * 6
    found = baseline.do(text_windows(baseline.tokenize, text, settings, bos_id=None))
    tops = baseline.do(score(baseline.client, found.sequences, 2)).tops
    record = perplexity_record("sea", found.sequences, tops)
    assert (record.windows, record.tokens, record.invalid) == (4, 60, ())
    assert record.ppl is not None
    assert record.ppl > 1

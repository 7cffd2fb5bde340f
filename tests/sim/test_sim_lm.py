"""The embedded language model and its tokenizer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.sim.lm import LanguageModel, contexts_of, sample
from pytest_tokenwatt.sim.tokenizer import END_OF_TEXT, TURN_END, TURN_START, Detokenizer, Tokenizer

TOKENIZER = Tokenizer()
IDS = np.random.default_rng(0).integers(3, TOKENIZER.vocab_size, 2000).tolist()


def kl_from_auto(precision: str) -> float:
    contexts = contexts_of(IDS)
    p = LanguageModel(TOKENIZER).logprobs(contexts)
    q = LanguageModel(TOKENIZER, precision=precision).logprobs(contexts)
    return float((np.exp(p) * (p - q)).sum(axis=1).mean())


def test_probabilities_are_normalised_and_repeat() -> None:
    contexts = contexts_of(IDS[:50])

    first = LanguageModel(TOKENIZER).logprobs(contexts)

    assert np.exp(first).sum(axis=1) == pytest.approx(np.ones(51))
    assert (first == LanguageModel(TOKENIZER).logprobs(contexts)).all()
    assert not np.allclose(first, LanguageModel(TOKENIZER, seed=1).logprobs(contexts))


def test_only_the_last_few_ids_matter() -> None:
    model = LanguageModel(TOKENIZER)

    assert (model.logits(contexts_of([9, 8, 7, 6])[-1:]) == model.logits(contexts_of([5, 8, 7, 6])[-1:])).all()
    assert not (model.logits(contexts_of([9, 8, 7, 6])[-1:]) == model.logits(contexts_of([9, 5, 7, 6])[-1:])).all()


def test_a_coarser_kv_cache_drifts_further_from_the_model() -> None:
    assert kl_from_auto("auto") == 0
    assert 1e-4 < kl_from_auto("fp8") < 0.005
    assert kl_from_auto("int4") > 0.03


def test_sampling_follows_the_distribution_and_temperature_zero_its_peak() -> None:
    model = LanguageModel(TOKENIZER)
    logits = np.repeat(model.logits(contexts_of([300])[-1:]), 4000, axis=0)
    keys = np.arange(4000, dtype=np.uint64)

    drawn = sample(logits, np.ones(4000), keys)
    greedy = sample(logits, np.zeros(4000), keys)

    likeliest = int(logits[0].argmax())
    probability = float(np.exp(model.logprobs(contexts_of([300])[-1:])[0, likeliest]))
    assert (drawn == likeliest).mean() == pytest.approx(probability, abs=0.04)
    assert (greedy == likeliest).all()
    assert (drawn == sample(logits, np.ones(4000), keys)).all()


def test_generation_ends_by_itself_within_some_hundred_tokens() -> None:
    model = LanguageModel(TOKENIZER)
    ends = model.logits(contexts_of(IDS)).argmax(axis=1) == END_OF_TEXT

    assert 0.002 < ends.mean() < 0.05


@given(st.text())
def test_encoding_loses_nothing(text: str) -> None:
    if any("\ud800" <= character <= "\udfff" for character in text):
        return
    ids = TOKENIZER.encode(text)

    assert all(3 <= token < TOKENIZER.vocab_size for token in ids)
    assert TOKENIZER.decode(ids) == text


@given(st.lists(st.integers(0, TOKENIZER.vocab_size - 1)))
def test_streamed_text_is_the_whole_text(ids: list[int]) -> None:
    stream = Detokenizer(TOKENIZER)
    pieces = [stream.feed(token, last=number == len(ids) - 1) for number, token in enumerate(ids)]

    assert "".join(pieces) == TOKENIZER.decode(ids)


def test_half_a_character_is_empty_text() -> None:
    stream = Detokenizer(TOKENIZER)

    assert [stream.feed(token) for token in TOKENIZER.encode("é")] == ["", "é"]


def test_words_are_single_ids_and_turns_are_marked() -> None:
    assert len(TOKENIZER.encode(" the water")) == 2
    assert len(TOKENIZER.encode(" thex")) == 5
    ids = TOKENIZER.encode_chat([{"role": "user", "content": " the"}])
    assert (ids[0], ids.count(TURN_START), ids.count(TURN_END)) == (TURN_START, 2, 1)
    assert TOKENIZER.vocab_size == 512

"""Reading prompt_logprobs: by id, K or K + 1 entries, zeros, nulls, and everything that is not what was asked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from drift_server import VOCABULARY, entry, logprob
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.quality.drift.prompt_scores import read_scores, unscored
from pytest_tokenwatt.records import drift

IDS = [2, 7, 1, 8, 2, 8, 1]


def told(ids: list[int], top_k: int) -> list[Any]:
    return [None, *(entry(ids[at - 1], ids[at], top_k) for at in range(1, len(ids)))]


def rows(top: drift.TopK) -> list[list[tuple[int, float]]]:
    pairs = list(zip(top.ids, top.logprobs, strict=True))
    return [pairs[at * top.k : (at + 1) * top.k] for at in range(top.positions)]


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-6)


def test_the_likeliest_come_first_and_the_chosen_one_is_looked_up() -> None:
    top = read_scores(told(IDS, 3), IDS, 2, 3)
    assert top.positions == 5
    for at, row in enumerate(rows(top), 2):
        ranked = sorted((logprob(IDS[at - 1], other) for other in range(VOCABULARY)), reverse=True)[:3]
        assert all(close(value, logprob(IDS[at - 1], token)) for token, value in row)
        assert all(close(value, expected) for (_, value), expected in zip(row, ranked, strict=True))
        assert close(top.chosen[at - 2], logprob(IDS[at - 1], IDS[at]))


def test_a_token_beyond_the_top_is_chosen_but_no_column() -> None:
    one = {"5": {"logprob": -4.0}, "1": {"logprob": -0.5}, "2": {"logprob": -1.5}}
    other = {"2": {"logprob": -1.5}, "1": {"logprob": -0.5}}
    top = read_scores([None, one, other], [0, 5, 2], 1, 2)
    assert list(top.ids) == [1, 2, 1, 2]
    assert list(top.chosen) == [-4.0, -1.5]
    tied = {"5": {"logprob": -1.5}, "1": {"logprob": -0.5}, "2": {"logprob": -1.5}}
    assert list(read_scores([None, tied], [0, 5], 1, 2).ids) == [1, 2]


def test_minus_9999_is_a_probability_of_zero() -> None:
    top = read_scores([None, {"4": {"logprob": -9999.0}, "1": {"logprob": 0.0}}], [0, 4], 1, 2)
    assert list(top.logprobs) == [0.0, -math.inf]
    assert list(top.chosen) == [-math.inf]


@pytest.mark.parametrize(
    "broken",
    [None, {}, {"7": {"logprob": None}, "1": {"logprob": -1.0}}, {"7": {"logprob": -1.0}, "1": {"logprob": math.nan}}],
)
def test_a_null_makes_its_position_nan_and_no_other(broken: Any) -> None:
    answer = told(IDS, 2)
    answer[1] = broken
    top = read_scores(answer, IDS, 1, 2)
    assert list(top.ids[:2]) == [-1, -1]
    assert all(map(math.isnan, [*top.logprobs[:2], top.chosen[0]]))
    assert list(top.chosen[1:]) == list(read_scores(told(IDS, 2), IDS, 2, 2).chosen)


def test_the_first_entry_may_be_missing() -> None:
    whole = told(IDS, 3)
    assert read_scores(whole[1:], IDS, 1, 3) == read_scores(whole, IDS, 1, 3)


def test_a_vocabulary_smaller_than_k_leaves_places_unused_and_the_whole_one_sets_the_width() -> None:
    top = read_scores([None, {"4": {"logprob": -0.1}}], [0, 4], 1, 3)
    assert list(top.ids) == [4, -1, -1]
    assert list(map(math.isnan, top.logprobs)) == [False, True, True]
    whole = read_scores(told(IDS, -1), IDS, 1, -1)
    assert whole.k == VOCABULARY
    assert all(close(sum(math.exp(value) for _, value in row), 1.0) for row in rows(whole))


def test_a_server_with_logits_is_read_as_it_is() -> None:
    top = read_scores([None, {"4": {"logprob": 7.5}, "5": {"logprob": 3.0}}], [0, 4], 1, 2)
    assert list(top.logprobs) == [7.5, 3.0]


@pytest.mark.parametrize("answer", [None, [], told(IDS, 3)[:3], [*told(IDS, 3), {}], {"0": None}, "no"])
def test_no_entry_for_each_id_is_no_scoring(answer: Any) -> None:
    with pytest.raises(EngineError, match="for 7 ids") as caught:
        read_scores(answer, IDS, 1, 3)
    assert caught.value.reason == "no_prompt_logprobs"


@pytest.mark.parametrize(
    "entry_told",
    [
        [1],
        5,
        {"the": {"logprob": -1.0}},
        {"7": -1.0},
        {"7": {"rank": 1}},
        {"99999999999": {"logprob": -1.0}},
        {"-1": {"logprob": -1.0}},
        {"7": {"logprob": "x"}},
    ],
)
def test_entries_of_another_form_are_refused(entry_told: Any) -> None:
    answer = [None, entry_told]
    with pytest.raises(EngineError, match="no objects of token id and logprob"):
        read_scores(answer, [0, 7], 1, 2)


def test_an_entry_without_the_token_that_stands_there_is_another_text() -> None:
    with pytest.raises(EngineError, match="at position 3 are not of token 9") as caught:
        read_scores(told(IDS, 2), [*IDS[:3], 9, *IDS[4:]], 1, 2)
    assert caught.value.reason == "wrong_echo"
    shifted = [*told(IDS, 2)[1:], told(IDS, 2)[1]]
    with pytest.raises(EngineError, match="which stands there"):
        read_scores(shifted, IDS, 1, 2)


def test_unscored_positions_are_nan_throughout() -> None:
    top = unscored(2, 3)
    assert (top.positions, len(top.ids), len(top.logprobs)) == (2, 6, 6)
    assert np.isnan(top.logprobs).all()
    assert np.isnan(top.chosen).all()
    assert set(top.ids) == {-1}


positions = st.lists(
    st.dictionaries(
        st.integers(0, 200_000),
        st.one_of(st.none(), st.just(-9999.0), st.floats(-60, 0, width=32)),
        min_size=1,
        max_size=6,
    ),
    min_size=1,
    max_size=12,
)


@given(positions, st.data())
def test_whatever_is_told_is_read_like_a_plain_loop_would(entries: list[dict[int, float | None]], data: Any) -> None:
    ids = [0, *(data.draw(st.sampled_from(sorted(each))) for each in entries)]
    k = data.draw(st.integers(5, 6))
    prompt = data.draw(st.integers(1, len(ids)))
    answer = [None, *({str(token): {"logprob": value} for token, value in each.items()} for each in entries)]
    top = read_scores(answer, ids, prompt, k)
    assert top.positions == len(ids) - prompt
    for at, row in enumerate(rows(top), prompt):
        wanted = {key: -math.inf if value == -9999.0 else value for key, value in entries[at - 1].items()}
        if None in wanted.values():
            assert all(math.isnan(value) and token == -1 for token, value in row)
            assert math.isnan(top.chosen[at - prompt])
            continue
        known = {key: float(value) for key, value in wanted.items() if value is not None}
        if len(known) > k:
            del known[ids[at]]
        used = [(token, value) for token, value in row if token >= 0]
        assert dict(used) == known
        assert [value for _, value in used] == sorted(known.values(), reverse=True)
        assert top.chosen[at - prompt] == wanted[ids[at]]


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=12,
)


@given(json_like, st.lists(json_like, min_size=2, max_size=3))
def test_no_answer_makes_the_parser_fail_otherwise(answer: Any, entries: list[Any]) -> None:
    for each in (answer, entries, [None, {"1": answer}, {"2": {"logprob": answer}}]):
        assert outcome(each) in (2, "no_prompt_logprobs", "wrong_echo")


def outcome(answer: Any) -> int | str:
    try:
        return read_scores(answer, [0, 1, 2], 1, 2).positions
    except EngineError as error:
        return error.reason

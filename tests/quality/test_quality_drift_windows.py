"""Windows of texts and their perplexity."""

from __future__ import annotations

import asyncio
import math
from array import array
from collections.abc import Sequence

import pytest
from drift_server import Server

from pytest_tokenwatt.errors import EngineError
from pytest_tokenwatt.quality.drift.perplexity import perplexity_record, window_nll
from pytest_tokenwatt.quality.drift.prompt_scores import unscored
from pytest_tokenwatt.quality.drift.scoring import score
from pytest_tokenwatt.quality.drift.text_windows import Windows, text_windows
from pytest_tokenwatt.records import Reason, drift
from pytest_tokenwatt.spec.quality import Perplexity

BOS = 9


def windows(
    ids: Sequence[int], window: int, most: int, bos_id: int | None = None, max_model_len: int | None = None
) -> Windows:
    async def tokenize(_text: str) -> Sequence[int]:
        return ids

    settings = Perplexity(name="wiki", file="w.txt", window=window, windows=most)
    return asyncio.run(text_windows(tokenize, "text", settings, bos_id=bos_id, max_model_len=max_model_len))


def test_windows_do_not_overlap_and_the_rest_is_dropped() -> None:
    found = windows(range(8), 3, 5)
    assert [each.ids for each in found.sequences] == [(0, 1, 2), (3, 4, 5)]
    assert {each.prompt for each in found.sequences} == {1}
    assert found.notes == ("wiki: the text has 2 windows, not 5",)
    assert [each.ids for each in windows(range(8), 3, 1).sequences] == [(0, 1, 2)]


@pytest.mark.parametrize("ids", [[0, 1, 2, 3, 4, 5], [BOS, 0, 1, 2, 3, 4, 5]])
def test_each_window_begins_with_one_beginning_of_text(ids: list[int]) -> None:
    found = windows(ids, 4, 2, bos_id=BOS)
    assert [each.ids for each in found.sequences] == [(BOS, 0, 1, 2), (BOS, 3, 4, 5)]


def test_a_server_that_adds_another_one_is_found_out() -> None:
    found = windows(range(6), 4, 2, bos_id=BOS)
    server = Server(change=lambda choice: choice["prompt_token_ids"].insert(0, BOS))
    with pytest.raises(EngineError, match="no special tokens added"):
        asyncio.run(score(server, found.sequences, 3))


def test_a_short_context_shortens_windows_and_says_so() -> None:
    found = windows(range(8), 6, 2, max_model_len=5)
    assert [len(each.ids) for each in found.sequences] == [4, 4]
    assert found.notes == ("wiki: windows are of 4 tokens, not 6, by max_model_len",)


def test_a_text_without_a_window_is_an_error_with_a_remedy() -> None:
    with pytest.raises(EngineError, match="has 3 tokens, and a window 4; give a longer text") as caught:
        windows(range(3), 4, 2)
    assert caught.value.reason == "text_too_short"


def chosen(*probabilities: float) -> drift.TopK:
    values = array("f", (math.log(each) if each else -math.inf for each in probabilities))
    return drift.TopK(0, array("i"), array("f"), values)


SEQUENCES = [drift.Sequence(f"w/{number}", (number, 1), 1) for number in range(3)]


def test_known_values() -> None:
    record = perplexity_record("wiki", SEQUENCES, [chosen(1 / 2, 1 / 2), chosen(1 / 4), chosen(1 / 8)])
    assert record.nll == pytest.approx([math.log(2), math.log(4), math.log(8)], rel=1e-6)
    assert record.ppl == pytest.approx(4.0, rel=1e-6)
    assert (record.windows, record.tokens, record.invalid) == (3, 4, ())
    assert window_nll(chosen(1 / 2, 1 / 8)) == pytest.approx(math.log(4), rel=1e-6)


@pytest.mark.parametrize(
    ("tops", "code"),
    [
        ([chosen(0.5), unscored(1, 2)], "windows_failed"),
        ([chosen(0.5), chosen(0.5, 0.0)], "zero_probability"),
        ([chosen(0.5), chosen(math.e), unscored(1, 2)], "not_probabilities"),
        ([chosen(math.inf, 0.0)], "not_probabilities"),
        ([], "no_windows"),
    ],
)
def test_windows_that_are_not_finite_leave_no_figure(tops: list[drift.TopK], code: str) -> None:
    record = perplexity_record("wiki", SEQUENCES[: len(tops)], tops)
    assert (record.ppl, record.nll) == (None, ())
    assert [reason.code for reason in record.invalid] == [code]


def test_a_perplexity_beyond_all_numbers_is_none() -> None:
    hopeless = drift.TopK(0, array("i"), array("f"), array("f", [-1000.0]))
    record = perplexity_record("wiki", SEQUENCES[:1], [hopeless])
    assert (record.ppl, record.nll, record.invalid) == (None, (1000.0,), ())


def test_known_reasons_come_first() -> None:
    record = perplexity_record("wiki", SEQUENCES, [chosen(0.5)] * 3, [Reason("engine_died", "it died")])
    assert record.ppl is None
    assert record.invalid == (Reason("engine_died", "it died"),)


@pytest.mark.parametrize("text", [" the river  runs\n\nfast" * 400, "x" * 5000, "ü" * 300 + " word" * 900])
def test_a_text_longer_than_the_servers_context_is_asked_in_pieces(text: str) -> None:
    pieces: list[str] = []

    async def tokenize(piece: str) -> Sequence[int]:
        assert len(piece.encode()) <= 512
        pieces.append(piece)
        return list(piece.encode())

    settings = Perplexity(name="wiki", file="w.txt", window=100, windows=1000)
    found = asyncio.run(text_windows(tokenize, text, settings, bos_id=None, max_model_len=512))
    assert "".join(pieces) == text
    scored = [token for each in found.sequences for token in each.ids]
    assert scored == list(text.encode())[: len(scored)]
    assert len(found.sequences) == len(text.encode()) // 100


def test_no_more_of_a_text_is_asked_than_is_needed() -> None:
    asked: list[str] = []

    async def tokenize(piece: str) -> Sequence[int]:
        asked.append(piece)
        return list(piece.encode())

    settings = Perplexity(name="wiki", file="w.txt", window=100, windows=2)
    asyncio.run(text_windows(tokenize, "word " * 10_000, settings, bos_id=None, max_model_len=512))
    assert sum(map(len, asked)) < 500

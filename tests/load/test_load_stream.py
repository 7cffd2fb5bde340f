"""The reading of streams: any split reads the same, nothing raises, the short cut agrees with the parser."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from pytest_tokenwatt.load.glance import glance
from pytest_tokenwatt.load.kept import KeepingReader
from pytest_tokenwatt.load.share import equal_share
from pytest_tokenwatt.load.sse import EventOverflowError, EventSplitter
from pytest_tokenwatt.load.stream import StreamReader
from pytest_tokenwatt.records import ErrorClass

Outcome = tuple[Any, ...]

texts = st.text(max_size=12) | st.sampled_from(
    [
        '"token_ids":[1,2]',
        '\\"finish_reason\\":null',
        '","token_ids":[7],"finish_reason":null,"x":"',
        "\r\n\r\ndata: x\n\n",
        "]",
    ]
)
ids = st.lists(st.integers(0, 300_000), max_size=4)
counts = st.integers(0, 9)
usages = st.none() | st.fixed_dictionaries({"completion_tokens": counts, "prompt_tokens": counts})


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0}
    choice |= draw(
        st.sampled_from(["text", "delta"]).flatmap(
            lambda key: st.fixed_dictionaries(
                {key: texts if key == "text" else st.fixed_dictionaries({"content": texts})}
            )
        )
    )
    choice["finish_reason"] = draw(st.sampled_from([None, None, None, "length", "stop", "abort"]))
    if draw(st.booleans()):
        choice["token_ids"] = draw(st.none() | ids)
    event: dict[str, Any] = {"id": draw(texts), "choices": [choice] if draw(st.integers(0, 4)) else []}
    if draw(st.booleans()):
        event["usage"] = draw(usages)
    if draw(st.integers(0, 15)) == 0:
        event["error"] = draw(st.fixed_dictionaries({"message": texts}))
    return event


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    compact = draw(st.booleans())
    dumps = (lambda event: orjson.dumps(event).decode()) if compact else json.dumps
    parts = [f"data: {dumps(event)}{end}{end}" for event in draw(st.lists(events(), max_size=6))]
    if draw(st.booleans()):
        parts.insert(0, f": ping{end}{end}")
    if draw(st.booleans()):
        parts.append(f"data: [DONE]{end}{end}")
    return "".join(parts).encode("utf-8", "replace")


def outcome(reader: StreamReader) -> Outcome:
    return (
        list(reader.chunk_tokens), reader.tokens, reader.output_tokens, reader.prompt_tokens, reader.finish_reason,
        reader.done, reader.estimated, reader.error, reader.error_message,
    )  # fmt: skip


def read(pieces: list[bytes], kind: type[StreamReader] = StreamReader) -> Outcome:
    reader = kind()
    for number, piece in enumerate(pieces):
        reader.feed(piece, float(number))
    reader.close(float(len(pieces)))
    assert len(reader.chunk_s) == len(reader.chunk_tokens)
    assert list(reader.chunk_s) == sorted(reader.chunk_s)
    return outcome(reader)


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


@given(streams(), st.lists(st.integers(0, 5000), max_size=12))
def test_any_split_of_the_bytes_reads_the_same(data: bytes, cuts: list[int]) -> None:
    assert read(pieces_of(data, cuts)) == read([data]) == read([data[k : k + 1] for k in range(len(data))])


@given(streams(), st.lists(st.integers(0, 5000), max_size=12))
def test_a_stream_whose_ids_are_kept_reads_the_same(data: bytes, cuts: list[int]) -> None:
    assume(b'"error"' not in data)  # no server puts tokens and an error into one event, and to look costs speed
    data += b'data: {"choices":[],"usage":{"completion_tokens":9,"prompt_tokens":7}}\n\n'
    assert read(pieces_of(data, cuts), KeepingReader) == read([data])


@given(st.lists(st.binary(max_size=60) | streams(), max_size=5))
@example([b'data: {"choices": 3, "usage": []}\n\n'])
@example([b'data: {"choices": [{"token_ids": [1], "finish_reason": 7}, 4], "usage": {"completion_tokens": 1e99}}\n\n'])
@example([b'data: {"usage": {"completion_tokens": 99999999999999999}, "choices": [{"text": "a"}]}\n\n'])
@example([b'data: {"usage": {"completion_tokens": -3, "prompt_tokens_details": {"cached_tokens": true}}}\n\n'])
@example([b'data: {"choices": [{"token_ids": [1, "2"], "prompt_token_ids": {}}], "prompt_token_ids": [-1]}\n\n'])
@example([b'data: {"choices": [{"token_ids": [18446744073709551616], "prompt_token_ids": [true]}]}\n\n'])
def test_garbage_never_raises(pieces: list[bytes]) -> None:
    for reader in (StreamReader(), KeepingReader()):
        for piece in pieces:
            reader.feed(piece, 1.0)
        reader.close(2.0)
        assert all(tokens > 0 for tokens in reader.chunk_tokens)
        assert reader.error in (None, ErrorClass.PROTOCOL, ErrorClass.STREAM_ERROR)
        assert reader.output_ids is None or len(reader.output_ids) == reader.tokens


@given(events())
def test_the_short_cut_agrees_with_the_parser(event: dict[str, Any]) -> None:
    found = glance(orjson.dumps(event))
    if found is not None:
        (choice,) = event["choices"]
        assert found == len(choice["token_ids"])
        assert choice["finish_reason"] is None


def test_the_short_cut_takes_the_usual_events() -> None:
    event = {"choices": [{"index": 0, "text": "a", "finish_reason": None, "token_ids": [39, 40]}], "usage": {}}
    assert glance(orjson.dumps(event)) == 2
    assert glance(json.dumps(event).encode()) is None


def test_usage_of_a_stream_that_breaks_off_is_that_of_its_last_event() -> None:
    reader = StreamReader()
    for count in (1, 2, 3):
        event = {
            "choices": [{"text": "a", "finish_reason": None, "token_ids": [count]}],
            "usage": {"completion_tokens": count, "prompt_tokens": 4},
        }
        reader.feed(b"data: " + orjson.dumps(event) + b"\n\n", float(count))
    reader.close(9.0)
    assert (reader.output_tokens, reader.prompt_tokens, list(reader.chunk_s)) == (3, 4, [1.0, 2.0, 3.0])
    assert not reader.complete


def test_usage_is_that_of_the_last_event_that_brings_it() -> None:
    reader = StreamReader()
    usage = {"completion_tokens": 1, "prompt_tokens": 4}
    first = {"choices": [{"text": "a", "finish_reason": None, "token_ids": [1]}], "usage": usage}
    last = {"choices": [{"text": "", "finish_reason": "stop", "token_ids": []}]}
    for event in (orjson.dumps(first), orjson.dumps(last), b"[DONE]"):
        reader.feed(b"data: " + event + b"\n\n", 1.0)
    reader.close(2.0)
    assert (reader.output_tokens, reader.prompt_tokens, reader.complete) == (1, 4, True)


def test_stamps_are_those_of_the_piece_that_completes_an_event() -> None:
    reader = StreamReader()
    reader.feed(b'data: {"choices": [{"text": "a", ', 1.0)
    reader.feed(b'"token_ids": [1]}]}\n', 2.0)
    reader.feed(b'\ndata: {"choices": [{"text": "b", "token_ids": [2]}]}\n\n', 3.0)
    assert list(reader.chunk_s) == [3.0, 3.0]


def test_an_event_without_an_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_tokenwatt.load.sse.MAX_EVENT_BYTES", 100)
    with pytest.raises(EventOverflowError):
        EventSplitter().feed(b"data: " + b"x" * 200)
    reader = StreamReader()
    reader.feed(b"data: " + b"x" * 200, 1.0)
    assert reader.error is ErrorClass.PROTOCOL


def test_events_of_several_lines_are_joined() -> None:
    assert EventSplitter().feed(b"event: a\ndata:1\nid: 3\ndata: 2\n\n: note\n\ndata\n\n") == [b"1\n2"]


@given(st.integers(0, 2000), st.integers(1, 300))
def test_shares_are_exact_and_even(tokens: int, chunks: int) -> None:
    shares = equal_share(tokens, chunks)
    assert len(shares) == chunks
    assert sum(shares) == tokens
    assert max(shares) - min(shares) <= 1
    if tokens >= 1:
        assert shares[0] >= 1
    if tokens >= 2 and chunks >= 2:
        assert shares[-1] >= 1

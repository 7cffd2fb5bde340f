"""Requests come back from their columns, stamps within a nanosecond."""

from __future__ import annotations

from array import array
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_tokenwatt.errors import UsageError
from pytest_tokenwatt.records import ClockAnchor, ErrorClass, RequestRecord, WindowSpan
from pytest_tokenwatt.store.requests_npz import read_requests, write_requests

START_S = 123_456.789
ANCHOR = ClockAnchor(START_S - 60, 1_796_000_000.25)
instant = st.floats(START_S - 200, START_S + 4000)
count = st.integers(0, 2**40)
text = st.none() | st.text(max_size=12)


@st.composite
def requests(draw: st.DrawFn) -> RequestRecord:
    chunks = draw(st.lists(st.tuples(instant, st.integers(1, 70_000)), max_size=6))
    return RequestRecord(
        phase=draw(st.sampled_from(["warmup", "measured"])),
        index=draw(count),
        scheduled_s=draw(instant),
        planned_input_tokens=draw(count),
        planned_output_tokens=draw(count),
        sent_s=draw(st.none() | instant),
        first_token_s=draw(st.none() | instant),
        last_token_s=draw(st.none() | instant),
        end_s=draw(st.none() | instant),
        chunk_s=array("d", (at for at, _ in chunks)),
        chunk_tokens=array("q", (tokens for _, tokens in chunks)),
        prompt_tokens=draw(st.none() | count),
        cached_tokens=draw(st.none() | count),
        output_tokens=draw(st.none() | count),
        tokens_estimated=draw(st.booleans()),
        finish_reason=draw(text),
        status=draw(st.none() | st.integers(100, 599)),
        error=draw(st.none() | st.sampled_from(list(ErrorClass))),
        error_message=draw(text),
        bytes_received=draw(count),
        connection_reused=draw(st.booleans()),
    )


def assert_same(read: RequestRecord, written: RequestRecord) -> None:
    for field in fields(RequestRecord):
        got, expected = getattr(read, field.name), getattr(written, field.name)
        if field.name.endswith("_s") and expected is not None:
            assert got == pytest.approx(expected, abs=1e-9, rel=0), field.name
        else:
            assert got == expected, field.name
            assert type(got) is type(expected), field.name


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(requests(), max_size=5), st.integers(0, 3))
def test_requests_survive_their_file(
    tmp_path_factory: pytest.TempPathFactory, written: list[RequestRecord], windows: int
) -> None:
    path = tmp_path_factory.mktemp("npz") / "requests-tuned-confirm.npz"
    spans = [WindowSpan(START_S + 60 * k, START_S + 60 * (k + 1)) for k in range(windows)]
    write_requests(path, written, spans, ANCHOR)
    stored = read_requests(path)
    assert stored.spans == tuple(spans)
    assert stored.anchor == ANCHOR
    assert len(stored.requests) == len(written)
    for got, expected in zip(stored.requests, written, strict=True):
        assert_same(got, expected)


def test_stamps_that_were_equal_stay_equal(tmp_path: Path) -> None:
    stamps = array("d", (START_S + 0.1 * k + 1e-7 * k * k for k in range(500)))
    one = RequestRecord("measured", 0, START_S, 8, 500, first_token_s=stamps[0], last_token_s=stamps[-1])
    one.chunk_s.extend(stamps)
    one.chunk_tokens.extend([1] * 500)
    write_requests(tmp_path / "r.npz", [one], [WindowSpan(START_S, START_S + 60)], ANCHOR)
    read = read_requests(tmp_path / "r.npz").requests[0]
    assert (read.chunk_s[0], read.chunk_s[-1]) == (read.first_token_s, read.last_token_s)


def test_a_two_minute_window_takes_about_three_bytes_a_token(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    written = []
    for index in range(1300):
        stamps = START_S + 0.09 * index + np.cumsum(rng.normal(0.035, 0.003, 460))
        request = RequestRecord("measured", index, START_S, 1024, 460, chunk_s=array("d", stamps.tolist()))
        request.chunk_tokens.extend([1] * 460)
        written.append(request)
    path = tmp_path / "r.npz"
    write_requests(path, written, [WindowSpan(START_S, START_S + 120)], ANCHOR)
    assert path.stat().st_size < 3.5 * 1300 * 460


def test_pickles_are_neither_written_nor_read(tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    np.savez(path, meta=np.array([{"schema": "tokenwatt-requests/1"}], dtype=object))
    with pytest.raises(UsageError, match=r"damaged, or no file of tokenwatt-requests/1: .*pickle"):
        read_requests(path)


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 cut"])
def test_other_files_are_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r.npz"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read_requests(path)
    assert str(caught.value).startswith(f"{path}: damaged, or no file of tokenwatt-requests/1: ")


@pytest.mark.parametrize(
    ("at", "bits", "text"),
    [(8, 0x01, "password required"), (10, 0x40, "compression method"), (6, 0x7F, "zip file version")],
)
def test_a_file_whose_zip_asks_for_what_is_not_there_is_one_line(tmp_path: Path, at: int, bits: int, text: str) -> None:
    path = tmp_path / "r.npz"
    write_requests(path, [RequestRecord("measured", 0, START_S, 8, 8)], [], ANCHOR)
    content = bytearray(path.read_bytes())
    entry = content.index(b"PK\x01\x02")
    while entry >= 0:  # the same field of every member
        content[entry + at] |= bits
        entry = content.find(b"PK\x01\x02", entry + 4)
    path.write_bytes(content)
    with pytest.raises(UsageError, match=text) as caught:
        read_requests(path)
    assert "\n" not in str(caught.value)


def test_token_ids_are_not_stored_here(tmp_path: Path) -> None:
    ids = array("q", [3, 4])
    kept = RequestRecord("tail", 0, START_S, 2, 2, prompt_ids=ids, output_ids=ids)
    write_requests(tmp_path / "r.npz", [kept], [], ANCHOR)
    (read,) = read_requests(tmp_path / "r.npz").requests
    assert (read.phase, read.prompt_ids, read.output_ids) == ("tail", None, None)


def test_an_absent_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the requests cannot be read: No such file"):
        read_requests(tmp_path / "absent.npz")


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    write_requests(path, [RequestRecord("measured", 0, START_S, 8, 8)], [], ANCHOR)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(UsageError, match="damaged, or no file of"):
        read_requests(path)

"""Frames between coordinator and workers come back as they were, in any pieces."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.load.wire import (
    ClosedShare,
    FrameSplitter,
    Kind,
    Share,
    Tick,
    frame,
    pack_closed_share,
    pack_instant,
    pack_share,
    pack_target,
    pack_tick,
    unpack_closed_share,
    unpack_instant,
    unpack_share,
    unpack_target,
    unpack_tick,
)
from pytest_tokenwatt.load.wire_records import pack_progress, pack_records, unpack_progress, unpack_records
from pytest_tokenwatt.records import ClosedPlan, ErrorClass, RequestProgress, RequestRecord, Schedule, Target

instants = st.none() | st.floats(0, 1e9)
counts = st.integers(0, 2**40)
token_ids = st.none() | st.lists(counts, max_size=5).map(lambda ids: array("q", ids))
texts = st.none() | st.text(min_size=1, max_size=30).filter(
    lambda text: text.encode("utf-8", "ignore").decode() == text
)


@st.composite
def records(draw: st.DrawFn) -> RequestRecord:
    chunks = draw(st.lists(st.tuples(st.floats(0, 1e9), counts), max_size=5))
    return RequestRecord(
        phase=draw(st.sampled_from(["warmup", "measured", "tail"])),
        index=draw(counts),
        scheduled_s=draw(st.floats(0, 1e9)),
        planned_input_tokens=draw(counts),
        planned_output_tokens=draw(counts),
        sent_s=draw(instants),
        first_token_s=draw(instants),
        last_token_s=draw(instants),
        end_s=draw(instants),
        chunk_s=array("d", [stamp for stamp, _ in chunks]),
        chunk_tokens=array("q", [tokens for _, tokens in chunks]),
        prompt_tokens=draw(st.none() | counts),
        cached_tokens=draw(st.none() | counts),
        output_tokens=draw(st.none() | counts),
        tokens_estimated=draw(st.booleans()),
        finish_reason=draw(texts),
        status=draw(st.none() | st.integers(100, 599)),
        error=draw(st.none() | st.sampled_from(ErrorClass)),
        error_message=draw(texts),
        bytes_received=draw(counts),
        connection_reused=draw(st.booleans()),
        prompt_ids=draw(token_ids),
        output_ids=draw(token_ids),
    )


progress = st.builds(
    RequestProgress, counts, st.floats(0, 1e9), instants, instants, counts, instants, counts, st.booleans(),
    st.none() | st.sampled_from(ErrorClass),
)  # fmt: skip
lengths = st.lists(st.integers(1, 2**40), max_size=20)


@given(st.lists(records(), max_size=5))
def test_records_come_back(sent: list[RequestRecord]) -> None:
    found = list(unpack_records(pack_records(sent)))
    assert found == sent
    assert [(each.prompt_ids is None, each.output_ids is None) for each in found] == [
        (each.prompt_ids is None, each.output_ids is None) for each in sent
    ]


@given(st.lists(progress, max_size=9))
def test_progress_comes_back(sent: list[RequestProgress]) -> None:
    assert list(unpack_progress(pack_progress(sent))) == sent


@given(lengths, lengths, st.integers(0, 2**64 - 1), st.frozensets(counts, max_size=4))
def test_shares_come_back(warm: list[int], timed: list[int], key: int, kept: frozenset[int]) -> None:
    warmup, measured = (
        Schedule(array("d", map(float, tokens)), array("q", tokens), array("q", tokens), key)
        for tokens in (warm, timed)
    )
    share = Share(1, 3, warmup, measured, 300.0, 2731, kept)
    assert unpack_share(pack_share(share)) == share


closed_plans = st.builds(
    ClosedPlan, st.text(max_size=9), counts, counts, counts, counts, counts, st.integers(0, 2**64 - 1),
    st.floats(0, 1e9), counts, st.frozensets(counts, max_size=4), st.booleans(),
)  # fmt: skip


@given(closed_plans, counts, counts)
def test_shares_of_closed_loops_come_back(plan: ClosedPlan, worker: int, workers: int) -> None:
    share = ClosedShare(worker, workers, plan)
    assert unpack_closed_share(pack_closed_share(share)) == share


def test_targets_come_back_whole() -> None:
    target = Target(
        "http://h/v1", "m", "chat", "text", 9, frozenset({1, 5}), ignore_eos=False, extra_body={"a": [None, {"b": 1}]},
        headers={"Authorization": "Bearer x"}, ca_file="c", verify_tls=False, content_file="t",
    )  # fmt: skip
    assert unpack_target(pack_target(target)) == target


@given(st.lists(st.tuples(st.sampled_from(Kind), st.binary(max_size=40)), max_size=6), st.integers(1, 30))
def test_frames_come_back_in_any_pieces(sent: list[tuple[Kind, bytes]], size: int) -> None:
    stream = b"".join(frame(kind, payload) for kind, payload in sent)
    splitter = FrameSplitter()
    found = [part for start in range(0, len(stream), size) for part in splitter.feed(stream[start : start + size])]
    assert found == sent


def test_ticks_and_instants_come_back() -> None:
    tick = Tick(1.5, 2.5, 0.25, 3, 4, 5)
    assert unpack_tick(pack_tick(tick)) == tick
    assert unpack_instant(pack_instant(12.5, flag=True)) == (12.5, True)

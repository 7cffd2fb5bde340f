"""MBU: the decoded tokens of a window with their contexts, steps per second, and when there is no figure."""

from __future__ import annotations

import math
from array import array
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from metrics_builders import broken, chunked, cut, request

from pytest_tokenwatt.geometry.model import KvLayers, ModelGeometry
from pytest_tokenwatt.metrics.decode import DecodeWork, decode_work, mean_chunk_gap
from pytest_tokenwatt.metrics.mbu import engine_mbu, mbu
from pytest_tokenwatt.records import RatedBandwidth, Reason, RequestRecord, WindowSpan

H100 = RatedBandwidth(3.35, "data sheet")
# Qwen3-30B-A3B on one H100: FP8 weights, BF16 KV cache.
MOE = ModelGeometry(
    dense_bytes=1.554e9,
    kv=(KvLayers(48, 2048),),
    embedding_bytes=0.622e9,
    expert_bytes=226.5e6,
    experts=128,
    experts_per_token=8,
)
DENSE = ModelGeometry(16e9, (KvLayers(36, 4096),))


def contexts(work: DecodeWork) -> list[int]:
    """The context of every token."""
    runs = zip(work.first_context, work.tokens, strict=True)
    return sorted(int(first) + step for first, count in runs for step in range(int(count)))


def batch(requests: int, tokens: int = 301, gap_s: float = 0.02, prompt: int = 1000) -> list[RequestRecord]:
    """Requests that decode beside each other from second 0 on."""
    return [replace(request(tpot_s=gap_s, ttft_s=0.0, tokens=tokens), prompt_tokens=prompt)] * requests


def work_of(requests: int, seconds: float = 6.0) -> DecodeWork:
    return decode_work(batch(requests), [WindowSpan(0.0, seconds + 0.01)])


def test_tokens_behind_the_first_chunk_have_the_context_before_them() -> None:
    record = replace(chunked(0.0, [(0.1, 2), (0.2, 1), (0.3, 3), (0.4, 1)]), prompt_tokens=50)
    work = decode_work([record], [WindowSpan(0.0, 1.0)])

    assert contexts(work) == [52, 53, 54, 55, 56]
    assert work.mean_context == 54
    assert (work.total, work.chunks) == (5, 3)
    assert work.decode_s == pytest.approx(0.3)


def test_only_what_came_within_a_span_counts() -> None:
    record = replace(chunked(0.0, [(0.1, 1), (0.2, 1), (0.3, 1), (0.4, 1), (0.5, 1)]), prompt_tokens=10)

    assert contexts(decode_work([record], [WindowSpan(0.2, 0.4)])) == [11, 12]
    assert contexts(decode_work([record], [WindowSpan(0.0, 0.25), WindowSpan(0.45, 1.0)])) == [11, 14]
    assert contexts(decode_work([record], [WindowSpan(0.6, 1.0)])) == []


def test_a_prompt_that_the_server_did_not_count_is_as_planned() -> None:
    assert contexts(decode_work([replace(request(tokens=3), prompt_tokens=None)], [WindowSpan(0, 9)])) == [101, 102]


def test_requests_that_ended_badly_were_decoded_too() -> None:
    records = [cut(request(tokens=11), 0.151), broken(request())]

    assert contexts(decode_work(records, [WindowSpan(0, 9)])) == [101, 102]


def test_nothing_served_is_no_work() -> None:
    work = decode_work([], [WindowSpan(0, 9)])

    assert (work.total, work.mean_context, mean_chunk_gap(work)) == (0, None, None)


def test_the_chunk_gap_is_the_mean_over_chunks() -> None:
    fast, slow = request(tokens=11, tpot_s=0.01), request(tokens=31, tpot_s=0.03)

    gap = mean_chunk_gap(decode_work([fast, slow], [WindowSpan(0, 9)]))
    assert gap == pytest.approx((10 * 0.01 + 30 * 0.03) / 40)


@given(
    st.lists(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 4)), min_size=1, max_size=12), max_size=6),
    st.integers(0, 60),
    st.integers(1, 60),
)
def test_runs_hold_the_tokens_that_a_plain_loop_finds(
    streams: list[list[tuple[int, int]]], start: int, length: int
) -> None:
    records = []
    for stream in streams:
        stamps = np.cumsum([gap for gap, _ in stream]) / 100
        records.append(chunked(0.0, list(zip(stamps.tolist(), [tokens for _, tokens in stream], strict=True))))
    span = WindowSpan(start / 100, (start + length) / 100)
    expected = []
    for record in records:
        position, begun = 0, False
        for stamp, tokens in zip(record.chunk_s, record.chunk_tokens, strict=True):
            inside = begun and span.start_s <= stamp < span.end_s
            expected += [100 + position + step for step in range(tokens) if inside]
            position, begun = position + tokens, begun or tokens > 0

    assert contexts(decode_work(records, [span])) == sorted(expected)


def test_a_hundred_thousand_requests_are_counted_without_a_list_of_their_tokens() -> None:
    record = RequestRecord(
        "measured",
        0,
        0.0,
        1000,
        300,
        chunk_s=array("d", [step * 0.02 for step in range(300)]),
        chunk_tokens=array("q", [1] * 300),
    )
    work = decode_work([record] * 100_000, [WindowSpan(0, 3), WindowSpan(3, 9)])

    assert (work.total, len(work.tokens)) == (29_900_000, 200_000)
    assert work.mean_context == pytest.approx(1150)


def test_a_dense_model_reads_its_weights_each_step_and_the_cache_for_each_token() -> None:
    # 10 requests x 300 decoded tokens in 6 s at 50 steps/s, contexts 1001 ... 1300.
    figure = mbu(DENSE, H100, 1, work_of(10), None, 6.0)

    expected = 50 * 16e9 + 500 * 1150.5 * 36 * 4096
    assert figure.value == pytest.approx(100 * expected / 3.35e12, rel=1e-3)
    assert (figure.unit, figure.n, figure.reason) == ("%", 3000, None)


def test_experts_are_read_by_the_tokens_of_a_step() -> None:
    figure = mbu(MOE, H100, 1, work_of(16), 50.0, 6.0)

    experts = 128 * (1 - (1 - 8 / 128) ** 16)
    assert experts == pytest.approx(82.4, abs=0.05)
    expected = 50 * (1.554e9 + experts * 226.5e6) + 800 * 1150.5 * 98_304
    assert figure.value == pytest.approx(100 * expected / 3.35e12, rel=1e-3)


def test_the_servers_step_count_wins_over_the_gap() -> None:
    by_gap, counted = mbu(DENSE, H100, 1, work_of(10), None, 6.0), mbu(DENSE, H100, 1, work_of(10), 60.0, 6.0)

    assert by_gap.value is not None
    assert counted.value == pytest.approx(by_gap.value + 100 * 10 * 16e9 / 3.35e12, rel=1e-3)
    for unusable in (0.0, -1.0, math.nan, math.inf):
        assert mbu(DENSE, H100, 1, work_of(10), unusable, 6.0) == by_gap


def test_replicas_step_on_their_own_and_share_the_batch() -> None:
    one = mbu(MOE, H100, 1, work_of(16), None, 6.0)
    two = mbu(MOE, H100, 2, work_of(32), None, 6.0, replicas=2)
    alone = mbu(MOE, H100, 2, work_of(32), None, 6.0)

    assert two.value == pytest.approx(one.value)
    assert alone.value is not None
    assert two.value is not None
    assert alone.value < two.value


def test_an_engine_that_idles_steps_no_more_than_once_a_chunk() -> None:
    work = decode_work(batch(1), [WindowSpan(0, 60)])

    figure = mbu(DENSE, H100, 1, work, None, 60.0)
    assert figure.value == pytest.approx(100 * (5 * 16e9 + 5 * 1150.5 * 36 * 4096) / 3.35e12, rel=1e-3)


@pytest.mark.parametrize(
    ("geometry", "bandwidth", "work", "reason"),
    [
        (Reason("geometry_unknown", "hidden_size is missing"), H100, work_of(4), "geometry_unknown: hidden_size"),
        (replace(MOE, problem=Reason("unknown_topology", "experts")), H100, work_of(4), "unknown_topology: experts"),
        (DENSE, None, work_of(4), "bandwidth_unknown"),
        (DENSE, H100, decode_work([], []), "no_decode_tokens"),
        (DENSE, RatedBandwidth(0.5, "spec"), work_of(4), "implausible: 167 %"),
    ],
)
def test_there_is_no_figure_without_its_parts(
    geometry: ModelGeometry | Reason, bandwidth: RatedBandwidth | None, work: DecodeWork, reason: str
) -> None:
    figure = mbu(geometry, bandwidth, 1, work, None, 6.0)

    assert figure.value is None
    assert figure.reason is not None
    assert figure.reason.startswith(reason)


def test_several_tokens_a_step_are_no_plain_decoding() -> None:
    speculative = [chunked(0.0, [(0.02 * step, 2) for step in range(301)])] * 10
    work = decode_work(speculative, [WindowSpan(0, 9)])

    for steps_s in (None, 50.0):
        figure = mbu(DENSE, H100, 1, work, steps_s, 6.0)
        assert figure.value is None
        assert (figure.reason or "").startswith("unknown_topology: 2.00 tokens a step")


def test_chunks_that_hold_several_steps_do_not_matter_where_steps_are_counted() -> None:
    gathered = [chunked(0.0, [(0.04 * step, 2) for step in range(151)])] * 10
    work = decode_work(gathered, [WindowSpan(0, 9)])

    assert mbu(DENSE, H100, 1, work, None, 6.0).value is None
    assert mbu(DENSE, H100, 1, work, 50.0, 6.0).value is not None


def test_tokens_that_come_all_at_once_tell_no_steps() -> None:
    work = decode_work([chunked(0.0, [(0.1, 1), (0.1, 1), (0.1, 1)])], [WindowSpan(0, 9)])

    assert (mbu(DENSE, H100, 1, work, None, 9.0).reason or "").startswith("steps_unknown")


def test_the_engines_own_estimate_counts_only_when_there_is_one() -> None:
    assert engine_mbu(1.675e12, H100).value == pytest.approx(50)
    for nothing in (None, 0.0, -1.0, math.nan):
        assert (engine_mbu(nothing, H100).reason or "").startswith("not_exported")
    assert (engine_mbu(1e12, None).reason or "").startswith("bandwidth_unknown")
    assert engine_mbu(4e12, H100).reason == "implausible: 119 %"

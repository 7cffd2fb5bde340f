from __future__ import annotations

import math
from dataclasses import replace

import pytest
from metrics_builders import broken, chunked, cut, request

from pytest_tokenwatt.metrics.certainty import Standing
from pytest_tokenwatt.metrics.latency import (
    e2e_s,
    failed,
    itl_samples,
    progress,
    tpot_s,
    ttft_from_send_s,
    ttft_s,
    unfinished,
)
from pytest_tokenwatt.metrics.samples import own_percentile_s, percentiles, stands, take_samples
from pytest_tokenwatt.records import ErrorClass, SloBound

TTFT = SloBound("ttft", 99, 2000)
TPOT = SloBound("tpot", 99, 50)
E2E = SloBound("e2e", 99, 10_000)


def test_latencies_count_from_the_scheduled_instant() -> None:
    late = replace(request(10.0, ttft_s=3.33, tpot_s=0.02, tokens=11), sent_s=12.8)
    assert ttft_s(late) == pytest.approx(3.33)
    assert ttft_from_send_s(late) == pytest.approx(0.53)
    assert e2e_s(late) == pytest.approx(3.53)
    assert tpot_s(late) == pytest.approx(0.02)


def test_tpot_divides_by_the_tokens_behind_the_first_chunk() -> None:
    assert tpot_s(chunked(0.0, [(0.2, 3), (0.5, 2), (0.8, 4)])) == pytest.approx(0.6 / 6)


def test_tpot_counts_what_the_server_counted() -> None:
    assert tpot_s(replace(chunked(0.0, [(0.2, 1), (1.2, 1)]), output_tokens=11)) == pytest.approx(0.1)


@pytest.mark.parametrize("chunks", [[(0.2, 1)], [(0.2, 5)]])
def test_a_request_of_one_chunk_has_no_tpot_and_no_gaps(chunks: list[tuple[float, int]]) -> None:
    record = chunked(0.0, chunks)
    assert tpot_s(record) is None
    assert len(itl_samples(record)[0]) == 0
    assert stands(record, TPOT, 100.0) is Standing.ABSENT


def test_gaps_weigh_by_the_tokens_of_their_chunk() -> None:
    gaps, counts = itl_samples(chunked(0.0, [(0.2, 1), (0.3, 1), (0.7, 4)]))
    assert gaps == pytest.approx([0.1, 0.1])
    assert counts.tolist() == [1, 4]


@pytest.mark.parametrize("error", [each for each in ErrorClass if each is not ErrorClass.ABORTED])
def test_a_failed_request_is_infinite_in_every_latency(error: ErrorClass) -> None:
    record = replace(request(), error=error)
    assert failed(record)
    assert (ttft_s(record), tpot_s(record), e2e_s(record)) == (math.inf, math.inf, math.inf)
    gaps, counts = itl_samples(record)
    assert (gaps.tolist(), counts.tolist()) == ([math.inf], [10])
    assert {stands(record, bound, 0.0) for bound in (TTFT, TPOT, E2E)} == {Standing.MISSED}


def test_an_end_without_a_token_is_a_failure_and_not_a_ttft_of_zero() -> None:
    silent = replace(broken(request()), error=None)
    assert failed(silent)
    assert ttft_s(silent) == math.inf
    assert progress(silent).error is ErrorClass.NO_TOKENS


def test_our_own_abort_is_no_failure() -> None:
    record = cut(request(0.0, ttft_s=0.1, tokens=50), 0.5)
    assert unfinished(record)
    assert not failed(record)
    assert ttft_s(record) == pytest.approx(0.1)
    assert e2e_s(record) is None
    assert not progress(record).ended


@pytest.mark.parametrize(
    ("record", "bound", "standing"),
    [
        (cut(request(0.0, ttft_s=5.0), 1.9), TTFT, Standing.OPEN),
        (cut(request(0.0, ttft_s=5.0), 2.1), TTFT, Standing.MISSED),
        (cut(request(0.0, ttft_s=0.5, tokens=400), 1.0), TTFT, Standing.MET),
        (cut(request(0.0, tpot_s=0.04, tokens=400), 5.1), TPOT, Standing.OPEN),
        (cut(request(0.0, tpot_s=0.04, tokens=400), 5.4), TPOT, Standing.MET),
        (cut(request(0.0, tpot_s=0.06, tokens=400), 8.0), TPOT, Standing.MISSED),
        (cut(request(0.0, tpot_s=1.0, tokens=100), 4.9), TPOT, Standing.OPEN),
        (cut(request(0.0, tpot_s=1.0, tokens=100), 5.2), TPOT, Standing.MISSED),
        (cut(request(0.0, tokens=1000), 9.9), E2E, Standing.OPEN),
        (cut(request(0.0, tokens=1000), 10.1), E2E, Standing.MISSED),
    ],
)
def test_an_aborted_request_stands_where_it_stood_then(record: object, bound: SloBound, standing: Standing) -> None:
    assert stands(record, bound, 1e9) is standing  # type: ignore[arg-type]


def test_what_is_open_is_left_out_and_what_is_certainly_missed_is_infinite() -> None:
    aborted = [cut(request(0.0, ttft_s=5.0), 1.0), cut(request(0.0, ttft_s=5.0), 3.0), request(0.0)]
    sample = take_samples(aborted, [TTFT], 3.0).ttft
    assert sample.values.tolist() == pytest.approx([0.1, math.inf])


def test_a_running_request_is_judged_by_its_tpot_from_128_tokens_on() -> None:
    short = cut(request(0.0, ttft_s=0.0, tpot_s=0.01, tokens=500), 1.265)
    long = cut(request(0.0, ttft_s=0.0, tpot_s=0.01, tokens=500), 1.275)
    assert (len(short.chunk_s), len(long.chunk_s)) == (127, 128)
    assert tpot_s(short) is None
    assert tpot_s(long) == pytest.approx(0.01)
    assert take_samples([short, long], [], 2.0).itl.n == 127


def test_unfinished_requests_leave_only_those_e2e_percentiles_that_they_cannot_change() -> None:
    finished = [request(0.0, tokens=11, tpot_s=0.01) for _ in range(150)]
    running = [cut(request(0.0, tokens=1000), 9.0) for _ in range(10)]
    found = {p.name: p.value_ms for p in percentiles(take_samples(finished + running, [], 9.0), [])}
    assert found["e2e_p50_ms"] == pytest.approx(200)
    assert found["e2e_p99_ms"] is None
    assert found["ttft_p99_ms"] == pytest.approx(100)


def test_a_percentile_that_no_slo_asks_for_is_refused_on_a_small_sample() -> None:
    samples = take_samples([request() for _ in range(8)], [], 9.0)
    found = {p.name: p for p in percentiles(samples, [SloBound("ttft", 95, 500)])}
    assert found["tpot_p99_ms"].value_ms is None
    assert not found["tpot_p99_ms"].infinite
    assert found["tpot_p99_ms"].n == 8
    assert found["ttft_p95_ms"].value_ms == pytest.approx(100)
    assert found["ttft_p95_ms"].bound_ms == 500


def test_a_requests_own_itl_percentile_sees_its_stalls() -> None:
    record = chunked(0.0, [(0.0, 1), *[(0.01 * n, 1) for n in range(1, 50)], (1.0, 1)])
    assert own_percentile_s(record, 50) == pytest.approx(0.01)
    assert own_percentile_s(record, 99) == pytest.approx(0.51)

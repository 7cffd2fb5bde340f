"""The client against the server of known timing: what must hold however busy the machine is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bench_client import COLUMNS, mean, measure, row, table, tpot_ms, ttft_ms
from known_timing import compile_server, compiler, running

pytestmark = pytest.mark.skipif(
    compiler() is None or sys.platform != "linux", reason="the server of known timing needs Linux and a C compiler"
)


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_server(tmp_path_factory.mktemp("known"))


@pytest.mark.slow
@pytest.mark.parametrize("ids", [True, False])
def test_nothing_is_early_and_nothing_is_lost(binary: Path, tmp_path: Path, ids: bool) -> None:
    with running(binary, 50, 10, ids=ids) as server:
        run = measure(server, 60, 30, 1.0, tmp_path / "load.log", warmup_s=0.2)
    span = run.spans[0]
    records = [r for r in run.requests if r.phase == "measured" and r.scheduled_s < span.end_s]
    assert len(records) == sum(1 for offset in run.plan.measured.offset_s if offset < 1.0) > 30
    assert all(record.ok for record in records), {record.error_message for record in records}
    assert {record.output_tokens for record in records} == {30}
    assert {record.prompt_tokens for record in records} == {64}
    assert {sum(record.chunk_tokens) for record in records} == {30}
    assert {record.tokens_estimated for record in records} == {not ids}
    assert min(ttft_ms(record, record.sent_s) for record in records) >= 50
    assert all(ttft_ms(record, record.scheduled_s) >= ttft_ms(record, record.sent_s) for record in records)
    assert mean([tpot_ms(record) for record in records]) == pytest.approx(10, rel=0.2)
    assert server.lateness["requests"] >= len(records)


def test_the_table_has_a_line_for_each_rate(binary: Path, tmp_path: Path) -> None:
    with running(binary, 5, 1, ids=True) as server:
        run = measure(server, 20, 5, 0.5, tmp_path / "load.log", warmup_s=0.2)
    lines = table([row(run, server)] * 2).split("\n")
    assert len(lines) == 3
    assert all(heading in lines[0] for heading, _ in COLUMNS)

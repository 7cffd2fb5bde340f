"""Audits with the embedded engine as baseline: honest precisions pass the usual limits, canned text does not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest
from embedded_engine import Engine, running

from pytest_tokenwatt.quality.audit import audit_run
from pytest_tokenwatt.records import Client
from pytest_tokenwatt.records.audit import AuditRecord, Served

PROMPTS = np.random.default_rng(5).integers(8, 512, (12, 96)).tolist()
"""Random ids, as timed prompts are."""
TOKENS = 32


@pytest.fixture(scope="module")
def baseline() -> Iterator[Engine]:
    with running() as engine:
        yield engine


async def served(client: Client, *, ignore_eos: bool) -> list[Served]:
    async def one(prompt: list[int]) -> Served:
        eos = {"ignore_eos": True} if ignore_eos else {}
        reply = await client.complete(prompt, max_tokens=TOKENS, temperature=0, return_token_ids=True, **eos)
        return Served("timed", tuple(prompt), reply.token_ids or (), TOKENS, ignore_eos)

    return await asyncio.gather(*map(one, PROMPTS))


def audit(baseline: Engine, *options: str, ignore_eos: bool = True) -> AuditRecord:
    with running(*options) as candidate:
        outputs = candidate.do(served(candidate.client, ignore_eos=ignore_eos))
    return baseline.do(audit_run("serve-r0", outputs, baseline.client, max_model_len=4096))


def within_limits(record: AuditRecord) -> bool:
    """The limits of an ``audit:`` block that says nothing else."""
    assert record.status == "audited"
    assert record.gap_median is not None
    assert record.length_ratio is not None
    return record.gap_median <= 0.5 and record.empty_alone <= 1 and record.length_ratio >= 0.8


def test_the_same_engine_has_no_gap(baseline: Engine) -> None:
    record = audit(baseline)
    assert within_limits(record)
    assert (record.gap, record.gap_max, record.engine_top1, record.bf16_top1) == (0.0, 0.0, 1.0, 1.0)
    assert (record.picked, record.samples, record.length_ratio_min) == (12, 12, 1.0)


@pytest.mark.parametrize("precision", ["fp8", "int4"])
def test_an_honest_precision_passes_and_is_seen(baseline: Engine, precision: str) -> None:
    record = audit(baseline, "--kv-cache-dtype", precision, ignore_eos=precision == "int4")
    assert within_limits(record)
    assert record.top1_gap is not None
    assert (0.0 < record.top1_gap < 0.05) if precision == "fp8" else (0.05 < record.top1_gap < 0.4)


def test_canned_text_fails_by_its_gap(baseline: Engine) -> None:
    record = audit(baseline, "--fault", "canned")
    assert not within_limits(record)
    assert record.gap_median is not None
    assert record.gap_median > 5
    assert (record.length_ratio, record.empty_alone) == (1.0, 0)

"""How long a step takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_tokenwatt.sim.profile import PROFILES, Weights
from pytest_tokenwatt.sim.steptime import Batch, StepTime

H100 = PROFILES["h100-qwen3-30b-a3b-fp8"]
BATCHES = st.builds(
    Batch,
    decodes=st.integers(0, 500),
    context=st.integers(0, 1_000_000),
    prefill=st.integers(0, 8192),
    pairs=st.integers(0, 40_000_000),
)


def test_experts_read_by_a_step_follow_the_expected_number_of_different_picks() -> None:
    weights = Weights(dense_bytes=0, expert_bytes=1, experts=128, experts_per_token=8)

    assert weights.read_bytes(1) == pytest.approx(8)
    assert weights.read_bytes(16) == pytest.approx(82.4, abs=0.05)
    assert weights.read_bytes(10_000) == pytest.approx(weights.stored_bytes)


def test_the_reference_model_has_the_size_of_its_checkpoint_and_of_its_kv_cache() -> None:
    assert H100.weights.stored_bytes == pytest.approx(31.2e9, rel=0.01)
    assert H100.kv_formats["auto"].bytes_per_token == 2 * 48 * 4 * 128 * 2
    assert H100.limits("fp8").blocks == pytest.approx(2 * H100.limits("auto").blocks, abs=1)


def test_reading_the_kv_cache_costs_less_when_it_is_smaller() -> None:
    batch = Batch(decodes=150, context=330_000, prefill=0, pairs=0)

    seconds = [StepTime(H100, kv_dtype)(batch) for kv_dtype in ("auto", "fp8", "int4")]

    assert seconds == sorted(seconds, reverse=True)
    assert 0.020 < seconds[1] < seconds[0] < 0.030


def test_a_full_prefill_step_takes_as_long_as_its_arithmetic() -> None:
    batch = Batch(decodes=0, context=0, prefill=8192, pairs=8192 * 8193 // 2)

    assert 0.12 < StepTime(H100, "auto")(batch) < 0.20


@given(batch=BATCHES, slowdown=st.floats(0.5, 3))
def test_slowdown_stretches_every_step(batch: Batch, slowdown: float) -> None:
    assert StepTime(H100, "fp8", slowdown)(batch) == pytest.approx(slowdown * StepTime(H100, "fp8")(batch))


@given(batch=BATCHES, more=BATCHES)
def test_more_work_never_takes_less_time(batch: Batch, more: Batch) -> None:
    both = Batch(
        batch.decodes + more.decodes,
        batch.context + more.context,
        batch.prefill + more.prefill,
        batch.pairs + more.pairs,
    )

    assert StepTime(H100, "auto")(both) >= StepTime(H100, "auto")(batch)

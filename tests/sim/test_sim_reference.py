"""The profile of the reference hardware lands near what was published of it."""

from __future__ import annotations

import pytest
from reference_runs import ONE_QUICK, measured

# A lab report of vLLM 0.31 on one H100 SXM with Qwen3-30B-A3B FP8, chat-mix-v1, TTFT p99 2 s, TPOT p99 50 ms:
# goodput in tok/s, TTFT p99 and TPOT p99 in ms by KV cache type.
PUBLISHED = {"auto": (4572.3, 340.0, 44.6), "fp8": (5056.9, 352.0, 43.7)}


@pytest.mark.parametrize("seed", ONE_QUICK)
@pytest.mark.parametrize("kv_dtype", ["auto", "fp8"])
def test_goodput_lands_within_a_tenth_of_the_reference(kv_dtype: str, seed: int) -> None:
    record = measured(kv_dtype, seed).record

    assert record.goodput_tok_s == pytest.approx(PUBLISHED[kv_dtype][0], rel=0.10)
    assert record.slo_pass_count == record.repeats == 2


@pytest.mark.parametrize("seed", ONE_QUICK)
def test_fp8_kv_cache_beats_bf16(seed: int) -> None:
    assert (measured("fp8", seed).record.goodput_tok_s or 0) > (measured("auto", seed).record.goodput_tok_s or 0)


@pytest.mark.parametrize("kv_dtype", ["auto", "fp8"])
def test_latencies_at_the_rate_found_are_those_of_the_reference(kv_dtype: str) -> None:
    latencies = {percentile.name: percentile.value_ms for percentile in measured(kv_dtype, 0).record.percentiles}
    _, ttft_p99_ms, tpot_p99_ms = PUBLISHED[kv_dtype]

    assert latencies["ttft_p99_ms"] == pytest.approx(ttft_p99_ms, rel=0.35)
    assert latencies["tpot_p99_ms"] == pytest.approx(tpot_p99_ms, rel=0.15)

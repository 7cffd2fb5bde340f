"""The search finds the capacity, and the goodput gate tells an equal engine from a slower one."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import pytest
from stepped_lab import Measurement, SteppedLab, Sweep, chat_mix, short_turns

from pytest_tokenwatt.gates.judge import judge
from pytest_tokenwatt.records import DEFAULT_SCENARIO, ConfigRecord, GateSpec, GoodputRecord, Verdict
from pytest_tokenwatt.sim.profile import PROFILES

PROFILE = PROFILES["quickstart"]
FINE = Sweep(start_rps=40, growth=1.25, bisect_steps=4, backoff=0.98, max_backoffs=10)
STEP = 1.01
GATE = GateSpec(
    config="tuned",
    gate="goodput",
    kind="goodput",
    param=None,
    scenario=DEFAULT_SCENARIO,
    needs="goodput",
    mode="enforce",
    on_inconclusive="fail",
    line=None,
    limits={"min": 0.95, "min_tok_s": None, "min_rps": None},
)


def lab(seed: int, window_s: float) -> SteppedLab:
    measurement = Measurement(
        warmup_s=3, warmup_max_s=10, window_s=window_s, search_window_s=window_s, request_timeout_s=30
    )
    return SteppedLab(PROFILE, short_turns(PROFILE), FINE, measurement, seed)


def passes(searched: SteppedLab, kv_dtype: str, rate_rps: float) -> bool:
    fixed = replace(searched, sweep=replace(searched.sweep, rates=(rate_rps,)))
    return fixed.measure(kv_dtype=kv_dtype, noise_seed=99).rate_rps is not None


def swept_capacity(searched: SteppedLab, kv_dtype: str, near_rps: float) -> float:
    """Walk in steps of 1 % from the nearby rate to the last one that passes before the first that fails."""
    rate_rps = near_rps
    while not passes(searched, kv_dtype, rate_rps):
        rate_rps /= STEP
    while passes(searched, kv_dtype, rate_rps * STEP):
        rate_rps *= STEP
    return rate_rps


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kv_dtype", ["auto", pytest.param("fp8", marks=pytest.mark.slow)])
def test_the_rate_found_is_the_capacity_that_a_fine_sweep_finds(kv_dtype: str, seed: int) -> None:
    searched = lab(seed, window_s=40)

    record = searched.measure(kv_dtype=kv_dtype, noise_seed=seed)

    assert record.rate_rps is not None
    assert record.rate_rps == pytest.approx(swept_capacity(searched, kv_dtype, record.rate_rps), rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kv_dtype", ["auto", "fp8"])
def test_so_it_is_on_the_reference_hardware_with_its_long_tailed_traffic(kv_dtype: str, seed: int) -> None:
    profile = PROFILES["h100-qwen3-30b-a3b-fp8"]
    sweep = replace(FINE, start_rps=6, max_backoffs=12)
    searched = SteppedLab(profile, chat_mix(profile), sweep, Measurement(search_window_s=120), seed)

    record = searched.measure(kv_dtype=kv_dtype, noise_seed=seed)

    assert record.rate_rps is not None
    assert record.rate_rps == pytest.approx(swept_capacity(searched, kv_dtype, record.rate_rps), rel=0.05)


def configuration(key: str, record: GoodputRecord) -> ConfigRecord:
    return ConfigRecord(
        key=key,
        role=key,
        label=key,
        like=None,
        identity=None,
        fingerprint=None,
        contract=None,
        scenarios={DEFAULT_SCENARIO: record},
        invalid=(),
        not_covered=(),
        launch={},
        minutes={},
    )


def verdicts(seed: int) -> tuple[Verdict, Verdict]:
    """The goodput gate of the same engine again, and of one whose steps take 15 % longer, under one workload draw."""
    trial = lab(seed, window_s=20)
    baseline = configuration("baseline", trial.measure(noise_seed=3 * seed))
    again = configuration("tuned", trial.measure(noise_seed=3 * seed + 1))
    slower = configuration("tuned", trial.measure(noise_seed=3 * seed + 2, slowdown=1.15))
    return judge(GATE, again, baseline).verdict, judge(GATE, slower, baseline).verdict


def judged(seeds: range) -> tuple[Counter[Verdict], Counter[Verdict]]:
    """How often each verdict fell, on two processes; spawned, since a fork would inherit pytest's threads."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        pairs = list(pool.map(verdicts, seeds, chunksize=2))
    return Counter(again for again, _ in pairs), Counter(slower for _, slower in pairs)


@pytest.mark.slow
def test_the_goodput_gate_over_a_hundred_seeds() -> None:
    again, slower = judged(range(100))

    assert again[Verdict.FAIL] <= 2
    assert again[Verdict.PASS] >= 95
    assert slower[Verdict.FAIL] >= 95

"""Power, energy and throttling of the embedded engine on virtual time: physics, and the reference's figures."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference_runs import H100, ONE_QUICK, Measured, measured
from stepped_lab import Measurement, SteppedLab, Sweep, chat_mix, short_turns

from pytest_tokenwatt.geometry.bandwidth import rated_bandwidth
from pytest_tokenwatt.geometry.config import load_geometry
from pytest_tokenwatt.metrics.mbu import mbu
from pytest_tokenwatt.power.integrate import window_power
from pytest_tokenwatt.records import WindowPower
from pytest_tokenwatt.sim.energy import GPU_IDLE, SW_POWER_CAP, EnergyMeter
from pytest_tokenwatt.sim.power import Phase, StepPower
from pytest_tokenwatt.sim.profile import PROFILES, Profile
from pytest_tokenwatt.sim.stepped import SteppedLoad
from pytest_tokenwatt.sim.steptime import Batch
from pytest_tokenwatt.spec.model import Model

# The served model's config.json, as published.
QWEN3_30B_A3B_FP8 = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "tie_word_embeddings": False,
    "vocab_size": 151936,
    "quantization_config": {
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": ["lm_head", *(f"model.layers.{layer}.mlp.gate" for layer in range(48))],
    },
}

QUICKSTART = PROFILES["quickstart"]
MODEL = QUICKSTART.board.power
DECODE = Batch(decodes=150, context=330_000, prefill=0, pairs=0)
PREFILL = Batch(decodes=0, context=0, prefill=8192, pairs=8192 * 8193 // 2)

# Of the lab report that test_sim_reference.py describes: kW, tokens per joule, samples of 240 with the power cap, MBU.
PUBLISHED = {"auto": (0.637, 7.178, 199, 56.6), "fp8": (0.616, 8.209, 133, 45.3)}


def mean_w(phases: tuple[Phase, ...]) -> float:
    return sum(phase.share * phase.watts for phase in phases)


def window_powers(run: Measured) -> list[WindowPower]:
    return [window_power(run.trace, window.start_s, window.end_s) for window in run.windows]


def energy_j(run: Measured) -> float:
    return sum(power.energy_j or float("nan") for power in window_powers(run))


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
@given(
    batch=st.builds(
        Batch,
        decodes=st.integers(0, 500),
        context=st.integers(0, 1_000_000),
        prefill=st.integers(1, 8192),
        pairs=st.integers(0, 40_000_000),
    ),
    kv_dtype=st.sampled_from(["auto", "fp8", "int4"]),
)
def test_a_step_draws_between_its_idle_power_and_the_limit(profile: Profile, batch: Batch, kv_dtype: str) -> None:
    board = profile.board.power
    phases = StepPower(profile, kv_dtype)(batch)

    assert sum(phase.share for phase in phases) == pytest.approx(1)
    assert board.idle_w < min(phase.watts for phase in phases)
    assert max(phase.watts for phase in phases) <= board.cap_w < board.limit_w
    assert all(phase.watts == board.cap_w for phase in phases if phase.capped)


def test_decoding_over_a_bf16_kv_cache_hits_the_cap_and_over_an_fp8_one_does_not() -> None:
    linear, attention, host = StepPower(H100, "auto")(DECODE)
    assert (linear.capped, attention.capped, host.capped) == (True, True, False)

    linear, attention, host = StepPower(H100, "fp8")(DECODE)
    assert (linear.capped, attention.capped, host.capped) == (True, False, False)
    assert mean_w(StepPower(H100, "fp8")(DECODE)) < mean_w(StepPower(H100, "auto")(DECODE))


def test_prefill_hits_the_cap() -> None:
    linear, attention, _ = StepPower(H100, "fp8")(PREFILL)

    assert linear.capped
    assert attention.capped


def test_slower_clocks_draw_less() -> None:
    assert mean_w(StepPower(H100, "fp8", clock=0.5)(DECODE)) < 0.85 * mean_w(StepPower(H100, "fp8")(DECODE))


GAPS = st.lists(st.tuples(st.floats(0, 0.5), st.floats(1e-4, 0.5), st.booleans()), min_size=1, max_size=30)


def metered(gaps: list[tuple[float, float, bool]]) -> tuple[EnergyMeter, float]:
    """A meter that has seen steps of those (idle before, duration, capped), and when the last one ended."""
    meter, now_s = EnergyMeter(MODEL, 0.0), 0.0
    for idle_s, step_s, capped in gaps:
        busy = Phase(0.7, MODEL.cap_w if capped else 40.0, capped)
        meter.add(now_s + idle_s, now_s + idle_s + step_s, (busy, Phase(0.3, MODEL.active_w, False)))
        now_s += idle_s + step_s
    return meter, now_s


@given(gaps=GAPS)
def test_the_counter_rises_by_what_was_drawn_and_the_sensor_shows_the_mean_of_late(
    gaps: list[tuple[float, float, bool]],
) -> None:
    meter, end_s = metered(gaps)
    at_s = np.linspace(0.0, end_s + 1, 500)
    risen_j = np.diff(meter.energy_j(at_s))

    busy_j = sum(
        (0.7 * (MODEL.cap_w if capped else 40.0) + 0.3 * MODEL.active_w) * step_s for _, step_s, capped in gaps
    )
    idle_s = 1 + sum(gap[0] for gap in gaps)
    assert risen_j.sum() == pytest.approx(busy_j + idle_s * MODEL.idle_w)
    assert risen_j.min() >= MODEL.idle_w * at_s[1] * (1 - 1e-6)
    assert risen_j.max() <= MODEL.limit_w * at_s[1]
    assert meter.watts(at_s)[-1] == pytest.approx(MODEL.idle_w)
    assert np.all(meter.watts(at_s) < MODEL.limit_w)
    capped_s = sum(0.7 * step_s for _, step_s, capped in gaps if capped)
    assert meter.capped_ns(at_s)[-1] == pytest.approx(1e9 * capped_s, abs=2)


def test_reasons_are_those_of_the_phase_under_way() -> None:
    meter, _ = metered([(1.0, 1.0, True), (1.0, 1.0, False)])

    bits = meter.reasons(np.array([0.5, 1.5, 1.9, 2.5, 3.5, 9.0]))

    assert bits.tolist() == [GPU_IDLE, SW_POWER_CAP, 0, GPU_IDLE, 0, GPU_IDLE]


@given(gaps=GAPS, before=st.floats(0, 1))
def test_forgetting_the_past_leaves_the_present_as_it_was(gaps: list[tuple[float, float, bool]], before: float) -> None:
    meter, end_s = metered(gaps)
    at_s = np.linspace(before * end_s + MODEL.sensor_average_s, end_s + 1, 50)
    known = [read(at_s).tolist() for read in (meter.watts, meter.energy_j, meter.capped_ns, meter.reasons)]

    meter.forget(before * end_s)

    assert [read(at_s).tolist() for read in (meter.watts, meter.energy_j, meter.capped_ns, meter.reasons)] == known


def test_an_engine_that_has_run_nothing_is_idle() -> None:
    trace = SteppedLoad(QUICKSTART).power(10.0)

    assert list(trace.sensors[0].watts) == pytest.approx([MODEL.idle_w])
    assert list(trace.sensors[0].reasons) == [GPU_IDLE]


def test_a_stepped_trace_is_what_a_sampler_would_have_recorded() -> None:
    trace = measured("auto", 0).trace
    sensor = trace.sensors[0]

    assert (trace.source, trace.kind, trace.sampling_hz) == ("simulated", "board", 1.0)
    assert "simulated" in trace.label
    assert (sensor.info.sensor, sensor.info.limit_w) == ("SIM-h100-qwen3-30b-a3b-fp8-0", 700.0)
    assert sensor.info.bandwidth_tbs == pytest.approx(3.35)
    assert len(sensor.power_s) == len(sensor.watts) == len(sensor.reasons) == len(trace.lateness_ms)
    assert np.diff(sensor.counter_s)[:-1].max() == pytest.approx(0.1)
    assert all(early < late for early, late in pairwise(sensor.counter_j))
    assert all(early <= late for early, late in pairwise(sensor.throttle_ns["sw_power_cap"]))


def test_power_may_be_asked_at_any_time_and_rate() -> None:
    engine = SteppedLoad(QUICKSTART)
    lab = SteppedLab(QUICKSTART, short_turns(QUICKSTART), Sweep(rates=(40.0,)), Measurement(2, 4, 5, 5, 1, 30))
    lab.measure_on(engine)
    early = engine.power(5.0).sensors[0]
    lab.measure_on(engine)
    late = engine.power(5.0).sensors[0]

    # The last of the early samples is off the grid, at the instant of asking.
    assert late.watts[: len(early.watts) - 1] == early.watts[:-1]
    assert late.counter_j[: len(early.counter_j) - 1] == early.counter_j[:-1]
    assert late.power_s[-1] > early.power_s[-1]


@pytest.mark.parametrize("seed", ONE_QUICK)
@pytest.mark.parametrize("kv_dtype", ["auto", "fp8"])
def test_power_and_tokens_per_joule_land_within_a_tenth_of_the_reference(kv_dtype: str, seed: int) -> None:
    run = measured(kv_dtype, seed)
    node_kw, tokens_per_joule, _, _ = PUBLISHED[kv_dtype]

    assert energy_j(run) / run.seconds / 1000 == pytest.approx(node_kw, rel=0.10)
    good_tokens = sum(window.good_tokens for window in run.windows)
    assert good_tokens / energy_j(run) == pytest.approx(tokens_per_joule, rel=0.10)


@pytest.mark.parametrize("seed", ONE_QUICK)
def test_fp8_kv_cache_gives_more_tokens_per_joule_at_less_power(seed: int) -> None:
    bf16, fp8 = measured("auto", seed), measured("fp8", seed)
    per_joule = [sum(window.good_tokens for window in run.windows) / energy_j(run) for run in (bf16, fp8)]

    assert per_joule[1] > 1.05 * per_joule[0]
    assert energy_j(fp8) < energy_j(bf16)


@pytest.mark.parametrize("seed", ONE_QUICK)
def test_the_power_cap_shows_in_most_samples_and_in_fewer_with_an_fp8_kv_cache(seed: int) -> None:
    counts = {}
    for kv_dtype in ("auto", "fp8"):
        powers = window_powers(measured(kv_dtype, seed))
        assert sum(power.throttle_samples for power in powers) == 240
        counts[kv_dtype] = sum((power.throttle_counts or {})["sw_power_cap"] for power in powers)
        seconds = sum(power.throttle_s["sw_power_cap"] for power in powers)
        assert seconds == pytest.approx(counts[kv_dtype], rel=0.2)
        assert counts[kv_dtype] == pytest.approx(PUBLISHED[kv_dtype][2], rel=0.25)

    assert counts["fp8"] < 0.8 * counts["auto"]


@pytest.mark.parametrize("seed", ONE_QUICK)
@pytest.mark.parametrize("kv_dtype", ["auto", "fp8"])
def test_counter_and_trapezoid_agree_and_both_windows_are_valid(kv_dtype: str, seed: int) -> None:
    for power in window_powers(measured(kv_dtype, seed)):
        assert (power.invalid, power.method) == ((), "energy_counter")
        assert power.cross_check_j == pytest.approx(power.energy_j, rel=0.01)


@pytest.mark.parametrize("seed", ONE_QUICK)
@pytest.mark.parametrize("kv_dtype", ["auto", "fp8"])
def test_bandwidth_utilisation_lands_within_a_tenth_of_the_reference(kv_dtype: str, seed: int) -> None:
    """By the definition that every run uses, from what the model's config.json would say."""
    run = measured(kv_dtype, seed)
    geometry = load_geometry(Model(geometry=QWEN3_30B_A3B_FP8, kv_dtype="bf16" if kv_dtype == "auto" else kv_dtype))
    rated = rated_bandwidth(None, "NVIDIA H100 80GB HBM3", 79.6, None)
    figure = mbu(geometry, rated, 1, run.work, run.steps / run.seconds, run.seconds)

    assert figure.value == pytest.approx(PUBLISHED[kv_dtype][3], rel=0.10), figure


def per_joule(profile: Profile, rate_rps: float, slowdown: float, seed: int) -> float:
    """Delivered tokens per joule at a rate that every engine of the comparison sustains."""
    traffic, measurement = (
        (chat_mix(profile), Measurement(30, 60, 60, 60, 1))
        if profile is H100
        else (short_turns(profile), Measurement(3, 6, 10, 10, 1, 30))
    )
    engine = SteppedLoad(profile, seed=seed, slowdown=slowdown)
    lab = SteppedLab(profile, traffic, Sweep(rates=(rate_rps,)), measurement, seed)
    window = lab.measure_on(engine).windows[-1]
    assert window.passes
    power = window_power(engine.power(5.0), window.start_s, window.end_s)
    return window.output_tokens / (power.energy_j or float("nan"))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("name", "rate_rps"), [("quickstart", 30.0), ("h100-qwen3-30b-a3b-fp8", 5.0)])
def test_a_slower_engine_is_not_more_efficient(name: str, rate_rps: float, seed: int) -> None:
    figures = [per_joule(PROFILES[name], rate_rps, slowdown, seed) for slowdown in (1.0, 1.2, 1.4)]

    assert figures == sorted(figures, reverse=True)


def test_steps_count_those_that_ended_in_a_span() -> None:
    engine = SteppedLoad(QUICKSTART)
    lab = SteppedLab(QUICKSTART, short_turns(QUICKSTART), Sweep(rates=(20.0,)), Measurement(2, 4, 5, 5, 1, 30))
    window = lab.measure_on(engine).windows[-1]
    middle_s = (window.start_s + window.end_s) / 2
    inside = engine.steps(window.start_s, window.end_s)

    assert engine.steps(0.0, 0.0) == 0
    assert 0 < inside <= window.output_tokens
    assert engine.steps(window.start_s, middle_s) + engine.steps(middle_s, window.end_s) == inside


def test_no_sample_is_above_the_limit_or_below_idle() -> None:
    watts = measured("auto", 0).trace.sensors[0].watts

    assert max(watts) <= H100.board.power.limit_w
    assert min(watts) == pytest.approx(H100.board.power.idle_w)

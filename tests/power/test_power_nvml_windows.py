"""What a driver's faults make of a window's energy: real binding, sampler and integration, over one short real window.

All cases run at once, each on GPUs and with a sampler of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_tokenwatt.power.gpus import GpuQuery
from pytest_tokenwatt.power.integrate import window_power
from pytest_tokenwatt.power.nvml import BoardSource
from pytest_tokenwatt.power.sampler import Sampler
from pytest_tokenwatt.records.power import PowerTrace, WindowPower
from pytest_tokenwatt.testing import FakeGpu, FakeNvml, running_fake_nvml

pytestmark = pytest.mark.slow

pytest_plugins = ["pytest_tokenwatt.testing"]

HZ = 20.0
WINDOW_S = 1.5
SLOW = {"slow", "stalled"}
AVERAGING_S = 1.0
ENGINE = frozenset({4321})
POWER = "nvmlDeviceGetPowerUsage"
ENERGY = "nvmlDeviceGetTotalEnergyConsumption"


@dataclass(frozen=True)
class Case:
    """The GPUs of one sampler, and what came of the window."""

    gpus: tuple[FakeGpu, ...]
    sampler: Sampler
    start_s: float
    end_s: float

    @property
    def trace(self) -> PowerTrace:
        return self.sampler.trace()

    @property
    def power(self) -> WindowPower:
        return window_power(self.trace, self.start_s, self.end_s)

    @property
    def true_j(self) -> float:
        return sum(gpu.true_energy_j(self.start_s, self.end_s) for gpu in self.gpus)

    @property
    def codes(self) -> set[str]:
        return {reason.code for reason in self.power.invalid}

    @property
    def texts(self) -> str:
        return " | ".join(reason.text for reason in self.power.invalid)


NAMES = (
    "good", "absent", "zero", "frozen", "reset", "unsupported", "lost", "denied", "slow", "stalled", "limit", "foreign",
    "excess",
)  # fmt: skip


@pytest.fixture(scope="module")
def cases(fake_nvml_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Case]]:
    state = tmp_path_factory.mktemp("windows") / "state"
    with running_fake_nvml(fake_nvml_library, state) as fake, ExitStack() as stack:
        gpus = {name: prepared(fake, name) for name in NAMES}
        time.sleep(AVERAGING_S)
        samplers = {name: started(name, mine, stack) for name, mine in gpus.items()}
        time.sleep(AVERAGING_S / 2 + 0.1)
        start_s = time.monotonic()
        time.sleep(WINDOW_S / 3)
        break_down(gpus)
        end_s = start_s + WINDOW_S
        for name, sampler in samplers.items():
            # Of a slow or silent one the end of the window is as much as can be had.
            sampler.cover(end_s + (0.0 if name in SLOW else AVERAGING_S / 2 + 0.1), 10.0)
        yield {name: Case(gpus[name], samplers[name], start_s, end_s) for name in NAMES}


def prepared(fake: FakeNvml, name: str) -> tuple[FakeGpu, ...]:
    gpus = tuple(fake.add_gpu() for _ in range(2 if name in ("denied", "good") else 1))
    for gpu in gpus:
        gpu.set_sensor(refresh_s=0.02, jitter_w=1.0)
        gpu.set_processes(*ENGINE)
    last = gpus[-1]
    if name == "good":
        last.set_power(612.3)
        last.set_throttle(power_cap_share=0.25)
        last.set_reasons(0x4)
    elif name in ("absent", "unsupported", "stalled"):
        last.counter_absent()
    elif name == "zero":
        last.counter_constant(0.0)
    elif name == "frozen":
        last.counter_constant(777.0)
    elif name == "denied":
        last.fail(POWER, 4)
        last.fail(ENERGY, 4)
    elif name == "excess":
        last.set_power(2000.0)
    return gpus


def break_down(gpus: dict[str, tuple[FakeGpu, ...]]) -> None:
    gpus["reset"][0].counter_reset(5.0)
    gpus["unsupported"][0].fail(POWER, 3, after=2)
    gpus["lost"][0].fail(POWER, 15)
    for name in SLOW:
        gpus[name][0].delay(POWER, 2.0)
    gpus["limit"][0].set_limit(500.0)
    gpus["foreign"][0].set_processes(*ENGINE, 99)


def started(name: str, gpus: tuple[FakeGpu, ...], stack: ExitStack) -> Sampler:
    query = GpuQuery(tuple(gpu.uuid for gpu in gpus), len(gpus), {}, lambda: ENGINE)
    sampler = Sampler(BoardSource(query, look_every_s=0.1), HZ, name)
    stack.callback(sampler.stop, 5.0)
    assert sampler.start(10.0) is None
    return sampler


def test_without_a_fault_the_counter_gives_the_energy_that_was_used(cases: dict[str, Case]) -> None:
    case = cases["good"]
    assert case.power.invalid == ()
    assert case.power.method == "energy_counter"
    assert case.power.energy_j == pytest.approx(case.true_j, rel=0.02)
    assert case.power.cross_check_j == pytest.approx(case.power.energy_j, rel=0.05)


def test_throttling_comes_out_as_put_in(cases: dict[str, Case]) -> None:
    power = cases["good"].power
    assert power.throttle_counts is not None
    assert power.throttle_counts["sw_power_cap"] * 2 == power.throttle_samples
    assert power.throttle_s["sw_power_cap"] == pytest.approx(0.25 * WINDOW_S, rel=0.2)
    assert cases["absent"].power.throttle_counts is not None
    assert not any((cases["absent"].power.throttle_counts or {}).values())


@pytest.mark.parametrize("name", ["absent", "zero", "frozen"])
def test_without_a_counter_power_is_integrated(cases: dict[str, Case], name: str) -> None:
    case = cases[name]
    assert case.power.invalid == ()
    assert case.power.method == "trapezoid"
    assert case.power.energy_j == pytest.approx(case.true_j, rel=0.02)
    assert case.power.cross_check_j is None


def test_a_frozen_counter_is_named(cases: dict[str, Case]) -> None:
    assert any("energy_counter_frozen at 777.0 J" in note for note in cases["frozen"].power.notes)


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("reset", "energy_counter_reset", "the energy counter fell from"),
        ("unsupported", "window_not_bracketed", "power could not be read: Not Supported (NVML error 3)"),
        ("lost", "gpu_lost", "the driver lost the GPU (NVML error 15)"),
        ("denied", "too_few_samples", "this user may not read power (NVML error 4)"),
        ("limit", "power_limit_changed", "the enforced power limit changed from 700 W to 500 W"),
        ("foreign", "foreign_process", "PID 99"),
        ("stalled", "too_few_samples", "fewer than 10"),
        ("excess", "implausible_power", "not in (0, 1.2 x 700 W]"),
    ],
)
def test_a_fault_makes_the_window_invalid_and_says_why(
    cases: dict[str, Case], name: str, code: str, words: str
) -> None:
    case = cases[name]
    assert case.power.energy_j is None
    assert code in case.codes
    assert words in case.texts


def test_a_read_of_two_seconds_costs_samples_and_no_energy_where_there_is_a_counter(cases: dict[str, Case]) -> None:
    case = cases["slow"]
    assert max(case.trace.lateness_ms) > 1900
    assert case.trace.missed > 20
    assert case.power.method == "energy_counter"
    assert case.power.energy_j == pytest.approx(case.true_j, rel=0.02)


def test_a_slow_gpu_holds_up_nobody_else(cases: dict[str, Case]) -> None:
    for name in set(NAMES) - SLOW:
        late_ms = sorted(cases[name].trace.lateness_ms)
        assert late_ms[len(late_ms) // 2] < 500


@pytest.mark.parametrize(("counter", "method", "error"), [(True, "energy_counter", 0.001), (False, "trapezoid", 0.01)])
def test_a_minute_of_a_load_that_swings(fake_nvml: FakeNvml, counter: bool, method: str, error: float) -> None:
    """A sensor that averages 1 s, read at 1 Hz, of power that jumps between 110 and 620 W every 3.5 s."""
    gpu = fake_nvml.add_gpu()
    if not counter:
        gpu.counter_absent()
    gpu.set_square_wave(110.0, 620.0, 7.0)
    sampler = Sampler(BoardSource(GpuQuery((gpu.uuid,), 1, {}, lambda: None)), 1.0, "board")
    try:
        assert sampler.start(10.0) is None
        start_s = time.monotonic() + 3.13
        end_s = start_s + 60.0
        time.sleep(end_s - time.monotonic())
        assert sampler.cover(end_s + AVERAGING_S, 10.0)
        power = window_power(sampler.trace(), start_s, end_s)
    finally:
        sampler.stop(10.0)
    assert power.invalid == ()
    assert power.method == method
    assert power.energy_j == pytest.approx(gpu.true_energy_j(start_s, end_s), rel=error)
    if counter:
        assert power.cross_check_j == pytest.approx(power.energy_j, rel=0.01)

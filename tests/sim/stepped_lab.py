"""The lab without sockets: the real search, watch and judging over the embedded engine's model on virtual time."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_tokenwatt.load.lengths import Lognormal
from pytest_tokenwatt.load.plan import build_plan
from pytest_tokenwatt.load.traces import Traffic
from pytest_tokenwatt.metrics.client import WindowRules
from pytest_tokenwatt.metrics.measure import measure_goodput
from pytest_tokenwatt.metrics.search import ProbePlan
from pytest_tokenwatt.records import DEFAULT_SCENARIO, GoodputRecord, LoadPlan, SloBound
from pytest_tokenwatt.sim.profile import Profile
from pytest_tokenwatt.sim.stepped import SteppedLoad

RULES = WindowRules((SloBound("ttft", 99, 2000), SloBound("tpot", 99, 50)))


@dataclass(frozen=True)
class Sweep:
    """A spec's block with its defaults."""

    start_rps: float = 2.0
    growth: float = 2.0
    bisect_steps: int = 3
    resolution: float | None = None
    max_rps: float = 2000.0
    backoff: float = 0.9
    max_backoffs: int = 4
    rates: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Measurement:
    """A spec's block with its defaults."""

    warmup_s: float = 45.0
    warmup_max_s: float = 120.0
    window_s: float = 120.0
    search_window_s: float = 60.0
    repeats: int = 2
    request_timeout_s: float = 300.0


def chat_mix(profile: Profile) -> Traffic:
    """chat-mix-v1 on an engine with this profile's context length."""
    lengths = (Lognormal(1024, 4096), Lognormal(256, 1024))
    return Traffic("chat-mix-v1", *lengths, max_model_len=profile.max_model_len)


def short_turns(profile: Profile) -> Traffic:
    """The traffic of specs/quickstart.yaml."""
    lengths = (Lognormal(256, 384), Lognormal(24, 36))
    return Traffic("short turns", *lengths, max_output_tokens=64, max_model_len=profile.max_model_len)


@dataclass(frozen=True)
class SteppedLab:
    """One engine model under one traffic; ``seed`` draws the workload."""

    profile: Profile
    traffic: Traffic
    sweep: Sweep
    measurement: Measurement
    seed: int = 0

    def measure(self, *, kv_dtype: str = "auto", noise_seed: int = 0, slowdown: float = 1.0) -> GoodputRecord:
        """Goodput of one configuration. Fixed rates see the draw that the search confirms on."""
        return self.measure_on(SteppedLoad(self.profile, kv_dtype=kv_dtype, seed=noise_seed, slowdown=slowdown))

    def measure_on(self, engine: SteppedLoad) -> GoodputRecord:
        """Goodput of an engine whose power may be asked afterwards."""
        return measure_goodput(
            engine,
            self._plan,
            scenario=DEFAULT_SCENARIO,
            sweep=self.sweep,
            measurement=self.measurement,
            rules=RULES,
        )

    def _plan(self, probe: ProbePlan, number: int) -> LoadPlan:
        purpose = "search" if probe.kind == "search" else "confirm"
        return build_plan(
            label=f"{probe.kind}-{number}",
            rate_rps=probe.rate_rps,
            traffic=self.traffic,
            windows=probe.windows,
            window_s=probe.window_s,
            warmup_s=self.measurement.warmup_s,
            warmup_max_s=self.measurement.warmup_max_s,
            request_timeout_s=self.measurement.request_timeout_s,
            max_concurrency=8192,
            seed=self.seed,
            purpose=f"{purpose}/{probe.attempt}",
            salt=0,
        )

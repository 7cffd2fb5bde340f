"""Stepped runs of the reference hardware's profile at the rate it sustains, shared by the tests that look at them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pytest
from stepped_lab import Measurement, SteppedLab, Sweep, chat_mix

from pytest_tokenwatt.metrics.decode import DecodeWork, decode_work
from pytest_tokenwatt.records import (
    GoodputRecord,
    LoadPlan,
    LoadRun,
    LoadWatch,
    PowerTrace,
    WindowResult,
    WindowSpan,
)
from pytest_tokenwatt.sim.profile import PROFILES
from pytest_tokenwatt.sim.stepped import SteppedLoad

H100 = PROFILES["h100-qwen3-30b-a3b-fp8"]
SEEDS = (0, 1, 2)
ONE_QUICK = [seed if seed == SEEDS[0] else pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS]
"""Every seed; all but the first are left to the slow run."""


@dataclass(frozen=True)
class Measured:
    """A goodput search, the board's trace at 1 Hz through all of it, and what was done in the confirming windows."""

    record: GoodputRecord
    trace: PowerTrace
    windows: tuple[WindowResult, ...]
    steps: int
    work: DecodeWork

    @property
    def seconds(self) -> float:
        return sum(window.end_s - window.start_s for window in self.windows)


class _Remembering(SteppedLoad):
    def run(self, plan: LoadPlan, watch: LoadWatch) -> LoadRun:
        self.last = super().run(plan, watch)
        return self.last


@cache
def measured(kv_dtype: str, seed: int) -> Measured:
    engine = _Remembering(H100, kv_dtype=kv_dtype, seed=seed)
    record = SteppedLab(H100, chat_mix(H100), Sweep(), Measurement(), seed).measure_on(engine)
    windows = record.windows[-record.repeats :]
    spans = [WindowSpan(window.start_s, window.end_s) for window in windows]
    steps = engine.steps(spans[0].start_s, spans[-1].end_s)
    return Measured(record, engine.power(1.0), windows, steps, decode_work(engine.last.requests, spans))

"""What the pretended board draws during a step: a pure function of what is in the batch."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_tokenwatt.sim.profile import Profile
from pytest_tokenwatt.sim.steptime import Batch, StepTime


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a step: its share of the step's time, and its power. ``capped`` while the regulator holds that down."""

    share: float
    watts: float
    capped: bool


class StepPower:
    """Phases of a step of ``profile`` with one KV cache type, on a board whose clocks run at ``clock`` of their rate.

    The linear layers, attention and the host's part follow each other; each draws the active power, plus the memory's
    in proportion to its bytes per second over the rated bandwidth, plus the arithmetic units' in proportion to its
    FLOP/s over the rate that they reach, capped. Rates are those of the step-time model before any slowdown: an engine
    that is slower than the model loses its time inside the kernels, at their power, and not by waiting.
    """

    def __init__(self, profile: Profile, kv_dtype: str, clock: float = 1.0) -> None:
        machine = profile.machine
        self._model = profile.board.power
        self._time = StepTime(profile, kv_dtype)
        self._byte_j = clock * self._model.memory_w / machine.bandwidth
        self._token_j = clock * self._model.compute_w * profile.token_flops / machine.linear_flops
        self._pair_j = clock * self._model.compute_w * profile.pair_flops / machine.attention_flops

    def __call__(self, batch: Batch) -> tuple[Phase, ...]:
        """The phases of a step of ``batch``, which must not be empty, in order; their shares add up to 1."""
        linear_s, attention_s, host_s = self._time.parts(batch)
        weight_bytes, kv_bytes = self._time.read_bytes(batch)
        linear_j = weight_bytes * self._byte_j + batch.tokens * self._token_j
        attention_j = kv_bytes * self._byte_j + (batch.context + batch.pairs) * self._pair_j
        step_s = linear_s + attention_s + host_s
        return (
            self._phase(step_s, linear_s, linear_j),
            self._phase(step_s, attention_s, attention_j),
            self._phase(step_s, host_s, 0.0),
        )

    def _phase(self, step_s: float, phase_s: float, dynamic_j: float) -> Phase:
        demand_w = self._model.active_w + (dynamic_j / phase_s if phase_s else 0.0)
        return Phase(phase_s / step_s, min(demand_w, self._model.cap_w), demand_w > self._model.cap_w)

"""The embedded engine on virtual time: steps follow each other as fast as they can be computed."""

from __future__ import annotations

import random
from array import array

from pytest_tokenwatt.sim.profile import Limits
from pytest_tokenwatt.sim.scheduler import Outcome, Scheduler, Sequence
from pytest_tokenwatt.sim.steptime import Batch, StepTime


class VirtualEngine:
    """A scheduler and a step-time model with a clock of their own.

    ``now_s`` is that clock. ``stamps`` holds the end of every step so far, which is when all sequences of the step got
    their token: a sequence's stamps are slices of it. ``history`` has start, end and batch of every
    step since it was last cleared. ``noise`` is the standard deviation of a step's log-time.
    """

    def __init__(self, limits: Limits, step_time: StepTime, rng: random.Random, noise: float) -> None:
        self.scheduler = Scheduler(limits)
        self.now_s = 0.0
        self.stamps: array[float] = array("d")
        self.history: list[tuple[float, float, Batch]] = []
        self._step_time = step_time
        self._rng = rng
        self._noise = noise

    def step(self) -> Outcome | None:
        """Take one step and move the clock to its end; ``None`` and no time when there is nothing to do."""
        batch = self.scheduler.plan()
        if not batch.tokens:
            return None
        seconds = self._step_time(batch)
        if self._noise:
            seconds *= self._rng.lognormvariate(0.0, self._noise)
        start_s, self.now_s = self.now_s, self.now_s + seconds
        self.history.append((start_s, self.now_s, batch))
        self.stamps.append(self.now_s)
        return self.scheduler.commit()

    def token_stamps(self, sequence: Sequence) -> array[float]:
        """When the sequence got each of its tokens so far (seconds of this clock)."""
        stamps: array[float] = array("d")
        for first, end in sequence.runs:
            stamps.extend(self.stamps[first:end])
        if sequence.first_step is not None:
            stamps.extend(self.stamps[sequence.first_step :])
        return stamps
